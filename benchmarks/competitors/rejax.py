"""DQN, PPO and PQN of rejax (PyPI) on gymnax's games: the whole loop in one JAX program.

rejax's DQN has no train interval. One of its iterations takes one step in each of `num_envs`
environments and then makes `num_epochs` updates, so one update per 10 env steps means 10
environments here, whatever `--num-envs` says. That is to its advantage: ten environments stepped
together cost it less than one stepped ten times.

The compiled function is called twice. The first call fills DQN's buffer and passes its warm-up; the
second goes on from there and is timed, so that it consists of nothing but the steady state.
"""

from __future__ import annotations

import dataclasses
import operator
import sys
import time
from typing import TYPE_CHECKING, Any

from kytolly.benchmarks.program import (
    Program,
    Result,
    Span,
    make_result,
    require,
    run_programs,
    versions,
)
from kytolly.benchmarks.settings import ONE_AGENT, Agents, DQNSettings, PPOSettings, PQNSettings

if TYPE_CHECKING:
    import jax
    from flax import linen
    from gymnax.environments.environment import Environment, EnvParams
    from rejax.algos import Algorithm

TIMED = "Timed: the second call of the compiled loop, which goes on from the first."
OFF = (
    "Off: evaluation (its callback returns nothing), normalization of observations and rewards "
    "(as by default)."
)


def make_env(name: str) -> tuple[Environment, EnvParams]:
    """Make a gymnax environment whose `step` returns one `done`, and its parameters."""
    (gymnax,) = require("gymnax")
    env, env_params = gymnax.make(name)
    return one_done(env), env_params


def one_done(env: Environment) -> Environment:
    """A gymnax environment whose `step` returns one `done`, as competitors expect.

    gymnax 1.0 split `done` into `terminated` and `truncated`. It brings the adapter itself, except
    that it cannot be copied, which rejax does.
    """
    try:
        from gymnax.wrappers.compat import LegacyStepAPIWrapper
    except ModuleNotFoundError:  # gymnax before 1.0 needs none
        return env

    class OneDone(LegacyStepAPIWrapper):
        """The adapter. It holds no state, so it serves as its own copy."""

        def __deepcopy__(self, memo: dict[int, object]) -> OneDone:
            return self

    return OneDone(env)


def measure(
    name: str,
    algorithm: Algorithm,
    train_state: str,
    settings: DQNSettings | PPOSettings | PQNSettings,
    agents: Agents,
    note: str,
    **ran: int,
) -> Result:
    """Compile the whole loop without evaluation, call it twice, and time the second call.

    Args:
        name: Of the algorithm.
        algorithm: What `create` made.
        train_state: Attribute that holds the optimizer which counts the updates.
        settings: What was asked for.
        agents: How many of them train together, by `vmap`.
        note: What differs from what was asked for.
        ran: Settings that differ from what was asked for.
    """
    (jax,) = require("jax")
    jax.config.update("jax_enable_compilation_cache", False)
    algorithm = algorithm.replace(eval_callback=lambda algo, state, rng: ())

    def train_once(state: Any) -> Any:
        return algorithm.train(train_state=state)[0]

    key, init, train = jax.random.PRNGKey(settings.seed), algorithm.init_state, train_once
    if agents.agents > 1:
        key = jax.random.split(key, agents.agents)
        init, train = jax.vmap(init), jax.vmap(train)
    begin = time.perf_counter()
    state = jax.jit(init).lower(key).compile()(key)
    train = jax.jit(train).lower(state).compile()
    compile_seconds = time.perf_counter() - begin

    before = jax.block_until_ready(train(state))
    with Span() as span:
        after = jax.block_until_ready(train(before))
    updates = operator.attrgetter(f"{train_state}.step")
    return make_result(
        name=f"rejax {name}",
        versions=versions("rejax", "jax", "jaxlib", "gymnax", "flax", "optax"),
        env_steps=int((after.global_step - before.global_step).sum()),
        updates=int((updates(after) - updates(before)).sum()),
        span=span,
        compile_seconds=compile_seconds,
        settings={**dataclasses.asdict(settings), **ran, **dataclasses.asdict(agents)},
        note=f"{note} {TIMED}",
    )


def make_dqn(settings: DQNSettings) -> Algorithm:
    """Their DQN on CartPole."""
    _, rejax = require("jax", "rejax")
    env, env_params = make_env("CartPole-v1")
    num_envs = settings.train_interval
    # A multiple of the iteration, and enough that the first call passes the warm-up.
    steps = max(settings.env_steps, settings.warmup_env_steps + 10 * num_envs)
    steps += -steps % num_envs
    algorithm = rejax.DQN.create(
        env=env,
        env_params=env_params,
        agent_kwargs={"activation": "relu"},
        ddqn=False,
        num_envs=num_envs,
        num_epochs=1,
        batch_size=settings.batch_size,
        buffer_size=settings.buffer,
        fill_buffer=settings.warmup_env_steps,
        learning_rate=settings.learning_rate,
        gamma=settings.gamma,
        max_grad_norm=settings.max_grad_norm,
        target_update_freq=settings.target_sync_env_steps,
        polyak=0.0,
        eps_start=1.0,
        eps_end=settings.epsilon_final,
        exploration_fraction=settings.warmup_env_steps / steps,
        normalize_observations=False,
        normalize_rewards=False,
        total_timesteps=steps,
        eval_freq=steps,
        skip_initial_evaluation=True,
    )
    agent = algorithm.agent.clone(hidden_layer_sizes=settings.hidden)
    return algorithm.replace(agent=agent)


