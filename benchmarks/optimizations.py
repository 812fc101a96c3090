"""Measures each optimization of this project against the same work without it, on this machine.

Run by `python gpu_optimize.py` and `kytolly benchmark optimizations`. Both functions of a row are
measured in turn, in one process. Every number is the median over the turns.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, NoReturn

import gymnasium

from kytolly.machine import facts, hardware
from kytolly.machine.configure import configure_gpu_optimization
from kytolly.machine.gpu import Gpu
from kytolly.machine.gpu_costs import PROGRAMS, predicted_milliseconds, when_a_gpu_pays

if TYPE_CHECKING:
    from kytolly.benchmarks import core

STEP_SECONDS = 0.001  # of a slow environment
SLOW_ENVS, SLOW_STEPS = 4, 128  # slow environments, and their env steps in one call
WIDE_UPDATES = 4  # in one call
UTILIZATION_SECONDS, LOOP_STEPS = 3.0, 1_000  # of watching the GPU; env steps in one call
UTILIZATION_WINDOW = 1.0  # seconds that NVML looks back, at most
PAYS = 1.05  # ratios nearer to 1 than this are called no difference


Precision = Literal["float32", "mixed_float16", "mixed_bfloat16"]


class Case(NamedTuple):
    """One optimization: two functions that do the same kind of work.

    Attributes:
        name, unit: What is switched, and what one unit of the work is.
        on, off: Functions that do `on_units` (`off_units`) of the work and wait for its end.
        on_label, off_label: What the two do, in a few words.
    """

    name: str
    unit: str
    on_label: str
    off_label: str
    on: Callable[[], object]
    off: Callable[[], object]
    on_units: int = 1
    off_units: int = 1


class Row(NamedTuple):
    """Medians of one case, in milliseconds of wall time and of CPU time for one unit."""

    name: str
    unit: str
    on_label: str
    off_label: str
    on_ms: float
    off_ms: float
    on_cpu_ms: float
    off_cpu_ms: float

    @property
    def ratio(self) -> float:
        """The speed with the optimization over the speed without it."""
        return self.off_ms / self.on_ms

    @property
    def verdict(self) -> str:
        """The answer to the question of the last column: does it pay on this machine?"""
        if self.ratio >= PAYS:
            return "yes"
        return "no: slower" if self.ratio <= 1 / PAYS else "no difference"

    def as_dict(self) -> dict[str, Any]:
        """The row in types that JSON knows."""
        rates = {"on_per_second": 1000 / self.on_ms, "off_per_second": 1000 / self.off_ms}
        return {**self._asdict(), **rates, "ratio": self.ratio, "verdict": self.verdict}


# --- the clock -----------------------------------------------------------------------------


def time_per_unit(
    function: Callable[[], object], units: int, seconds: float
) -> tuple[float, float]:
    """Call the function for about `seconds`; returns wall and CPU milliseconds for one unit."""
    calls = 0
    cpu = time.process_time()
    start = time.perf_counter()
    while calls == 0 or time.perf_counter() - start < seconds:
        function()
        calls += 1
    wall, cpu = time.perf_counter() - start, time.process_time() - cpu
    return 1000 * wall / (calls * units), 1000 * cpu / (calls * units)


def measure_case(case: Case, repeats: int, seconds: float) -> Row:
    """Let both functions take `repeats` turns of `seconds` each; returns their medians."""
    for function in (case.on, case.on, case.off, case.off):  # compile, and warm up
        function()
    turns = [
        (
            *time_per_unit(case.on, case.on_units, seconds),
            *time_per_unit(case.off, case.off_units, seconds),
        )
        for _ in range(repeats)
    ]
    on, on_cpu, off, off_cpu = (statistics.median(column) for column in zip(*turns, strict=True))
    labels = (case.name, case.unit, case.on_label, case.off_label)
    return Row(*labels, on, off, on_cpu, off_cpu)


# --- the cases -----------------------------------------------------------------------------


def make_learner(
    precision: Precision = "float32",
    hidden_units: tuple[int, ...] = (120, 84),
    batch_size: int = 128,
) -> core.Learner:
    """A CartPole agent, past its warm-up, its buffer of 10,000 rows filled with random rows."""
    from kytolly.benchmarks import core
    from kytolly.config.dqn import DQNConfig

    cfg = DQNConfig(
        num_envs=1,
        batch_size=batch_size,
        hidden_units=hidden_units,
        precision=precision,
        n_step=1,
        replay_capacity=10_000,
        warmup_env_steps=1_000,
        train_interval_env_steps=10,
        updates_per_interval=1,
    )
    return core.make_learner(cfg)


def half_precision() -> Precision:
    """The half-precision policy that suits the device: bfloat16, or float16 on older GPUs."""
    import tensorflow as tf

    capability = hardware.gpu_capability(tf)
    return "mixed_float16" if (0, 0) < capability < (8, 0) else "mixed_bfloat16"


class SlowCartPole(gymnasium.Wrapper):
    """CartPole whose steps keep a core busy for `STEP_SECONDS`, as a simulation does."""

    def __init__(self) -> None:
        super().__init__(gymnasium.make("CartPole-v1"))

    def step(self, action: int) -> tuple:
        """Step, and compute until the time is over."""
        end = time.thread_time() + STEP_SECONDS
        while time.thread_time() < end:
            pass
        return self.env.step(action)


@contextlib.contextmanager
def slow_loop(async_envs: bool) -> Iterator[Any]:
    """PPO's host loop with `SLOW_ENVS` slow environments, whose processes end with the block."""
    from kytolly.agent.make_agent import make_agent
    from kytolly.config.ppo import PPOConfig
    from kytolly.loop.env_runner import make_env_runner

    cfg = PPOConfig(
        num_envs=SLOW_ENVS,
        rollout_steps=SLOW_STEPS // SLOW_ENVS,
        epochs=1,
        num_minibatches=1,
        async_envs=async_envs,
        loop="host",
        xla=facts.xla_enabled(),
    )
    runner = make_env_runner(cfg, SlowCartPole)
    try:
        with contextlib.closing(runner.loop(make_agent(cfg, runner.spec), None)) as loop:
            yield loop
    finally:
        runner.close()


