"""MinAtar's games with random actions, by gymnax and `minatar` (both PyPI): env steps alone.

The package `minatar` steps one environment in Python, so `--num-envs` is 1 there whatever is given.
"""

from __future__ import annotations

import dataclasses
import sys
import time
from typing import TYPE_CHECKING

from kytolly.benchmarks.competitors.rejax import make_env
from kytolly.benchmarks.program import (
    Program,
    Result,
    Span,
    make_result,
    require,
    run_programs,
    versions,
)
from kytolly.benchmarks.settings import StepSettings

if TYPE_CHECKING:
    import jax
    from gymnax.environments.environment import EnvState

    Carry = tuple[jax.Array, EnvState, jax.Array, jax.Array]


def run_gymnax(settings: StepSettings) -> Result:
    """Compile, step many environments together, and time it."""
    jax, jnp = require("jax", "jax.numpy")
    env, params = make_env(f"{settings.game}-MinAtar")
    actions, count = env.action_space(params).n, settings.num_envs
    step_all = jax.vmap(env.step, in_axes=(0, 0, 0, None))

    def step(carried: Carry, _: None) -> tuple[Carry, None]:
        key, state, _, total = carried
        key, acting, stepping = jax.random.split(key, 3)
        action = jax.random.randint(acting, (count,), 0, actions)
        keys = jax.random.split(stepping, count)
        obs, state, reward, *_ = step_all(keys, state, action, params)
        return (key, state, obs, total + reward.sum()), None

    def play(carried: Carry) -> Carry:
        return jax.lax.scan(step, carried, None, settings.steps)[0]

    begin = time.perf_counter()
    key = jax.random.PRNGKey(settings.seed)
    obs, state = jax.vmap(env.reset, in_axes=(0, None))(jax.random.split(key, count), params)
    carried = key, state, obs, jnp.float32(0.0)
    program = jax.jit(play).lower(carried).compile()
    compile_seconds = time.perf_counter() - begin
    carried = jax.block_until_ready(program(carried))
    with Span() as span:
        jax.block_until_ready(program(carried))
    return make_result(
        name="gymnax",
        versions=versions("jax", "jaxlib", "gymnax"),
        env_steps=settings.steps * count,
        updates=0,
        span=span,
        compile_seconds=compile_seconds,
        settings=dataclasses.asdict(settings),
        note="Its rules: fewer actions, none of them sticky, and 1,000 env steps at most.",
    )


def run_package(settings: StepSettings) -> Result:
    """Step one environment, and time it."""
    package, numpy = require("minatar", "numpy")
    game = {"SpaceInvaders": "space_invaders"}.get(settings.game, settings.game.lower())
    env = package.Environment(game)
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
        settings={**dataclasses.asdict(settings), "num_envs": 1},
        note="One environment; its observation is made at every step.",
    )


PROGRAMS = {
    "gymnax": Program(run_gymnax, (StepSettings,)),
    "minatar": Program(run_package, (StepSettings,), unused=frozenset({"num_envs"})),
}

if __name__ == "__main__":
    sys.exit(run_programs(PROGRAMS, __doc__))
