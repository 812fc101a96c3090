"""A MinAtar game of gymnax (PyPI), many environments with actions at random: env steps alone."""

from __future__ import annotations

import sys
import time
from typing import Any

from kytolly.benchmarks.competitors import Span, make_result, print_result, versions
from kytolly.benchmarks.competitors.packages import require
from kytolly.benchmarks.competitors.rejax_dqn import make_env
from kytolly.benchmarks.competitors.settings import StepSettings, step_parser


def run(settings: StepSettings) -> dict[str, Any]:
    """Compile, step, and time it."""
    jax, jnp = require("jax", "jax.numpy")
    env, params = make_env(f"{settings.game}-MinAtar")
    actions, count = env.action_space(params).n, settings.num_envs
    step_all = jax.vmap(env.step, in_axes=(0, 0, 0, None))

    def step(carried: Any, _: Any) -> Any:
        key, state, _, total = carried
        key, acting, stepping = jax.random.split(key, 3)
        action = jax.random.randint(acting, (count,), 0, actions)
        keys = jax.random.split(stepping, count)
        obs, state, reward, *_ = step_all(keys, state, action, params)
        return (key, state, obs, total + reward.sum()), None

    def play(carried: Any) -> Any:
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
        settings=settings._asdict(),
        note="Its rules: fewer actions, none of them sticky, and 1,000 env steps at most.",
    )


def main(argv: list[str] | None = None) -> int:
    """Run the program."""
    print_result(run(step_parser("gymnax_minatar", __doc__, argv)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
