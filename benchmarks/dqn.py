"""This project's DQN on CartPole-v1, measured the way the competitors are.

The loops as `kytolly train` uses them, without evaluation, logging and checkpoints::

    python -m benchmarks.dqn --env-steps 200000
    python -m benchmarks.dqn --loop host --env-steps 50000
    python -m benchmarks.dqn --update-only --updates 20000

The clock starts when the program is compiled and the warm-up (random steps, then
`SETTLING_UPDATES` updates) is over. `--update-only` is the counterpart of
`benchmarks.competitors.jax_update`: learning steps alone, in one compiled while loop, each with
rows drawn anew from a filled buffer. `environments` and `determinism` are the tables of
`kytolly benchmark` in which this program has no opponent.
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import itertools
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from benchmarks import suite
from benchmarks.competitors import (
    Settings,
    Span,
    make_parser,
    make_result,
    parse,
    print_result,
    refuse,
    versions,
)

SETTLING_UPDATES = 100  # as for Stable-Baselines3; the first calls allocate
UPDATE_FIELDS = ("batch_size", "buffer", "hidden", "learning_rate", "target_sync_updates", "gamma",
                 "max_grad_norm", "seed")  # fmt: skip

COPIES = (1, 4, 16, 64, 256, 1024, 4096)
SECOND_RUNS = {
    "the same seed": ("--seed", "1"),
    "the same, in 7 calls for 1": ("--seed", "1", "--calls", "7"),
    "another seed": ("--seed", "2"),
}


def make_config(settings: Settings) -> Any:
    """The `DQNConfig` that does what the competitors are asked to do."""
    from config import DQNConfig

    return DQNConfig(
        total_env_steps=settings.env_steps,
        num_envs=settings.num_envs,
        seed=settings.seed,
        hidden_units=settings.hidden,
        learning_rate=settings.learning_rate,
        gamma=settings.gamma,
        batch_size=settings.batch_size,
        replay_capacity=settings.buffer,
        warmup_env_steps=settings.warmup_env_steps,
        train_interval_env_steps=settings.train_interval,
        updates_per_interval=1,
        target_sync_updates=settings.target_sync_updates,
        max_grad_norm=settings.max_grad_norm,
        epsilon_start=settings.epsilon_final,  # the warm-up explores with 1
        epsilon_final=settings.epsilon_final,
    )


def make_loop(cfg: Any, kind: str) -> Any:
    """The device or the host loop, with an agent of its own.

    Args:
        cfg: `DQNConfig`.
        kind: "device" or "host".
    """
    import tensorflow as tf

    from agent.factory import make_agent

    device = "/GPU:0" if tf.config.list_physical_devices("GPU") else None
    if kind == "device":
        from environment.cartpole import CartPole
        from loop.device import DeviceLoop

        env = CartPole()
        with tf.device(device):
            return DeviceLoop(make_agent(cfg, env.spec), env, device)
    from environment.host import make_host_env
    from loop.host import HostLoop

    env = make_host_env("CartPole-v1", cfg.num_envs, seed=cfg.seed)
    with tf.device(device):
        return HostLoop(make_agent(cfg, env.spec), env, device)


def measure_loop(settings: Settings, kind: str, calls: int, digests: bool) -> dict[str, Any]:
    """Train, time the steady state, and return the result.

    Args:
        settings: What to run.
        kind: "device" or "host".
        calls: Calls of the program that the timed env steps are spread over.
        digests: Add checksums of all that the run computed.
    """
    from loop.metrics import averages

    loop = make_loop(make_config(settings), kind)
    agent = loop.agent
    begin = time.perf_counter()
    loop.run(0)
    compile_seconds = time.perf_counter() - begin
    loop.run(settings.warmup_env_steps + SETTLING_UPDATES * settings.train_interval)
    before = counts(agent)
    with Span() as span:
        parts = [on_host(loop.run(steps)) for steps in spread(settings, calls)]
    after = counts(agent)
    sums = parts[0]
    for part in parts[1:]:
        sums = sums.plus(part)
    loop.close()
    found = {"digests": make_digests(agent, averages(sums, agent))} if digests else {}
    return make_result(
        name=f"Kytolly DQN, {kind} loop",
        versions=versions("tensorflow", "keras", "numpy", "gymnasium"),
        env_steps=after[0] - before[0],
        updates=after[1] - before[1],
        span=span,
        compile_seconds=compile_seconds,
        peak_memory_mib=peak_memory_mib(),
        settings={**dataclasses.asdict(settings), "calls": calls, "episodes": int(sums.episodes)},
        note=(
            "Off: evaluation, logging, checkpoints, the compile cache. Timed after "
            f"{before[0]} env steps, with exploration at its final value."
        ),
        **found,
    )


def spread(settings: Settings, calls: int) -> Iterable[int]:
    """Env steps of each call, in whole train intervals: in all the same for any `calls`."""
    rounds = -(-settings.env_steps // settings.train_interval)
    edges = [rounds * i // calls for i in range(calls + 1)]
    return [(b - a) * settings.train_interval for a, b in itertools.pairwise(edges)]


def counts(agent: Any) -> tuple[int, int]:
    """Env steps and updates that the agent itself has counted."""
    return int(agent.env_steps.numpy()), int(agent.policy.updates.numpy())


def on_host(metrics: Any) -> Any:
    """The sums of a call as NumPy values, which waits until they are there."""
    import numpy as np

    return type(metrics)(*(np.asarray(value) for value in metrics))


def make_digests(agent: Any, row: dict[str, float]) -> dict[str, str]:
    """A checksum of each part of a run's state, and of its figures, to the last bit."""
    replay = agent.replay
    parts = {
        "weights": agent.policy.online.variables,
        "target": agent.policy.target.variables,
        "optimizer": agent.policy.optimizer.variables,
        "buffer": [*replay.columns, replay.last, replay.cursor, replay.size],
        "counters": [agent.random_stream.counter, agent.env_steps, agent.episodes],
    }
    found = {name: digest(bytes_of(variable) for variable in part) for name, part in parts.items()}
    return {**found, "metrics": digest([repr(sorted(row.items())).encode()])}


