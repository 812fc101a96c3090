"""One DQN update in JAX and optax, fused into a `jax.lax.scan`: microseconds per update.

This is the learning step alone, with no environment: online and target forward, Huber loss,
backward, clipping by global norm, Adam. Every update gathers its own random rows from a replay
array, because with a constant batch the compiler would hoist work out of the loop. `--batches
predrawn` draws all row numbers before the scan and leaves that out of the measured time.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from kytolly.benchmarks.competitors import (
    Span,
    make_parser,
    make_result,
    parse,
    print_result,
    versions,
)
from kytolly.benchmarks.competitors.packages import require
from kytolly.benchmarks.competitors.settings import Settings

OBS_SIZE, NUM_ACTIONS = 4, 2  # CartPole's
USED = ("batch_size", "buffer", "hidden", "learning_rate", "gamma", "max_grad_norm", "seed")


def init_params(key: Any, sizes: Sequence[int]) -> list[tuple[Any, Any]]:
    """Draw the weights of an MLP: (`[in, out]` kernel, `[out]` bias) per layer."""
    (jax,) = require("jax")
    initialize = jax.nn.initializers.glorot_uniform()
    keys = jax.random.split(key, len(sizes) - 1)
    return [
        (initialize(layer_key, (fan_in, fan_out)), jax.numpy.zeros(fan_out))
        for layer_key, fan_in, fan_out in zip(keys, sizes[:-1], sizes[1:], strict=True)
    ]


def q_values(params: list[tuple[Any, Any]], obs: Any) -> Any:
    """Return action values: `[B, obs]` -> `[B, A]`."""
    (jax,) = require("jax")
    *hidden, (kernel, bias) = params
    for hidden_kernel, hidden_bias in hidden:
        obs = jax.nn.relu(obs @ hidden_kernel + hidden_bias)
    return obs @ kernel + bias


def make_loss(gamma: float) -> Callable[..., Any]:
    """Make the mean Huber loss of one batch against the target network's best next value."""
    jax, optax = require("jax", "optax")

    def loss(params: Any, target_params: Any, batch: dict[str, Any]) -> Any:
        next_value = q_values(target_params, batch["next_obs"]).max(axis=1)
        target = batch["reward"] + gamma * batch["alive"] * next_value
        q = jax.numpy.take_along_axis(
            q_values(params, batch["obs"]), batch["action"][:, None], axis=1
        ).squeeze(1)
        return optax.huber_loss(q, jax.lax.stop_gradient(target)).mean()

    return loss


def make_replay(key: Any, rows: int) -> dict[str, Any]:
    """Fill a replay array with rows to compute on; only their shapes matter for the time."""
    (jax,) = require("jax")
    obs_key, next_obs_key, action_key, alive_key = jax.random.split(key, 4)
    return {
        "obs": jax.random.normal(obs_key, (rows, OBS_SIZE)),
        "next_obs": jax.random.normal(next_obs_key, (rows, OBS_SIZE)),
        "action": jax.random.randint(action_key, (rows,), 0, NUM_ACTIONS),
        "reward": jax.numpy.ones(rows),
        "alive": jax.random.bernoulli(alive_key, 0.95, (rows,)).astype(jax.numpy.float32),
    }


