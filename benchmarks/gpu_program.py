"""The table `gpu-program`: what a GPU would launch for each device loop, and where its host waits.

Each program is written in a process of TensorFlow or JAX and compiled in another one, because two
versions of XLA cannot share a process.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from kytolly.agent.algorithms import ALGORITHMS, TEXT_MODELS
from kytolly.benchmarks import hlo, suite
from kytolly.benchmarks.comparisons import COMPETITORS, jax_contenders, our_contender
from kytolly.benchmarks.gpu_compiler import why_unusable
from kytolly.benchmarks.gpu_dump import ROWS
from kytolly.benchmarks.gpu_targets import TARGETS
from kytolly.benchmarks.suite import Contender, Options, Report, Watch
from kytolly.config.words import nearest
from kytolly.machine.gpu_costs import COSTS, GpuCosts
from kytolly.machine.hardware import nvidia_gpu_plausible

DUMP = "kytolly.benchmarks.gpu_dump"
COMPILE = "kytolly.benchmarks.gpu_compiler"
WITH_COMPETITORS = ("ppo", "ppo-wide", "dqn", "dqn-10-envs")
MOST_STEPS = 5  # of the environments in a turn: `loop.device.GPU_UNROLL`
COLUMNS = ("", "launches", "an env step", "an update", "waits", "copies", "MiB", "ms", "ratio")
MEASURED = "ms here"  # one more column where there is a GPU
TIMED_STEPS = "200000"  # of each program, where there is a GPU


class Counts(NamedTuple):
    """What one iteration launches.

    Attributes:
        launches, waits, copies: Of an iteration.
        env_step, update: Launches of one, where it is a loop of its own.
        conditionals, unknown_loops: Their number in the text of an iteration.
        formula: The launches by loop.
    """

    launches: int
    waits: int
    copies: int
    env_step: float | None
    update: int | None
    conditionals: int
    unknown_loops: int
    formula: str


def why_unknown(options: Options) -> str:
    """Why the table cannot be made, or nothing."""
    for name in options.algorithms:
        if name in TEXT_MODELS:
            return f"{name!r} has no device loop, expected one of {', '.join(by_algorithm())}."
        if name not in by_algorithm():
            known = by_algorithm()
            return f"{name!r} is no algorithm here; there are {', '.join(known)}." + nearest(
                name, known
            )
    if options.gpu is not None and options.gpu not in TARGETS:
        known = ", ".join(f"{name} ({target.name})" for name, target in TARGETS.items())
        return f"--gpu is {options.gpu!r}, expected one of {known}."
    return why_unusable()


def by_algorithm() -> list[str]:
    """The algorithms that have a program here."""
    return [name for name in ALGORITHMS if any(row.algorithm == name for row in ROWS.values())]


def count(
    block: hlo.Block, *, steps: int, updates: int, iterations: int | None, turns: int = 1
) -> Counts:
    """Count an iteration of a program.

    Args:
        block: The program.
        steps: Steps of each environment in an iteration.
        updates: Updates in an iteration.
        iterations: Turns of the loop of iterations; None where the compiler does not know them.
        turns: Turns of that loop that are an iteration, of which the last one learns.

    Raises:
        ValueError: There is no loop of iterations.
    """
    loop = block.find(iterations)
    if loop is None:
        raise ValueError(f"the program has no loop of {iterations or 'unknown'} turns.")
    acting = next(
        (
            b
            for b in loop.blocks
            if b.kind == "loop" and steps > 1 and b.trips and steps_in_a_turn(b.trips, steps)
        ),
        None,
    )
    learning = hlo.nested(loop, updates, without=acting) if updates > 1 else None
    conditionals, unknown = loop.sites()
    return Counts(
        launches=loop.launches() + (turns - 1) * loop.launches(min),
        waits=turns * loop.waits(),
        copies=turns * loop.copies(),
        env_step=acting.launches() * acting.turns / steps if acting else None,
        update=learning.launches() if learning else None,
        conditionals=conditionals,
        unknown_loops=unknown,
        formula=f"{turns} x ({loop.formula()})" if turns > 1 else loop.formula(),
    )


class Side(NamedTuple):
    """One program: how it is written, and how the same work is timed."""

    dump: Contender
    timed: Contender

    @property
    def is_ours(self) -> bool:
        """True if the program is Kytolly's."""
        return self.dump.module == DUMP


