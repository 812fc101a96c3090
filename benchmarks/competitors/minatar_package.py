"""A game of the package `minatar` (PyPI), one environment with actions at random: env steps alone.

The package steps one environment in Python, so `--num-envs` is 1 whatever is given.
"""

from __future__ import annotations

import sys
from typing import Any

from kytolly.benchmarks.competitors import Span, make_result, print_result, versions
from kytolly.benchmarks.competitors.packages import require
from kytolly.benchmarks.competitors.settings import StepSettings, step_parser

NAMES = {"SpaceInvaders": "space_invaders"}


def run(settings: StepSettings) -> dict[str, Any]:
    """Step, and time it."""
    minatar, numpy = require("minatar", "numpy")
    name = NAMES.get(settings.game, settings.game.lower())
    env = minatar.Environment(name)
    env.seed(settings.seed)
    env.reset()
    rng, total = numpy.random.default_rng(settings.seed), 0
    with Span() as span:
        for action in rng.integers(6, size=settings.steps):
            _, ended = env.act(action)
            total += int(env.state()[0, 0, 0])
            if ended:
                env.reset()
    return make_result(
        name="minatar",
        versions=versions("minatar", "numpy"),
        env_steps=settings.steps,
        updates=0,
        span=span,
        compile_seconds=0.0,
        settings={**settings._asdict(), "num_envs": 1},
        note="One environment; its observation is made at every step.",
    )


def main(argv: list[str] | None = None) -> int:
    """Run the program."""
    print_result(run(step_parser("minatar_package", __doc__, argv)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
