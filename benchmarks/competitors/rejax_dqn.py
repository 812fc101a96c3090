"""The DQN of rejax (PyPI) on gymnax's CartPole-v1: the whole loop in one JAX program.

rejax has no train interval. One of its iterations takes one step in each of `num_envs`
environments and then makes `num_epochs` updates, so one update per 10 env steps means 10
environments here, whatever `--num-envs` says. That is to its advantage: ten environments stepped
together cost it less than one stepped ten times.

The compiled function is called twice. The first call fills the buffer and passes the warm-up, the
second goes on from there and is timed, so that it consists of nothing but the steady state.
"""

from __future__ import annotations

import dataclasses
import sys
import time
from typing import Any

from kytolly.benchmarks.competitors import (
    Span,
    make_parser,
    make_result,
    parse,
    print_result,
    versions,
)
from kytolly.benchmarks.competitors.packages import one_done, require
from kytolly.benchmarks.competitors.settings import Settings


def make_env(name: str) -> tuple[Any, Any]:
    """Make a gymnax environment and its parameters, as rejax expects them."""
    (gymnax,) = require("gymnax")
    env, env_params = gymnax.make(name)
    return one_done(env), env_params


def make_algorithm(rejax: Any, env: Any, env_params: Any, settings: Settings, steps: int) -> Any:
    """The DQN of rejax with the given settings, its evaluation switched off."""
    algo = rejax.DQN.create(
        env=env,
        env_params=env_params,
        agent_kwargs={"activation": "relu"},
        ddqn=False,
        num_envs=settings.train_interval,
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
    return algo.replace(
        agent=algo.agent.clone(hidden_layer_sizes=settings.hidden),
        eval_callback=lambda algo, state, rng: (),
    )


def time_two_calls(algo: Any, seed: int) -> tuple[Any, Any, Span, float]:
    """Compile the whole loop, call it twice, and time the second call.

    Returns:
        The states after the first and after the second call, which goes on from the first; the
        second call's time; and the seconds spent compiling.
    """
    (jax,) = require("jax")
    jax.config.update("jax_enable_compilation_cache", False)
    key = jax.random.PRNGKey(seed)
    begin = time.perf_counter()
    state = jax.jit(algo.init_state).lower(key).compile()(key)
    train = jax.jit(lambda state: algo.train(train_state=state)[0]).lower(state).compile()
    compile_seconds = time.perf_counter() - begin

    before = jax.block_until_ready(train(state))
    with Span() as span:
        after = jax.block_until_ready(train(before))
    return before, after, span, compile_seconds


def run(settings: Settings) -> dict[str, Any]:
    """Train, time the steady state, and return the result."""
    _, rejax = require("jax", "rejax")
    env, env_params = make_env("CartPole-v1")
    num_envs = settings.train_interval
    # A multiple of the iteration, and enough that the first call passes the warm-up.
    steps = max(settings.env_steps, settings.warmup_env_steps + 10 * num_envs)
    steps += -steps % num_envs
    algo = make_algorithm(rejax, env, env_params, settings, steps)
    before, after, span, compile_seconds = time_two_calls(algo, settings.seed)
    return make_result(
        name="rejax DQN",
        versions=versions("rejax", "jax", "jaxlib", "gymnax", "flax", "optax"),
        env_steps=int(after.global_step) - int(before.global_step),
        updates=int(after.q_ts.step) - int(before.q_ts.step),
        span=span,
        compile_seconds=compile_seconds,
        settings={**dataclasses.asdict(settings), "num_envs": num_envs, "num_epochs": 1},
        note=(
            f"num_envs is {num_envs}, because rejax updates once per step of all environments and "
            "has no other train interval. Off: evaluation, normalization, double Q. Its own: "
            "squared loss, gradients clipped one by one, sampling without replacement. "
            "Timed: the second call of the compiled loop, which goes on from the first."
        ),
    )


def main(argv: list[str] | None = None) -> int:
    """Run the program."""
    settings, _ = parse(make_parser("rejax_dqn", __doc__, env_steps=200_000), argv)
    print_result(run(settings))
    return 0


if __name__ == "__main__":
    sys.exit(main())