def digest(pieces: Iterable[bytes]) -> str:
    """SHA-256 over pieces of bytes."""
    total = hashlib.sha256()
    for piece in pieces:
        total.update(piece)
    return total.hexdigest()


def bytes_of(variable: Any) -> bytes:
    """The bytes of a TensorFlow or Keras variable."""
    import numpy as np

    return np.asarray(variable).tobytes()


def peak_memory_mib() -> float | None:
    """Most memory that this process has held; None where the platform does not say."""
    try:
        import resource
    except ModuleNotFoundError:  # Windows
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 2**20 if sys.platform == "darwin" else peak / 2**10


def measure_updates(settings: Settings, updates: int) -> dict[str, Any]:
    """Time the second call of the compiled loop of updates, and return the result."""
    from agent.factory import make_agent
    from benchmarks.optimisations import fused_updates
    from environment.cartpole import CartPole

    agent = make_agent(make_config(settings), CartPole.spec)
    fill(agent, settings)
    begin = time.perf_counter()
    program = fused_updates(agent, True)
    program(0)
    compile_seconds = time.perf_counter() - begin
    program(updates)
    before = counts(agent)[1]
    with Span() as span:
        loss = program(updates)
    counted = counts(agent)[1] - before
    return make_result(
        name="Kytolly fused update",
        versions=versions("tensorflow", "keras", "numpy"),
        env_steps=None,
        updates=counted,
        span=span,
        compile_seconds=compile_seconds,
        microseconds_per_update=span.wall_seconds / counted * 1e6,
        cpu_microseconds_per_update=span.cpu_seconds / counted * 1e6,
        loss_last=loss,
        peak_memory_mib=peak_memory_mib(),
        settings={name: getattr(settings, name) for name in UPDATE_FIELDS},
        note=(
            "No environment. Random rows drawn and gathered anew for each update, and, which the "
            f"competitor leaves out, a target copy every {settings.target_sync_updates} updates. "
            "Timed: the second call of the compiled loop, which goes on from the first."
        ),
    )


def fill(agent: Any, settings: Settings) -> None:
    """Fill the buffer with rows to compute on; only their shapes matter for the time."""
    import numpy as np

    from policy.batch import Transition

    rng, rows = np.random.default_rng(settings.seed), settings.buffer
    alive = rng.random(rows) < 0.95
    columns = Transition(
        obs=rng.normal(size=(rows, 4)).astype(np.float32),
        action=rng.integers(0, 2, rows, dtype=np.int32),
        reward=np.ones(rows, np.float32),
        discount=np.where(alive, settings.gamma, 0.0).astype(np.float32),
        next_obs=rng.normal(size=(rows, 4)).astype(np.float32),
    )
    agent.observe(columns, ~alive)


# --- tables --------------------------------------------------------------------------------


def environments(options: suite.Options, watch: suite.Watch) -> suite.Report:
    """The device loop by the number of environment copies."""
    watch.begin(options.repeats * len(COPIES))
    rows, data = [], []
    for copies in COPIES:
        steps = options.count(max(50_000, 1_000 * copies))
        arguments = ("--env-steps", steps, "--num-envs", str(copies), "--train-interval",
                     str(10 * copies), "--buffer", "100000")  # fmt: skip
        runs = []
        for turn in range(options.repeats):
            with watch.turn(f"{copies} copies, {turn + 1} of {options.repeats}"):
                runs.append(suite.child("benchmarks.dqn", arguments))
        figures = suite.medians(runs, "env_steps")
        peaks = [run["peak_memory_mib"] for run in runs if run["peak_memory_mib"] is not None]
        peak = statistics.median(peaks) if peaks else None
        memory = "unknown" if peak is None else f"{peak:,.0f}"
        shown = {"copies": f"{copies:,}", **suite.cells(figures, "env_steps"), "peak MiB": memory}
        rows.append(shown)
        data.append({"num_envs": copies, **figures, "peak_memory_mib": peak, "runs": runs})
    notes = [
        f"Median of {options.repeats} runs, all cores free. One update of 128 rows every 10 steps "
        "of all copies, buffer 100,000. Memory is the whole process's, TensorFlow included."
    ]
    title = "The device loop on CartPole-v1, by environment copies stepped together"
    texts = [list(row.values()) for row in rows]
    return suite.Report(title, list(rows[0]), texts, notes, {"rows": data})