def run_dqn(settings: DQNSettings, agents: Agents = ONE_AGENT) -> Result:
    """DQN on CartPole."""
    algorithm, num_envs = make_dqn(settings), settings.train_interval
    note = (
        f"num_envs is {num_envs}, because rejax updates once per step of all environments and has "
        "no other train interval. Off: evaluation, normalization, double Q. Its own: squared loss, "
        "gradients clipped one by one, sampling without replacement."
    )
    ran = {"num_envs": num_envs, "num_epochs": 1}
    return measure("DQN", algorithm, "q_ts", settings, agents, note, **ran)


def rollout_arguments(settings: PPOSettings | PQNSettings) -> dict[str, object]:
    """The arguments of `create` that PPO and PQN share."""
    return {
        "num_envs": settings.num_envs,
        "num_steps": settings.num_steps,
        "num_epochs": settings.epochs,
        "num_minibatches": settings.minibatches,
        "learning_rate": settings.learning_rate,
        "gamma": settings.gamma,
        "max_grad_norm": settings.max_grad_norm,
        "normalize_observations": False,
        "normalize_rewards": False,
        "total_timesteps": settings.whole_env_steps,
        "eval_freq": settings.whole_env_steps,
        "skip_initial_evaluation": True,
    }


def make_ppo(settings: PPOSettings) -> Algorithm:
    """Their PPO on CartPole."""
    _, rejax = require("jax", "rejax")
    env, env_params = make_env("CartPole-v1")
    network = {"activation": settings.activation, "hidden_layer_sizes": settings.hidden}
    return rejax.PPO.create(
        env=env,
        env_params=env_params,
        agent_kwargs=network,
        gae_lambda=settings.gae_lambda,
        clip_eps=settings.clip,
        ent_coef=settings.entropy_coef,
        vf_coef=settings.value_coef,
        **rollout_arguments(settings),
    )


def run_ppo(settings: PPOSettings, agents: Agents = ONE_AGENT) -> Result:
    """PPO on CartPole."""
    note = (
        f"{OFF} Its own: policy and value have an optimizer each, gradients are clipped one by "
        "one, the value is clipped, the time limit counts as a termination."
    )
    return measure("PPO", make_ppo(settings), "actor_ts", settings, agents, note)


def run_pqn(settings: PQNSettings, agents: Agents = ONE_AGENT) -> Result:
    """PQN on Breakout."""
    _, rejax, networks = require("jax", "rejax", "rejax.networks")
    env, env_params = make_env("Breakout-MinAtar")
    algorithm = rejax.PQN.create(
        env=env,
        env_params=env_params,
        td_lambda=settings.td_lambda,
        eps_start=1.0,
        eps_end=settings.epsilon_final,
        exploration_fraction=0.1,
        **rollout_arguments(settings),
    )
    policy = networks.EpsilonGreedyPolicy(grid_network(settings.hidden))
    agent = policy(action_dim=env.action_space(env_params).n)
    note = (
        f"{OFF} The network is given to it: rejax has dense layers only. Its own: Adam, gradients "
        "clipped one by one, a second forward pass in every env step, the time limit of 1,000 env "
        "steps counts as a termination."
    )
    return measure("PQN", algorithm.replace(agent=agent), "q_ts", settings, agents, note)


def grid_network(hidden: tuple[int, ...]) -> type[linen.Module]:
    """The class of the network that PQN has for MinAtar, as rejax expects one."""
    linen, jnp = require("flax.linen", "jax.numpy")

    class GridQNetwork(linen.Module):
        """Action values from a convolution and dense layers, each with a layer norm."""

        action_dim: int

        @linen.compact
        def __call__(self, obs: jax.Array) -> jax.Array:
            features = linen.Conv(16, (3, 3), padding="VALID")(obs)
            features = linen.relu(linen.LayerNorm()(features))
            features = features.reshape((*features.shape[:-3], -1))
            for units in hidden:
                features = linen.relu(linen.LayerNorm()(linen.Dense(units)(features)))
            return linen.Dense(self.action_dim)(features)

        def take(self, obs: jax.Array, action: jax.Array) -> jax.Array:
            """Values of the actions."""
            return jnp.take_along_axis(self(obs), action[:, None], axis=1).squeeze(1)

    return GridQNetwork


PROGRAMS = {
    "dqn": Program(run_dqn, (DQNSettings, Agents), {"env_steps": 200_000}),
    "ppo": Program(run_ppo, (PPOSettings, Agents), {"env_steps": 200_000}),
    "pqn": Program(run_pqn, (PQNSettings, Agents), {"env_steps": 200_000}),
}

if __name__ == "__main__":
    sys.exit(run_programs(PROGRAMS, __doc__))
