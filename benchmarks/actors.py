"""Environments in Ray actors against processes of this machine, and seeds by a local Ray.

The tables `actors`, `actors-bytes` and `cluster`.
"""

from __future__ import annotations

import contextlib
import importlib.util
import itertools
import statistics
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

from kytolly.benchmarks import suite
from kytolly.benchmarks.seeds import TRAIN
from kytolly.machine.hardware import usable_cores

SLEEP_SECONDS = 1e-3
NUM_ENVS = 8
ACTORS = 2
STEPS = 6_400
SEEDS = 10
BLOCKS = (32, 4_096)  # env steps
GIGABIT = 125e6  # bytes a second
# Shape and dtype of an observation, bytes of an action, and of a network for it.
KINDS = {
    "CartPole-v1": ((4,), np.float32, (64, 64), 2),
    "LunarLander-v3": ((8,), np.float32, (64, 64), 4),
    "ALE/Pong-v5": ((84, 84, 4), np.uint8, None, 6),
}
NATURE_CNN_WEIGHTS = 1_684_128  # without the last layer, of 512 inputs


class SleepingCartPole(gymnasium.Wrapper):
    """CartPole whose steps wait as for a simulator elsewhere."""

    def __init__(self) -> None:
        super().__init__(gymnasium.make("CartPole-v1"))

    def step(self, action: int) -> tuple:
        """Step after a while."""
        time.sleep(SLEEP_SECONDS)
        return self.env.step(action)


# Each environment in a process, and environments in actors, where they step one after the other,
# or at the same time in processes or threads.
SIDES = {
    "async_envs": {"async_envs": True},
    f"{ACTORS} actors": {"actors": ACTORS},
    f"{ACTORS} actors, async_envs": {"actors": ACTORS, "async_envs": True},
    f"{ACTORS} actors, env_threads": {"actors": ACTORS, "env_threads": True},
}


def actors_table(options: suite.Options, watch: suite.Watch) -> suite.Report:
    """Time DQN's host loop with each environment in a process, and with environments in actors.

    All sides learn the same. They take turns.
    """
    from kytolly.machine.cluster import joined

    steps, repeats = int(options.count(STEPS)), options.repeats
    cases: dict[str, Any] = {"CartPole-v1, 1 ms a step": SleepingCartPole}
    if importlib.util.find_spec("Box2D"):
        cases["LunarLander-v3"] = "LunarLander-v3"
    cases["Acrobot-v1"] = "Acrobot-v1"
    watch.begin(len(cases) * repeats)
    rows, data = [], {}
    with joined("ray", sum(settings.get("actors", 0) for settings in SIDES.values())):
        for name, env in cases.items():
            speeds: dict[str, list[float]] = {side: [] for side in SIDES}
            with contextlib.ExitStack() as stack:
                loops = {
                    side: stack.enter_context(one_loop(env, settings))
                    for side, settings in SIDES.items()
                }
                for _ in range(repeats):
                    with watch.turn(name):
                        for side, loop in loops.items():
                            began = time.perf_counter()
                            loop.run(steps)
                            speeds[side].append(steps / (time.perf_counter() - began))
            middle = {side: statistics.median(values) for side, values in speeds.items()}
            best = max(value for side, value in middle.items() if "actors" in side)
            data[name] = {**middle, "ratio": best / middle["async_envs"]}
            cells = [f"{value:,.0f}" for value in middle.values()]
            rows.append([name, *cells, f"{data[name]['ratio']:.2f}"])
    title = f"DQN's host loop, {NUM_ENVS} environments"
    columns = ["environment", *SIDES, "ratio"]
    notes = [
        f"Env steps per second, medians of {repeats} turns; {usable_cores()} cores. The ratio is "
        "the faster side with actors against the one without."
    ]
    return suite.Report(title, columns, rows, notes, data)


