"""This project's PQN on MinAtar's Breakout, measured the way the competitors are.

The device loop as `kytolly train` uses it, without evaluation, logging and checkpoints::

    python -m kytolly.benchmarks.pqn --env-steps 400000

The rules are those of gymnax: three actions, none of them sticky, and 1,000 env steps at most.
"""

from __future__ import annotations

import sys
from typing import Any

from kytolly.benchmarks.competitors import make_parser, parse, print_result
from kytolly.benchmarks.competitors.settings import PQNSettings
from kytolly.benchmarks.loop_timing import (
    Work,
    add_loop_flags,
    check_calls,
    configure_without_cache,
    measure,
)

ENV = "MinAtar/Breakout-v1"
RULES = {"sticky_actions": 0.0, "max_episode_steps": 1_000}
SETTLING_ROLLOUTS = 5  # the first calls allocate


def make_config(settings: PQNSettings) -> Any:
    """The `PQNConfig` that does what the competitors are asked to do."""
    from kytolly.config.pqn import PQNConfig

    return PQNConfig(
        env_kwargs=RULES,
        total_env_steps=settings.whole_env_steps,
        num_envs=settings.num_envs,
        rollout_steps=settings.num_steps,
        epochs=settings.epochs,
        num_minibatches=settings.minibatches,
        hidden_units=settings.hidden,
        learning_rate=settings.learning_rate,
        learning_rate_final=None,
        gamma=settings.gamma,
        td_lambda=settings.td_lambda,
        max_grad_norm=settings.max_grad_norm,
        epsilon_final=settings.epsilon_final,
        exploration_env_steps=max(1, settings.whole_env_steps // 10),
        normalize_rewards=False,
        seed=settings.seed,
    )


def main(argv: list[str] | None = None) -> int:
    """Run the program."""
    parser = make_parser("pqn", __doc__, kind=PQNSettings, env_steps=400_000)
    parser.prog = "python -m kytolly.benchmarks.pqn"
    add_loop_flags(parser)
    settings, arguments = parse(parser, argv)
    check_calls(arguments.calls, settings)
    configure_without_cache()
    untimed = SETTLING_ROLLOUTS * settings.env_steps_per_iteration
    work = Work("PQN", settings, make_config(settings), untimed, env=ENV)
    print_result(measure(work, arguments.loop, arguments.calls, arguments.digests))
    return 0


if __name__ == "__main__":
    sys.exit(main())