def steps_in_a_turn(turns: int, steps: int) -> int:
    """Env steps in each turn of a loop of them; 0 where it is another loop."""
    return steps // turns if steps % turns == 0 and steps // turns <= MOST_STEPS else 0


def sides(row: str, folder: str) -> list[Side]:
    """Our program of a row, and those of the JAX libraries that do the same work."""
    words = ("--row", row, "--folder", folder)
    (program, *sizes), more = ROWS[row].words, ROWS[row].more
    ours = Contender("Kytolly", DUMP, words)
    found = [Side(ours, our_contender(program, "--env-steps", TIMED_STEPS, *sizes, *more))]
    if row not in WITH_COMPETITORS:
        return found
    clone = str(Path(os.environ.get("PUREJAXRL_CHECKOUT", "")).absolute())
    for timed in jax_contenders(program, TIMED_STEPS, *sizes):
        library = ("--library", timed.name.lower(), "--checkout", clone)
        dump = timed._replace(module=f"{COMPETITORS}.jax_dump", arguments=(*words, *library))
        found.append(Side(dump, timed))
    return found


def measured_milliseconds(side: Side, env_steps: int) -> float:
    """Time of an iteration of so many env steps, on the GPU of this machine."""
    result = suite.run_module(side.timed.module, side.timed.arguments)
    return 1e3 * result["wall_seconds"] * env_steps / result["env_steps"]


def compiled(side: Side, gpu: str) -> dict[str, Any]:
    """Write a program, compile it and count; where there is a GPU, time it."""
    written = suite.run_module(side.dump.module, side.dump.arguments, environ=suite.CPU_ONLY)
    numbers = compile_and_count(written, gpu)
    here = measured_milliseconds(side, written["env_steps"]) if nvidia_gpu_plausible() else None
    return {**numbers, "measured_milliseconds": here}


def compile_and_count(written: dict[str, Any], gpu: str) -> dict[str, Any]:
    """Compile a program that was written, and count an iteration."""
    words = ("--program", written["program"], "--gpu", gpu)
    words += ("--devices", str(written.get("devices", 1)))
    result = suite.run_module(COMPILE, words, environ=suite.CPU_ONLY)
    block = hlo.read_program(Path(result["hlo"]).read_text())
    sizes = {name: written[name] for name in ("steps", "updates")}
    counts = count(
        block,
        **sizes,
        iterations=written.get("iterations"),
        turns=written.get("turns", 1),
    )
    loop = block.find(written.get("iterations"))
    kernels = list(named_kernels(loop)) if loop else []
    numbers = {**written, **result, **counts._asdict(), "kernels": kernels}
    numbers["buffer_bytes"] = sum(
        result[f"{name}_bytes"] for name in ("argument", "output", "temporary")
    )
    return numbers


def named_kernels(block: hlo.Block, where: str = "iteration") -> list[str]:
    """A line for each kernel: the loop, the kernel, its result, and what it was made from."""
    lines = [
        f"{where}: {kernel.name} {kernel.shape} {kernel.source}".rstrip()
        for kernel in block.kernels
    ]
    for inner in block.blocks:
        turns = {"loop": "loop x n" if inner.trips is None else f"loop x {inner.trips}"}
        lines += named_kernels(inner, f"{where} > {turns.get(inner.kind, inner.kind)}")
    return lines


def chosen_costs(options: Options) -> GpuCosts:
    """The times that are predicted with."""
    names = ("launch_microseconds", "wait_microseconds")
    given = {name: getattr(options, name) for name in names}
    return COSTS._replace(**{name: value for name, value in given.items() if value is not None})


