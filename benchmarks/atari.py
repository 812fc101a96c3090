"""This project's DQN on an Atari game in the host loop, measured as Stable-Baselines3's is.

Both preprocess in the usual way, learn with NatureCNN from 32 rows after every 4 env steps, and
play one environment::

    python -m kytolly.benchmarks.atari --env-steps 2000
    python -m kytolly.benchmarks.competitors.sb3_atari --env-steps 2000
"""

from __future__ import annotations

import dataclasses
import sys
from typing import Any

from kytolly.benchmarks.competitors import (
    ATARI,
    ATARI_GAME,
    make_parser,
    parse,
    print_result,
    usable_cores,
)
from kytolly.benchmarks.competitors.settings import Settings
from kytolly.benchmarks.dqn import SETTLING_UPDATES, make_config
from kytolly.benchmarks.loop_timing import Work, configure_without_cache, measure
from kytolly.benchmarks.suite import Contender, Options, Report, Watch, comparison

NEEDS = ("torch", "stable_baselines3", "cv2", "ale_py")


def atari(options: Options, watch: Watch) -> Report:
    """Compare the host loops on Pong."""
    steps = ("--env-steps", options.count(2_000))
    threads = dict.fromkeys(("1", str(usable_cores())))
    module = "kytolly.benchmarks.competitors.sb3_atari"
    others = [
        Contender(f"Stable-Baselines3, threads: {n}", module, (*steps, "--threads", n), NEEDS)
        for n in threads
    ]
    ours = Contender("Kytolly", "kytolly.benchmarks.atari", steps, ("ale_py",))
    title = f"DQN on {ATARI_GAME}, NatureCNN, batch 32, one update per 4 env steps, one environment"
    return comparison(title, "env_steps", [ours, *others], options, watch, pinned=False)


def measure_loop(settings: Settings) -> dict[str, Any]:
    """Train, time the steady state, and return the result."""
    cfg = dataclasses.replace(make_config(settings), network="cnn", learning_rate_final=None)
    untimed = settings.warmup_env_steps + SETTLING_UPDATES * settings.train_interval
    return measure(Work("DQN", settings, cfg, untimed, env=ATARI_GAME), "host", 1, False)


def main(argv: list[str] | None = None) -> int:
    """Run the program."""
    parser = make_parser("atari", __doc__, env_steps=2_000)
    parser.set_defaults(**ATARI)
    settings, _ = parse(parser, argv)
    configure_without_cache()
    print_result(measure_loop(settings))
    return 0


if __name__ == "__main__":
    sys.exit(main())
