"""One DQN update in JAX and optax, fused into a `jax.lax.scan`: microseconds per update.

This is the learning step alone, with no environment: online and target forward, Huber loss,
backward, clipping by global norm, Adam. Every update gathers its own random rows from a replay
array, because with a constant batch the compiler would hoist work out of the loop. `--batches
predrawn` draws all row numbers before the scan and leaves that out of the measured time.
"""

from __future__ import annotations

import dataclasses
import sys
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Literal

from kytolly.benchmarks.program import (
    Program,
    Result,
    Span,
    make_result,
    require,
    run_program,
    versions,
)
from kytolly.benchmarks.settings import DQNSettings
from kytolly.config.fields import setting

if TYPE_CHECKING:
    import jax
    import optax

    Params = list[tuple[jax.Array, jax.Array]]
    Columns = dict[str, jax.Array]
    Carry = tuple[Params, Params, optax.OptState, jax.Array]

OBS_SIZE, NUM_ACTIONS = 4, 2  # CartPole's
USED = ("batch_size", "buffer", "hidden", "learning_rate", "gamma", "max_grad_norm", "seed")
UNUSED = frozenset(field.name for field in dataclasses.fields(DQNSettings)) - set(USED)


@dataclasses.dataclass(frozen=True)
class Scan:
    """A scan over updates."""

    updates: int = setting(20_000, "updates to time")
    batches: Literal["fresh", "predrawn"] = setting(
        "fresh", "draw row numbers within the scan, or before it"
    )


def init_params(key: jax.Array, sizes: Sequence[int]) -> Params:
    """Draw the weights of an MLP: (`[in, out]` kernel, `[out]` bias) per layer."""
    (jax,) = require("jax")
    initialize = jax.nn.initializers.glorot_uniform()
    keys = jax.random.split(key, len(sizes) - 1)
    return [
        (initialize(layer_key, (fan_in, fan_out)), jax.numpy.zeros(fan_out))
        for layer_key, fan_in, fan_out in zip(keys, sizes[:-1], sizes[1:], strict=True)
    ]


def q_values(params: Params, obs: jax.Array) -> jax.Array:
    """Action values: `[B, obs]` -> `[B, A]`."""
    (jax,) = require("jax")
    *hidden, (kernel, bias) = params
    for hidden_kernel, hidden_bias in hidden:
        obs = jax.nn.relu(obs @ hidden_kernel + hidden_bias)
    return obs @ kernel + bias


def make_loss(gamma: float) -> Callable:
    """Make the mean Huber loss of one batch against the target network's best next value."""
    jax, optax = require("jax", "optax")

    def loss(params: Params, target_params: Params, batch: Columns) -> jax.Array:
        next_value = q_values(target_params, batch["next_obs"]).max(axis=1)
        target = batch["reward"] + gamma * batch["alive"] * next_value
        q = jax.numpy.take_along_axis(
            q_values(params, batch["obs"]), batch["action"][:, None], axis=1
        ).squeeze(1)
        return optax.huber_loss(q, jax.lax.stop_gradient(target)).mean()

    return loss


def make_replay(key: jax.Array, rows: int) -> Columns:
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


def make_updates(settings: DQNSettings, updates: int, predrawn: bool) -> Callable:
    """Make the function that does all updates in one scan.

    Args:
        settings: Batch size, learning rate, discount, clipping.
        updates: Length of the scan.
        predrawn: True where the row numbers are drawn before the scan and given as an argument.

    Returns:
        A function of (carry, replay, rows), where rows is `[updates, B]` or None, that returns
        the new carry and the `[updates]` losses. The carry is
        (params, target_params, optimizer state, key).
    """
    jax, optax = require("jax", "optax")
    optimizer = make_optimizer(settings)
    loss = make_loss(settings.gamma)

    def body(carry: Carry, replay: Columns, rows: jax.Array | None) -> tuple[Carry, jax.Array]:
        params, target_params, optimizer_state, key = carry
        if rows is None:
            key, rows_key = jax.random.split(key)
            rows = jax.random.randint(rows_key, (settings.batch_size,), 0, settings.buffer)
        batch = {name: column[rows] for name, column in replay.items()}
        value, grads = jax.value_and_grad(loss)(params, target_params, batch)
        change, optimizer_state = optimizer.update(grads, optimizer_state, params)
        params = optax.apply_updates(params, change)
        return (params, target_params, optimizer_state, key), value

    def run_updates(
        carry: Carry, replay: Columns, rows: jax.Array | None = None
    ) -> tuple[Carry, jax.Array]:
        if predrawn == (rows is None):
            raise ValueError("Predrawn batches need rows, fresh ones must have none.")
        return jax.lax.scan(
            lambda carry, rows: body(carry, replay, rows), carry, rows, length=updates
        )

    return run_updates


def make_optimizer(settings: DQNSettings) -> optax.GradientTransformation:
    """Make Adam behind clipping by the norm over all weights together.

    `optax.flatten` lays all weights end to end for it, which saves 4 % of the update.
    """
    (optax,) = require("optax")
    clip = optax.clip_by_global_norm(settings.max_grad_norm)
    return optax.flatten(optax.chain(clip, optax.adam(settings.learning_rate)))


def run(settings: DQNSettings, scan: Scan) -> Result:
    """Time the second call of the compiled scan, and return the result."""
    (jax,) = require("jax")
    updates, predrawn = scan.updates, scan.batches == "predrawn"
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
            "batches": scan.batches,
        },
        note=(
            "No environment and no target copy: the update alone, random rows gathered anew for "
            "each, "
            + ("their numbers drawn before the scan" if predrawn else "drawn within the scan")
            + ". Timed: the second call of the compiled scan, which goes on from the first."
        ),
    )


PROGRAM = Program(run, (DQNSettings, Scan), unused=UNUSED)

if __name__ == "__main__":
    sys.exit(run_program(PROGRAM, __doc__))