@contextlib.contextmanager
def one_loop(env: Any, settings: Mapping[str, Any]) -> Iterator[Any]:
    """A host loop past its first calls."""
    from kytolly.agent.make_agent import make_agent
    from kytolly.config.dqn import DQNConfig
    from kytolly.loop.env_runner import make_env_runner

    cfg = DQNConfig(num_envs=NUM_ENVS, loop="host", warmup_env_steps=500, **settings)
    runner = make_env_runner(cfg, env)
    try:
        with contextlib.closing(runner.loop(make_agent(cfg, runner.spec), None)) as loop:
            loop.run(1_600)
            yield loop
    finally:
        runner.close()


def actors_bytes_table(options: suite.Options, watch: suite.Watch) -> suite.Report:
    """Compute what actors and learner send: nothing is measured."""
    watch.begin(1)
    rows, data = [], {}
    for name, (shape, dtype, hidden, actions) in KINDS.items():
        obs = int(np.prod(shape)) * np.dtype(dtype).itemsize
        row = 2 * obs + 8 + 4 + 1 + 1  # both observations, action, reward, two flags
        if hidden is None:
            weights = 4 * (NATURE_CNN_WEIGHTS + 513 * actions)
        else:
            sizes = [int(np.prod(shape)), *hidden, actions]
            weights = 4 * sum((a + 1) * b for a, b in itertools.pairwise(sizes))
        most = [GIGABIT / (row + ACTORS * weights / block) for block in BLOCKS]
        data[name] = {"row": row, "weights": weights, "most": most}
        rows.append([name, f"{row:,}", f"{weights:,}", *(f"{value:,.0f}" for value in most)])
    columns = ["environment", "bytes of a row", "of the weights"]
    columns += [f"env steps/s, block {block:,}" for block in BLOCKS]
    notes = [
        f"A row is two observations, action, reward and two flags; each of {ACTORS} actors gets "
        f"the weights once a block of {' or '.join(map(str, BLOCKS))} env steps "
        "(`acting_interval_env_steps`)."
    ]
    return suite.Report(
        "What 1 Gbit/s between learner and actors carries", columns, rows, notes, data
    )


def cluster_table(options: suite.Options, watch: suite.Watch) -> suite.Report:
    """Time seeds without Ray and by a local Ray: each in a process, and in populations."""
    count = options.seeds or (2 if options.quick else SEEDS)
    flags = (*TRAIN, "--total-env-steps", options.count(20_000), "--seeds", f"0-{count - 1}")
    jobs = ("--jobs", str(usable_cores()))
    sides = {
        "apart": ("--apart", *jobs),
        "apart, on ray": ("--apart", "--on", "ray"),
        "together": jobs,
        "together, on ray": ("--on", "ray"),
    }
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    watch.begin(options.repeats * len(sides))
    with tempfile.TemporaryDirectory(prefix="kytolly-cluster-") as name:
        for turn in range(options.repeats):
            for side, words in sides.items():
                folder = Path(name) / f"{side.replace(', ', '-').replace(' ', '-')}-{turn}"
                with watch.turn(side):
                    began = time.perf_counter()
                    suite.run_module(
                        suite.COMMAND, (*flags, *words, "--log-dir", str(folder)), None, {}
                    )
                    seconds[side].append(time.perf_counter() - began)
    middle = {side: statistics.median(values) for side, values in seconds.items()}
    ratios = {how: middle[f"{how}, on ray"] / middle[how] for how in ("apart", "together")}
    rows = [[side, f"{value:.1f}"] for side, value in middle.items()]
    rows += [[f"ratio, {how}", f"{ratio:.2f}"] for how, ratio in ratios.items()]
    title = f"{count} seeds of PPO on CartPole, {usable_cores()} cores"
    notes = [f"Seconds of the whole command, Ray's start within; medians of {options.repeats}."]
    return suite.Report(title, ["side", "seconds"], rows, notes, {**seconds, "ratio": ratios})