def trained_twice(loop: str, env_steps: str) -> tuple[bool, bool]:
    """Whether two runs of `kytolly train` leave the same last checkpoint and the same metrics."""
    from callback.csv_log import NAME, read_rows

    found = []
    with tempfile.TemporaryDirectory(prefix="kytolly-twice-") as folder:
        for number in ("1", "2"):
            run_dir = Path(folder) / number
            quarter = str(max(1, int(env_steps) // 4))
            flags = ("--loop", loop, "--total-env-steps", env_steps, "--seed", "1",
                     "--log-interval-env-steps", quarter,
                     "--evaluation-interval-env-steps", quarter)  # fmt: skip
            where = ("--env", "CartPole-v1", "--log-dir", str(run_dir), "--json")
            suite.child("cli", ("train", "dqn", *where, *flags))
            files = (run_dir / "checkpoints").glob("ckpt-*.data-*")
            last = max(files, key=lambda path: int(path.name.split("-")[1].split(".")[0]))
            rows = [
                {name: value for name, value in row.items() if "second" not in name}
                for row in read_rows(run_dir / NAME)
            ]
            found.append((last.name, last.read_bytes(), rows))
    (name, state, metrics), (other_name, other_state, other_metrics) = found
    return (name, state) == (other_name, other_state), metrics == other_metrics


def determinism(options: suite.Options, watch: suite.Watch) -> suite.Report:
    """Whether two runs of one seed end with the same bits."""
    base = ("--digests", "--env-steps", options.count(20_000))
    watch.begin(2 * (2 + len(SECOND_RUNS)))
    rows, data, parts = [], [], []
    for loop in ("device", "host"):
        with watch.turn(f"{loop} loop"):
            first = suite.child("benchmarks.dqn", (*base, "--loop", loop, "--seed", "1"))
        for name, arguments in SECOND_RUNS.items():
            with watch.turn(f"{loop} loop, {name}"):
                second = suite.child("benchmarks.dqn", (*base, "--loop", loop, *arguments))
            ones, others = first["digests"], second["digests"]
            equal = {part: ones[part] == others[part] for part in ones}
            parts = list(equal)
            words = ["equal" if same else "differs" for same in equal.values()]
            rows.append([f"{loop} loop: {name}", *words])
            data.append({"loop": loop, "second_run": name, "equal": equal, "runs": [first, second]})
        with watch.turn(f"{loop} loop, kytolly train twice"):
            state, metrics = trained_twice(loop, options.count(20_000))
        equal = {part: metrics if part == "metrics" else state for part in parts}
        name = "kytolly train, the same seed"
        rows.append(
            [f"{loop} loop: {name}", *("equal" if e else "differs" for e in equal.values())]
        )
        data.append({"loop": loop, "second_run": name, "equal": equal})
    notes = [
        "A run with seed 1 against a second run in another process, to the last bit. Metrics are "
        "the averages that training logs, not its times. Of kytolly train the last checkpoint "
        "file, which holds all parts, and metrics.csv are compared."
    ]
    title = "Two runs of DQN on CartPole-v1"
    return suite.Report(title, ["second run", *parts], rows, notes, {"rows": data})


# --- the program ---------------------------------------------------------------------------


def main(argv: list[str] | None = None) -> int:
    """Run the program."""
    parser = make_parser("dqn", __doc__, env_steps=200_000)
    parser.prog = "python -m benchmarks.dqn"
    parser.add_argument("--loop", choices=("device", "host"), default="device", help="which loop")
    parser.add_argument("--calls", type=int, default=1, help="calls that the timed steps take")
    parser.add_argument(
        "--digests", action="store_true", help="add checksums of all that the run computed"
    )
    parser.add_argument("--update-only", action="store_true", help="time learning steps alone")
    parser.add_argument("--updates", type=int, default=20_000, help="of --update-only")
    settings, arguments = parse(parser, argv)
    check(settings, arguments)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    from gpu_optimize import configure_gpu_optimization

    configure_gpu_optimization(compile_cache=False, verbose=False)
    if arguments.update_only:
        print_result(measure_updates(settings, arguments.updates))
    else:
        wanted = (settings, arguments.loop, arguments.calls, arguments.digests)
        print_result(measure_loop(*wanted))
    return 0


def check(settings: Settings, arguments: argparse.Namespace) -> None:
    """Refuse what would measure nothing."""
    rounds = -(-settings.env_steps // settings.train_interval)
    if not 1 <= arguments.calls <= rounds:
        refuse(f"--calls is {arguments.calls}, expected 1 to {rounds}: a call is whole intervals.")
    if arguments.updates < 1:
        refuse("--updates must be at least 1.")


if __name__ == "__main__":
    sys.exit(main())