def async_case(stack: contextlib.ExitStack) -> Case:
    """Environments in processes against environments one after the other."""
    from kytolly.benchmarks import core

    on, off = (stack.enter_context(slow_loop(async_envs)) for async_envs in (True, False))
    return Case(
        f"async_envs, {1000 * STEP_SECONDS:g} ms a step", "env step",
        f"{SLOW_ENVS} processes", "one after the other",
        lambda: core.fetch(on.run(SLOW_STEPS)), lambda: core.fetch(off.run(SLOW_STEPS)),
        SLOW_STEPS, SLOW_STEPS,
    )  # fmt: skip


def width_case(jit: bool | None) -> Case:
    """A network of 256 units a layer against one of 512."""
    from kytolly.benchmarks import core

    on, off = (
        core.fused_updates(make_learner(hidden_units=(units, units)), jit) for units in (256, 512)
    )
    return Case(
        "256 or 512 units", "update", "2x256 units", "2x512 units",
        lambda: on(WIDE_UPDATES), lambda: off(WIDE_UPDATES), WIDE_UPDATES, WIDE_UPDATES,
    )  # fmt: skip


def cases(count: int, wide: bool) -> Iterator[Case]:
    """The cases, each built only when it is its turn.

    Args:
        count: Updates in one fused call.
        wide: Measure wider networks and environments in processes, too.
    """
    from kytolly.benchmarks import core

    jit = facts.xla_enabled() or None
    learner = make_learner()
    fused = core.fused_updates(learner, jit)
    yield Case(
        "device buffer", "update", "device", "NumPy",
        lambda: fused(1), core.numpy_buffer_update(learner),
    )  # fmt: skip
    yield Case(
        "target sync", "sync", "device assigns", "get/set_weights", *core.target_syncs(learner)
    )
    if jit:
        plain = core.fused_updates(learner, None)
        yield Case(
            "jit_compile", "update", "XLA", "graph executor",
            lambda: fused(count), lambda: plain(count), count, count,
        )  # fmt: skip
    yield Case(
        "fused updates", "update", f"{count} in one call", f"{count} calls",
        lambda: fused(count), lambda: [fused(1) for _ in range(count)], count, count,
    )  # fmt: skip
    loop = core.make_cartpole_loop(make_learner().agent)
    steps = 20 * count
    yield Case(
        "whole loop", "env step", "one program", "a call per part",
        lambda: core.fetch(loop.run(steps)), core.calls_per_part(learner, jit), steps, 10,
    )  # fmt: skip
    half = half_precision()
    mixed = core.fused_updates(make_learner(half), jit)
    yield Case(
        f"{half}, 120-84 units", "update", "mixed", "float32",
        lambda: mixed(count), lambda: fused(count), count, count,
    )  # fmt: skip
    if not wide:
        return
    pair = [core.fused_updates(make_learner(p, (1024, 1024), 512), jit) for p in (half, "float32")]
    yield Case(
        f"{half}, 2x1024 units", "update", "mixed", "float32",
        lambda: pair[0](2), lambda: pair[1](2), 2, 2,
    )  # fmt: skip
    yield width_case(jit)
    with contextlib.ExitStack() as stack:
        yield async_case(stack)


# --- the report ----------------------------------------------------------------------------


