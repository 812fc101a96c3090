"""The PQN of rejax (PyPI) on gymnax's Breakout-MinAtar: the whole loop in one JAX program.

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
from kytolly.benchmarks.competitors.settings import PQNSettings

ENV = "Breakout-MinAtar"


def make_network(linen: Any, jnp: Any, settings: PQNSettings) -> Any:
    """The class of the network that PQN has for MinAtar, as rejax expects one."""

    class GridQNetwork(linen.Module):
        """Action values from a convolution and dense layers, each with a layer norm."""

        action_dim: int

        @linen.compact
        def __call__(self, obs: Any) -> Any:
            features = linen.Conv(16, (3, 3), padding="VALID")(obs)
            features = linen.relu(linen.LayerNorm()(features))
            features = features.reshape((*features.shape[:-3], -1))
            for units in settings.hidden:
                features = linen.relu(linen.LayerNorm()(linen.Dense(units)(features)))
            return linen.Dense(self.action_dim)(features)

        def take(self, obs: Any, action: Any) -> Any:
            """Values of the actions."""
            return jnp.take_along_axis(self(obs), action[:, None], axis=1).squeeze(1)

    return GridQNetwork


def run(settings: PQNSettings) -> dict[str, Any]:
    """Train, time the second half, and return the result."""
    _, rejax, networks, linen, jnp = require(
        "jax", "rejax", "rejax.networks", "flax.linen", "jax.numpy"
    )
    env, env_params = make_env(ENV)
    policy = networks.EpsilonGreedyPolicy(make_network(linen, jnp, settings))
    algo = rejax.PQN.create(
        env=env,
        env_params=env_params,
        num_envs=settings.num_envs,
        num_steps=settings.num_steps,
        num_epochs=settings.epochs,
        num_minibatches=settings.minibatches,
        learning_rate=settings.learning_rate,
        gamma=settings.gamma,
        td_lambda=settings.td_lambda,
        max_grad_norm=settings.max_grad_norm,
        eps_start=1.0,
        eps_end=settings.epsilon_final,
        exploration_fraction=0.1,
        normalize_observations=False,
        normalize_rewards=False,
        total_timesteps=settings.whole_env_steps,
        eval_freq=settings.whole_env_steps,
        skip_initial_evaluation=True,
    )
    agent = policy(action_dim=env.action_space(env_params).n)
    algo = algo.replace(agent=agent, eval_callback=lambda algo, state, rng: ())
    before, after, span, compile_seconds = time_two_calls(algo, settings.seed)
    return make_result(
        name="rejax PQN",
        versions=versions("rejax", "jax", "jaxlib", "gymnax", "flax", "optax"),
        env_steps=int(after.global_step) - int(before.global_step),
        updates=int(after.q_ts.step) - int(before.q_ts.step),
        span=span,
        compile_seconds=compile_seconds,
        settings=dataclasses.asdict(settings),
        note=(
            "Off: evaluation (its callback returns nothing), normalization of observations and "
            "rewards (as by default). The network is given to it: rejax has dense layers only. "
            "Its own: Adam, gradients clipped one by one, a second forward pass in every env "
            "step, the time limit of 1,000 env steps counts as a termination. Timed: the second "
            "call of the compiled loop, which goes on from the first."
        ),
    )


def main(argv: list[str] | None = None) -> int:
    """Run the program."""
    parser = make_parser("rejax_pqn", __doc__, kind=PQNSettings, env_steps=200_000)
    settings, _ = parse(parser, argv)
    print_result(run(settings))
    return 0


if __name__ == "__main__":
    sys.exit(main())
