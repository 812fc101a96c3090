"""Returns of several steps."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from kytolly.environment.fusion_barrier import loop_fusion_barrier


def window_return(buffer: Any, slots: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """The return of the `n_step` rows of a `ReplayBuffer` from each of the [B] slots on.

    Returns:
        [B] reward and [B] discount, as `n_step_return`, and [B] the slot of the last row used.
    """
    steps = buffer.stride * tf.range(buffer.n_step)
    window = (slots[:, tf.newaxis] + steps) % buffer.capacity
    columns = buffer.columns.reward, buffer.columns.discount, buffer.last
    total, weight, used = n_step_return(*(tf.gather(column, window) for column in columns))
    end = (slots + used * buffer.stride) % buffer.capacity
    return loop_fusion_barrier(
        (total, weight, end), slots[0] >= 0
    )  # else anew for all that they reach


def end_windows(buffer: Any, envs: Any) -> None:
    """Let no window of a `ReplayBuffer` reach beyond the newest rows of some environments.

    Args:
        buffer: The buffer.
        envs: Numbers of the environments; None: all of them.
    """
    envs = tf.range(buffer.stride) if envs is None else tf.constant(envs, tf.int32)
    newest = (buffer.cursor() - buffer.stride + envs) % buffer.capacity
    buffer.last.scatter_nd_update(newest[:, tf.newaxis], tf.fill(tf.shape(envs), True))


def n_step_return(
    reward: tf.Tensor, discount: tf.Tensor, last: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Sum the rewards of a window up to the end of its first episode.

    Args:
        reward: [B, n] rewards of consecutive env steps.
        discount: [B, n] gamma, or 0 where the episode terminated at that step.
        last: [B, n] bool, the episode ended at that step, for either reason.

    Returns:
        [B] discounted sum of the rewards, [B] discount of what follows (the product of the
        discounts used), [B] int32 index in the window of the last step used.

    Source: Sutton & Barto 2018, "Reinforcement Learning", equation 7.1.
    """
    total, weight = reward[:, 0], discount[:, 0]
    alive, used = tf.logical_not(last[:, 0]), tf.zeros_like(reward[:, 0], tf.int32)
    for step in range(1, reward.shape[1]):
        total = tf.where(alive, total + weight * reward[:, step], total)
        weight = tf.where(alive, weight * discount[:, step], weight)
        used = tf.where(alive, step, used)
        alive = tf.logical_and(alive, tf.logical_not(last[:, step]))
    return total, weight, used