def make_updates(settings: Settings, updates: int, predrawn: bool) -> Callable[..., Any]:
    """Make the function that does all updates in one scan.

    Args:
        settings: Batch size, learning rate, discount, clipping.
        updates: Length of the scan.
        predrawn: Whether the row numbers are drawn before the scan and given as an argument.

    Returns:
        A function of (carry, replay, rows), where rows is `[updates, B]` or None, that returns
        the new carry and the `[updates]` losses. The carry is
        (params, target_params, optimizer state, key).
    """
    jax, optax = require("jax", "optax")
    optimizer = make_optimizer(settings)
    loss = make_loss(settings.gamma)

    def body(carry: Any, replay: dict[str, Any], rows: Any) -> tuple[Any, Any]:
        params, target_params, optimizer_state, key = carry
        if rows is None:
            key, rows_key = jax.random.split(key)
            rows = jax.random.randint(rows_key, (settings.batch_size,), 0, settings.buffer)
        batch = {name: column[rows] for name, column in replay.items()}
        value, grads = jax.value_and_grad(loss)(params, target_params, batch)
        change, optimizer_state = optimizer.update(grads, optimizer_state, params)
        params = optax.apply_updates(params, change)
        return (params, target_params, optimizer_state, key), value

    def run_updates(carry: Any, replay: dict[str, Any], rows: Any = None) -> tuple[Any, Any]:
        if predrawn == (rows is None):
            raise ValueError("Predrawn batches need rows, fresh ones must have none.")
        return jax.lax.scan(
            lambda carry, rows: body(carry, replay, rows), carry, rows, length=updates
        )

    return run_updates


def make_optimizer(settings: Settings) -> Any:
    """Make Adam behind clipping by the norm over all weights together.

    `optax.flatten` lays all weights end to end for it, which saves 4 % of the update.
    """
    (optax,) = require("optax")
    clip = optax.clip_by_global_norm(settings.max_grad_norm)
    return optax.flatten(optax.chain(clip, optax.adam(settings.learning_rate)))


def run(settings: Settings, updates: int, predrawn: bool) -> dict[str, Any]:
    """Time the second call of the compiled scan, and return the result."""
    (jax,) = require("jax")
    keys = jax.random.split(jax.random.PRNGKey(settings.seed), 5)
    sizes = (OBS_SIZE, *settings.hidden, NUM_ACTIONS)
    params = init_params(keys[0], sizes)
    target_params = init_params(keys[1], sizes)
    replay = make_replay(keys[2], settings.buffer)
    carry = (params, target_params, make_optimizer(settings).init(params), keys[3])
    arguments = [carry, replay]
    if predrawn:
        shape = (updates, settings.batch_size)
        arguments.append(jax.random.randint(keys[4], shape, 0, settings.buffer))

    begin = time.perf_counter()
    program = jax.jit(make_updates(settings, updates, predrawn)).lower(*arguments).compile()
    compile_seconds = time.perf_counter() - begin

    carry, _ = jax.block_until_ready(program(*arguments))
    arguments[0] = carry
    with Span() as span:
        carry, losses = jax.block_until_ready(program(*arguments))
    counted = int(carry[2][1][0].count) - int(arguments[0][2][1][0].count)  # by Adam
    return make_result(
        name="JAX fused update",
        versions=versions("jax", "jaxlib", "optax"),
        env_steps=None,
        updates=counted,
        span=span,
        compile_seconds=compile_seconds,
        microseconds_per_update=span.wall_seconds / counted * 1e6,
        cpu_microseconds_per_update=span.cpu_seconds / counted * 1e6,
        loss_first=float(losses[0]),
        loss_last=float(losses[-1]),
        settings={
            **{name: getattr(settings, name) for name in USED},
            "batches": "predrawn" if predrawn else "fresh",
        },
        note=(
            "No environment and no target copy: the update alone, random rows gathered anew for "
            "each, "
            + ("their numbers drawn before the scan" if predrawn else "drawn within the scan")
            + ". Timed: the second call of the compiled scan, which goes on from the first."
        ),
    )


def main(argv: list[str] | None = None) -> int:
    """Run the program."""
    parser = make_parser("jax_update", __doc__, flags=USED)
    parser.add_argument("--updates", type=int, default=20_000, help="updates to time")
    parser.add_argument(
        "--batches",
        choices=("fresh", "predrawn"),
        default="fresh",
        help="whether row numbers are drawn within the scan or before it",
    )
    settings, arguments = parse(parser, argv)
    print_result(run(settings, arguments.updates, arguments.batches == "predrawn"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
