"""Stable-Baselines3's DQN on an Atari game, with its own AtariWrapper and NatureCNN."""

from __future__ import annotations

import sys
from typing import Any

from kytolly.benchmarks.competitors import ATARI, ATARI_GAME, make_parser, parse, print_result
from kytolly.benchmarks.competitors.packages import require
from kytolly.benchmarks.competitors.sb3_dqn import dqn_arguments, run
from kytolly.benchmarks.competitors.settings import Settings

NOTE = "AtariWrapper, Monitor and VecFrameStack as in its zoo, one environment"


def make_model(settings: Settings, total_env_steps: int) -> Any:
    """Their DQN with the given settings, exploration at its final value after the warm-up."""
    gymnasium, ale_py, _ = require("gymnasium", "ale_py", "cv2")
    from stable_baselines3 import DQN
    from stable_baselines3.common.env_util import make_atari_env
    from stable_baselines3.common.vec_env import VecFrameStack

    gymnasium.register_envs(ale_py)
    kwargs = {"disable_env_checker": True, "frameskip": 1}
    env = make_atari_env(ATARI_GAME, settings.num_envs, env_kwargs=kwargs)
    return DQN("CnnPolicy", VecFrameStack(env, 4), **dqn_arguments(settings, total_env_steps))


def main(argv: list[str] | None = None) -> int:
    """Run the program."""
    parser = make_parser("sb3_atari", __doc__, env_steps=2_000)
    parser.add_argument("--threads", type=int, default=1, help="PyTorch threads per operation")
    parser.set_defaults(**ATARI)
    settings, arguments = parse(parser, argv)
    print_result(run(settings, arguments.threads, make_model, NOTE))
    return 0


if __name__ == "__main__":
    sys.exit(main())