def run_cases(quick: bool) -> list[Row]:
    """Measure all cases; each one's ratio and the progress go to standard error at once."""
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    repeats, seconds, count = (3, 0.01, 5) if quick else (7, 0.2, 50)
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    rows: list[Row] = []
    total = 5 + facts.xla_enabled() + 3 * (not quick)
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("building the agent", total=None)
        for case in cases(count, wide=not quick):
            progress.update(task, description=f"{len(rows) + 1} of {total}: {case.name}")
            rows.append(measure_case(case, repeats, seconds))
            progress.console.print(f"{case.name}: {rows[-1].ratio:.2f}x", highlight=False)
    return rows


def print_rows(
    rows: list[Row], iteration: Row, advice: str, utilization: float | None = None
) -> None:
    """Print the table, what a GPU does or would do, and the two lines that end it."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, caption="Wall milliseconds, CPU milliseconds in brackets.")
    table.add_column("optimization: with / without it", min_width=38)
    for title in ("with", "without", "per second", "ratio"):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("pays here?")
    for row in rows:
        what = f"{row.name}, per {row.unit}\n  {row.on_label} / {row.off_label}"
        times = [
            f"{row.on_ms:.3f} ({row.on_cpu_ms:.3f})",
            f"{row.off_ms:.3f} ({row.off_cpu_ms:.3f})",
        ]
        table.add_row(what, *times, f"{1000 / row.on_ms:,.0f}", f"{row.ratio:.2f}x", row.verdict)
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 120)
    console.print(table)
    console.print(advice, markup=False, soft_wrap=True)
    if utilization is not None:
        console.print(f"The GPU was in use for {utilization:.0f}% of the whole loop's time.")
    console.print("An iteration is one update of the fused program: batch 128, 4-120-84-2 units.")
    console.print(f"✅ Benchmark complete: {iteration.on_ms:.3f} ms/iteration")
    console.print(f"Throughput: {1000 / iteration.on_ms:.1f} iterations/second")


def gpu_advice(rows: list[Row]) -> str:
    """When a GPU pays for the loop of the table; where there is one, its time stands in the row."""
    loop = next(row for row in rows if row.name == "whole loop")
    milliseconds = loop.on_ms * PROGRAMS["dqn"].env_steps
    if hardware.nvidia_gpu_plausible():
        predicted = predicted_milliseconds("dqn")
        return (
            f"dqn: {milliseconds:.2f} ms an iteration here, {predicted:.2f} ms predicted on a GPU"
        )
    return when_a_gpu_pays("dqn", milliseconds)


def gpu_utilization(seconds: float) -> float | None:
    """Mean utilization in percent while the whole loop runs; None without a GPU or NVML."""
    gpu = Gpu.of("/GPU:0")
    if gpu is None:
        return None
    from kytolly.benchmarks import core

    loop = core.make_cartpole_loop(make_learner().agent)
    core.fetch(loop.run(LOOP_STEPS))
    samples = []
    start = time.perf_counter() + UTILIZATION_WINDOW
    while not samples or time.perf_counter() < start + seconds:
        core.fetch(loop.run(LOOP_STEPS))
        if time.perf_counter() > start:
            samples.append(gpu.metrics().get("utilization"))
    known = [sample for sample in samples if sample is not None]
    return statistics.mean(known) if known else None


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        print(f"{self.prog}: {message}; expected --json or --quick, or nothing", file=sys.stderr)
        raise SystemExit(2)


def run(quick: bool) -> dict[str, Any]:
    """Configure, measure and print; returns what `--json` prints."""
    report = configure_gpu_optimization()
    rows = run_cases(quick)
    iteration = next(row for row in rows if row.name == "fused updates")
    advice = gpu_advice(rows)
    utilization = gpu_utilization(0.0 if quick else UTILIZATION_SECONDS)
    print_rows(rows, iteration, advice, utilization)
    return {
        "gpu_utilization": utilization,
        "gpu_advice": advice,
        "ms_per_iteration": iteration.on_ms,
        "iterations_per_second": 1000 / iteration.on_ms,
        "cores": hardware.usable_cores(),
        "cpu": hardware.cpu_description()[0],
        "configuration": report.as_dict(),
        "rows": [row.as_dict() for row in rows],
    }


def main(arguments: list[str] | None = None) -> int:
    """The benchmark as a program; returns its exit status."""
    parser = _Parser(prog="gpu_optimize", description=__doc__, allow_abbrev=False)
    parser.add_argument("--json", action="store_true", help="end with one line of JSON")
    parser.add_argument(
        "--quick",
        action="store_true",
        help="short turns, no wide networks, no processes: a trial run",
    )
    options = parser.parse_args(arguments)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    try:
        with contextlib.redirect_stdout(sys.stderr if options.json else sys.stdout):
            result = run(options.quick)
        if options.json:
            print(json.dumps(result))
    except ValueError as error:
        print(f"gpu_optimize: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    return 0
