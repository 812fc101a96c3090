"""Stable-Baselines3's `predict`, one observation at a time, of a model that was loaded.

`--make` writes a model of untrained weights; without it one is timed. The weights do not matter.
"""

from __future__ import annotations

import argparse
import sys
import time

from kytolly.benchmarks.competitors import (
    print_result,
    random_observations,
    time_each,
    versions,
)
from kytolly.benchmarks.competitors.packages import require

UNITS = [64, 64]


def make_model(algorithm: str, path: str) -> None:
    """Write a model for CartPole-v1 to a zip file."""
    (library,) = require("stable_baselines3")
    kind = {"dqn": library.DQN, "ppo": library.PPO}[algorithm]
    kind("MlpPolicy", "CartPole-v1", policy_kwargs={"net_arch": UNITS}, device="cpu").save(path)


def run(algorithm: str, path: str, count: int) -> dict[str, object]:
    """Load the model, then time `count` actions; returns the result."""
    start = time.perf_counter()
    torch, library = require("torch", "stable_baselines3")
    torch.set_num_threads(1)
    kind = {"dqn": library.DQN, "ppo": library.PPO}[algorithm]
    imported = time.perf_counter()
    model = kind.load(path, device="cpu")
    loaded = time.perf_counter()
    observations = random_observations()
    model.predict(observations[0], deterministic=True)
    acted = time.perf_counter()
    span = time_each(lambda obs: model.predict(obs, deterministic=True), observations, count)
    return {
        "versions": versions("stable-baselines3", "torch", "numpy"),
        "observations": count,
        "wall_seconds": span.wall_seconds,
        "cpu_seconds": span.cpu_seconds,
        "load_seconds": loaded - imported,
        "start_seconds": acted - start,
    }


def main(argv: list[str] | None = None) -> int:
    """Run the program."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("algorithm", choices=("dqn", "ppo"))
    parser.add_argument("path", help="file of the model")
    parser.add_argument("--make", action="store_true", help="write the model")
    parser.add_argument("--observations", type=int, default=20_000, help="to act on, one by one")
    args = parser.parse_args(argv)
    if args.make:
        make_model(args.algorithm, args.path)
        print_result({"path": args.path})
    else:
        print_result(run(args.algorithm, args.path, args.observations))
    return 0


if __name__ == "__main__":
    sys.exit(main())
