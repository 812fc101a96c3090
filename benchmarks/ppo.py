"""This project's PPO on CartPole-v1, measured the way the competitors are.

The loops as `kytolly train` uses them, without evaluation, logging and checkpoints::

    python -m kytolly.benchmarks.ppo --env-steps 1000000
    python -m kytolly.benchmarks.ppo --num-envs 2048 --num-steps 16 --minibatches 32
    python -m kytolly.benchmarks.ppo --loop host --num-envs 8 --env-steps 50000

The clock starts when the program is compiled and `SETTLING_ROLLOUTS` rollouts with their updates
are over.
"""

from __future__ import annotations

import sys
from typing import Any

from kytolly.benchmarks.competitors import make_parser, parse, print_result
from kytolly.benchmarks.competitors.settings import PPOSettings
from kytolly.benchmarks.loop_timing import (
    Work,
    add_loop_flags,
    check_calls,
    configure_without_cache,
    measure,
)

SETTLING_ROLLOUTS = 5  # as for Stable-Baselines3; the first calls allocate


def make_config(settings: PPOSettings) -> Any:
    """The `PPOConfig` that does what the competitors are asked to do."""
    from kytolly.config.ppo import PPOConfig

    return PPOConfig(
        total_env_steps=settings.whole_env_steps,
        num_envs=settings.num_envs,
        rollout_steps=settings.num_steps,
        epochs=settings.epochs,
        num_minibatches=settings.minibatches,
        hidden_units=settings.hidden,
        activation="tanh" if settings.activation == "tanh" else "relu",
        learning_rate=settings.learning_rate,
        gamma=settings.gamma,
        gae_lambda=settings.gae_lambda,
        clip_range=settings.clip,
        entropy_coef=settings.entropy_coef,
        value_coef=settings.value_coef,
        max_grad_norm=settings.max_grad_norm,
        seed=settings.seed,
    )


def measure_loop(settings: PPOSettings, kind: str, calls: int, digests: bool) -> dict[str, Any]:
    """Train, time the steady state, and return the result.

    Args:
        settings: What to run.
        kind: "device" or "host".
        calls: Calls of the program that the timed env steps are spread over.
        digests: Add checksums of everything that the run computed.
    """
    work = Work(
        name="PPO",
        settings=settings,
        cfg=make_config(settings),
        untimed=SETTLING_ROLLOUTS * settings.env_steps_per_iteration,
    )
    return measure(work, kind, calls, digests)


def main(argv: list[str] | None = None) -> int:
    """Run the program."""
    parser = make_parser("ppo", __doc__, kind=PPOSettings, env_steps=1_000_000)
    parser.prog = "python -m kytolly.benchmarks.ppo"
    add_loop_flags(parser)
    settings, arguments = parse(parser, argv)
    check_calls(arguments.calls, settings)
    configure_without_cache()
    print_result(measure_loop(settings, arguments.loop, arguments.calls, arguments.digests))
    return 0


if __name__ == "__main__":
    sys.exit(main())