def cells(name: str, numbers: dict[str, Any], ours: dict[str, Any], costs: GpuCosts) -> list[str]:
    """The line of a program."""
    ratio = numbers["launches"] / ours["launches"]
    here = numbers["measured_milliseconds"]
    milliseconds = costs.milliseconds(numbers["launches"], numbers["waits"])
    return [
        name,
        f"{numbers['launches']:,}",
        "" if numbers["env_step"] is None else f"{numbers['env_step']:g}",
        "" if numbers["update"] is None else str(numbers["update"]),
        f"{numbers['waits']:,}",
        f"{numbers['copies']:,}",
        f"{numbers['buffer_bytes'] / 2**20:,.1f}",
        f"{milliseconds:,.2f}",
        "" if numbers is ours else f"{ratio:.2f}x",
        *([] if here is None else [f"{here:,.2f}"]),
    ]


def gpu_program(options: Options, watch: Watch) -> Report:
    """Compile the programs of all algorithms, or of those that are named.

    Raises:
        ValueError: An algorithm or a GPU is not known here, or the compiler is missing.
        RuntimeError: A program of ours does not compile.
    """
    if reason := why_unknown(options):
        raise ValueError(reason)
    chosen = [
        name
        for name, row in ROWS.items()
        if not options.algorithms or row.algorithm in options.algorithms
    ]
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(options.log_dir or temporary)
        folder.mkdir(parents=True, exist_ok=True)
        return make_report(chosen, folder, options, watch)


def make_report(chosen: Sequence[str], folder: Path, options: Options, watch: Watch) -> Report:
    """The table of these programs, whose files go to the folder."""
    gpu, costs = options.gpu or "sm_90", chosen_costs(options)
    programs = [(row, side) for row in chosen for side in sides(row, str(folder))]
    watch.begin(len(programs))
    rows: list[list[str]] = []
    notes: list[str] = []
    data: list[dict[str, Any]] = []
    ours: dict[str, Any] = {}
    for row, side in programs:
        is_ours, library = side.is_ours, side.dump.name
        name = f"{ROWS[row].algorithm}: {ROWS[row].title}" if is_ours else f"  {library}"
        if reason := side.dump.why_absent():
            shown, missing = suite.missing_row(name, reason)
            rows.append(shown)
            data.append({"row": row, **missing})
            continue
        with watch.turn(f"{row}, {library}"):
            try:
                numbers = compiled(side, gpu)
            except (suite.ChildFailed, ValueError) as error:
                if is_ours:
                    raise RuntimeError(f"{row}: {error}") from error
                rows.append([f"{name}: failed: {error}"])
                data.append({"row": row, "name": library, "missing": str(error)})
                continue
        ours = numbers if is_ours else ours
        rows.append(cells(name, numbers, ours, costs))
        notes.append(f"{row if is_ours else '  ' + library}: {numbers['formula']}")
        if options.kernels:
            notes += [f"    {line}" for line in numbers["kernels"]]
        data.append({"row": row, "name": library, **numbers})
    compiler = ours["compiler"]
    notes += [
        f"Compiled by {compiler} for an {TARGETS[gpu].name}, which is not here. Counts are of one "
        "iteration; a conditional counts as its largest branch. The host waits for the device at "
        "each conditional, and at a loop of unknown length (n), counted as one turn. MiB: the "
        "program's arguments, results and temporary buffers. ms: predicted, "
        f"{costs.launch_microseconds:g} µs a launch and {costs.wait_microseconds:g} µs a wait, for "
        "kernels that carry little. Ratio: their launches over Kytolly's."
    ]
    title = f"Programs of the device loop on an {TARGETS[gpu].name}"
    columns = [*COLUMNS, *([MEASURED] if nvidia_gpu_plausible() else [])]
    return Report(title, columns, rows, notes, {"rows": data, "gpu": gpu})
