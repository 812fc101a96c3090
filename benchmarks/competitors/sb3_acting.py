"""Stable-Baselines3's `predict`, one observation at a time, of a model that was loaded.

`--make` writes a model of untrained weights; without it one is timed. The weights do not matter.
"""

from __future__ import annotations

import sys
import time

from kytolly.benchmarks.competitors import acting_program, acting_result
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
    moments = (start, imported, time.perf_counter())
    packages = ["stable-baselines3", "torch", "numpy"]
    return acting_result(
        lambda obs: model.predict(obs, deterministic=True), count, moments, packages
    )


def main(argv: list[str] | None = None) -> int:
    """Run the program."""
    return acting_program(__doc__, make_model, run, argv)


if __name__ == "__main__":
    sys.exit(main())
