"""This project's loops, measured the way the competitors are: what `dqn`, `ppo` and `pqn` share.

The loops run as `kytolly train` uses them, without evaluation, logging and checkpoints. The clock
starts when the program is compiled and the first, untimed env steps are over.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import hashlib
import itertools
import os
import sys
import time
from collections.abc import Iterable
from typing import Any, NamedTuple

from kytolly.benchmarks.competitors import Span, make_result, refuse, versions
from kytolly.benchmarks.competitors.settings import AnySettings

ENV = "CartPole-v1"


class Work(NamedTuple):
    """The work of one algorithm.

    Attributes:
        name: The algorithm, for the reader.
        settings: What the command line says.
        cfg: The configuration that does it: `DQNConfig` or `PPOConfig`.
        untimed: Env steps before the clock starts.
        note: What is special about the timed stretch.
        env: Gymnasium id.
    """

    name: str
    settings: AnySettings
    cfg: Any
    untimed: int
    note: str = ""
    env: str = ENV


def measure(work: Work, kind: str, calls: int, digests: bool) -> dict[str, Any]:
    """Train, time the steady state, and return the result.

    Args:
        work: What to run.
        kind: "device" or "host".
        calls: Calls of the program that the timed env steps are spread over.
        digests: Add checksums of everything that the run computed.
    """
    from kytolly.benchmarks import core  # loads TensorFlow before the clock starts

    begin = time.perf_counter()
    loop = core.make_loop(work.cfg, work.env, kind)  # draws the weights, as the others do
    loop.run(0)
    compile_seconds = time.perf_counter() - begin
    agent = loop.agent
    core.fetch(loop.run(work.untimed))
    before = counts(agent)
    with Span() as span:
        parts = [core.fetch(loop.run(steps)) for steps in steps_per_call(work.settings, calls)]
    after = counts(agent)
    metrics = functools.reduce(lambda sums, part: sums.plus(part), parts)
    loop.close()
    return make_result(
        name=f"Kytolly {work.name}, {kind} loop",
        versions=versions("tensorflow", "keras", "numpy", "gymnasium"),
        env_steps=after[0] - before[0],
        updates=after[1] - before[1],
        span=span,
        compile_seconds=compile_seconds,
        peak_memory_mib=peak_memory_mib(),
        settings={
            **dataclasses.asdict(work.settings),
            "calls": calls,
            "episodes": int(metrics.episodes),
        },
        note=(
            "Off: evaluation, logging, checkpoints, the compile cache. Timed after "
            f"{before[0]} env steps{work.note}."
        ),
        **({"digests": make_digests(agent, metrics)} if digests else {}),
    )


def steps_per_call(settings: AnySettings, calls: int) -> list[int]:
    """Env steps of each call, in whole iterations: the same sum for any `calls`."""
    size = settings.env_steps_per_iteration
    iterations = -(-settings.env_steps // size)
    edges = [iterations * i // calls for i in range(calls + 1)]
    return [(b - a) * size for a, b in itertools.pairwise(edges)]


def counts(agent: Any) -> tuple[int, int]:
    """Env steps and updates that the agent itself has counted."""
    return int(agent.env_steps.numpy()), int(agent.policy.updates.numpy())


def make_digests(agent: Any, metrics: Any) -> dict[str, str]:
    """Checksums of a run's state by part, and of its averaged metrics, to the last bit."""
    from kytolly.benchmarks import core

    parts = core.state_by_part(agent)
    digests = {
        name: digest(bytes_of(variable) for variable in part) for name, part in parts.items()
    }
    row = sorted(core.metric_averages(metrics, agent).items())
    return {**digests, "metrics": digest([repr(row).encode()])}


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
    """Peak memory of this process in MiB; None where the platform does not say."""
    try:
        import resource
    except ModuleNotFoundError:  # Windows
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 2**20 if sys.platform == "darwin" else peak / 2**10


# --- the programs' command line ------------------------------------------------------------


def add_loop_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags that say how a loop is measured."""
    parser.add_argument(
        "--loop", choices=("device", "host"), default="device", help="loop to measure"
    )
    parser.add_argument(
        "--calls", type=int, default=1, help="calls of the program for the timed env steps"
    )
    parser.add_argument(
        "--digests", action="store_true", help="add checksums of everything that the run computed"
    )


def check_calls(calls: int, settings: AnySettings) -> None:
    """Refuse calls of which some would measure nothing."""
    size = settings.env_steps_per_iteration
    iterations = -(-settings.env_steps // size)
    if not 1 <= calls <= iterations:
        refuse(
            f"--calls is {calls}, expected 1 to {iterations}: a call is whole iterations of "
            f"{size} env steps. Lower --calls or raise --env-steps."
        )


def configure_without_cache() -> None:
    """Set TensorFlow up as `kytolly train` does, but for the compile cache: compiling is timed."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    from kytolly.machine.configure import configure_gpu_optimization

    configure_gpu_optimization(compile_cache=False, verbose=False)
