"""This project's loops, measured the way the competitors are: what `dqn` and `ppo` share.

The loops run as `kytolly train` uses them, without evaluation, logging and checkpoints. The clock
starts when the program is compiled and the first, untimed env steps are over.
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import importlib
import itertools
import os
import sys
import time
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from kytolly.benchmarks.competitors import (
    PPOSettings,
    Settings,
    Span,
    make_result,
    refuse,
    versions,
)

ENV = "CartPole-v1"


class Work(NamedTuple):
    """What one algorithm is asked to do.

    Attributes:
        name: Of the algorithm, for the reader.
        settings: What the command line says.
        cfg: The configuration that does it: `DQNConfig` or `PPOConfig`.
        interval: Env steps of one round; a call takes whole ones.
        untimed: Env steps before the clock starts.
        state: The variables of a trained agent that two equal runs share, by part.
        note: What is special about the timed stretch.
    """

    name: str
    settings: Settings | PPOSettings
    cfg: Any
    interval: int
    untimed: int
    state: Callable[[Any], dict[str, list[Any]]]
    note: str


def make_loop(cfg: Any, kind: str) -> Any:
    """The device or the host loop, with an agent of its own.

    Args:
        cfg: `DQNConfig` or `PPOConfig`.
        kind: "device" or "host".
    """
    import tensorflow as tf

    from kytolly.agent.factory import make_agent
    from kytolly.loop.world import choose_world

    device = "/GPU:0" if tf.config.list_physical_devices("GPU") else None
    world = choose_world(dataclasses.replace(cfg, loop=kind), ENV)
    with tf.device(device):
        return world.loop(make_agent(cfg, world.spec), device)


def measure(work: Work, kind: str, calls: int, digests: bool) -> dict[str, Any]:
    """Train, time the steady state, and return the result.

    Args:
        work: What to run.
        kind: "device" or "host".
        calls: Calls of the program that the timed env steps are spread over.
        digests: Add checksums of all that the run computed.
    """
    from kytolly.loop.metrics import averages

    importlib.import_module("loop.world")  # with all of TensorFlow, before the clock starts
    begin = time.perf_counter()
    loop = make_loop(work.cfg, kind)  # as for the competitors, drawing the weights is inside
    loop.run(0)
    compile_seconds = time.perf_counter() - begin
    agent = loop.agent
    on_host(loop.run(work.untimed))
    before = counts(agent)
    with Span() as span:
        parts = [on_host(loop.run(steps)) for steps in spread(work, calls)]
    after = counts(agent)
    sums = parts[0]
    for part in parts[1:]:
        sums = sums.plus(part)
    loop.close()
    found = {"digests": make_digests(work, agent, averages(sums, agent))} if digests else {}
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
            "episodes": int(sums.episodes),
        },
        note=(
            "Off: evaluation, logging, checkpoints, the compile cache. Timed after "
            f"{before[0]} env steps{work.note}."
        ),
        **found,
    )


def spread(work: Work, calls: int) -> list[int]:
    """Env steps of each call, in whole rounds: in all the same for any `calls`."""
    rounds = -(-work.settings.env_steps // work.interval)
    edges = [rounds * i // calls for i in range(calls + 1)]
    return [(b - a) * work.interval for a, b in itertools.pairwise(edges)]


def counts(agent: Any) -> tuple[int, int]:
    """Env steps and updates that the agent itself has counted."""
    return int(agent.env_steps.numpy()), int(agent.policy.updates.numpy())


def on_host(metrics: Any) -> Any:
    """The sums of a call as NumPy values, which waits until they are there."""
    import numpy as np

    return type(metrics)(*(np.asarray(value) for value in metrics))


def make_digests(work: Work, agent: Any, row: dict[str, float]) -> dict[str, str]:
    """A checksum of each part of a run's state, and of its figures, to the last bit."""
    parts = work.state(agent)
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


# --- the programs' command line ------------------------------------------------------------


def add_loop_flags(parser: argparse.ArgumentParser) -> None:
    """The flags that say how a loop is measured, beside what it is asked to do."""
    parser.add_argument("--loop", choices=("device", "host"), default="device", help="which loop")
    parser.add_argument("--calls", type=int, default=1, help="calls that the timed steps take")
    parser.add_argument(
        "--digests", action="store_true", help="add checksums of all that the run computed"
    )


def check_calls(calls: int, env_steps: int, interval: int) -> None:
    """Refuse calls of which some would measure nothing."""
    rounds = -(-env_steps // interval)
    if not 1 <= calls <= rounds:
        refuse(f"--calls is {calls}, expected 1 to {rounds}: a call is whole rounds of {interval}.")


def configure_without_cache() -> None:
    """Set TensorFlow up as `kytolly train` does, but for the compile cache: compiling is timed."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    from kytolly.machine.configure import configure_gpu_optimization

    configure_gpu_optimization(compile_cache=False, verbose=False)
