"""The PPO of rejax (PyPI) on gymnax's CartPole-v1: the whole loop in one JAX program.

The compiled function is called twice. The second call goes on from where the first one ended and
is timed, so that it consists of nothing but rollouts and updates.
"""

from __future__ import annotations

import dataclasses
import sys
from typing import Any

from kytolly.benchmarks.competitors import make_parser, make_result, parse, print_result, versions
from kytolly.benchmarks.competitors.packages import require
from kytolly.benchmarks.competitors.rejax_dqn import make_env, time_two_calls
from kytolly.benchmarks.competitors.settings import PPOSettings


def make_algorithm(rejax: Any, env: Any, env_params: Any, settings: PPOSettings) -> Any:
    """The PPO of rejax with the given settings, its evaluation switched off."""
    algo = rejax.PPO.create(
        env=env,
        env_params=env_params,
        agent_kwargs={
            "activation": settings.activation,
            "hidden_layer_sizes": settings.hidden,
        },
        num_envs=settings.num_envs,
        num_steps=settings.num_steps,
        num_epochs=settings.epochs,
        num_minibatches=settings.minibatches,
        learning_rate=settings.learning_rate,
        gamma=settings.gamma,
        gae_lambda=settings.gae_lambda,
        clip_eps=settings.clip,
        ent_coef=settings.entropy_coef,
        vf_coef=settings.value_coef,
        max_grad_norm=settings.max_grad_norm,
        normalize_observations=False,
        normalize_rewards=False,
        total_timesteps=settings.whole_env_steps,
        eval_freq=settings.whole_env_steps,
        skip_initial_evaluation=True,
    )
    return algo.replace(eval_callback=lambda algo, state, rng: ())


def run(settings: PPOSettings) -> dict[str, Any]:
    """Train, time the second half, and return the result."""
    _, rejax = require("jax", "rejax")
    env, env_params = make_env("CartPole-v1")
    algo = make_algorithm(rejax, env, env_params, settings)
    before, after, span, compile_seconds = time_two_calls(algo, settings.seed)
    return make_result(
        name="rejax PPO",
        versions=versions("rejax", "jax", "jaxlib", "gymnax", "flax", "optax"),
        env_steps=int(after.global_step) - int(before.global_step),
        updates=int(after.actor_ts.step) - int(before.actor_ts.step),
        span=span,
        compile_seconds=compile_seconds,
        settings=dataclasses.asdict(settings),
        note=(
            "Off: evaluation (its callback returns nothing), normalization of observations and "
            "rewards (as by default). Its own: policy and value have an optimizer each, gradients "
            "are clipped one by one, the value is clipped, the time limit counts as a "
            "termination. Timed: the second call of the compiled loop, which goes on from the "
            "first."
        ),
    )


def main(argv: list[str] | None = None) -> int:
    """Run the program."""
    parser = make_parser("rejax_ppo", __doc__, kind=PPOSettings, env_steps=200_000)
    settings, _ = parse(parser, argv)
    print_result(run(settings))
    return 0


if __name__ == "__main__":
    sys.exit(main())
