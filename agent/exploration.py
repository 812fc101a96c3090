"""When, and how, to act at random."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import tensorflow as tf

from kytolly.agent.randomness import uniforms, whole_numbers


def linear_schedule(start: float, final: float, steps: int, done: tf.Tensor) -> tf.Tensor:
    """[] value that falls linearly from `start` to `final` over `steps` and stays there.

    Args:
        start: Value at 0.
        final: Value at `steps`.
        steps: Length of the fall, in the unit of `done`.
        done: [] number of steps done; negative counts as 0.
    """
    share = tf.clip_by_value(tf.cast(done, tf.float32) / steps, 0.0, 1.0)
    return start + share * (final - start)


def epsilon_greedy(q: tf.Tensor, epsilon: tf.Tensor, bits: tf.Tensor) -> tf.Tensor:
    """[E] int32 actions: the best one, or any with probability epsilon.

    Args:
        q: [E, A] action values.
        epsilon: [] probability of an action drawn uniformly from all `A`.
        bits: [E, 2] uint32 draws: whether to explore, and which action.
    """
    random_action = whole_numbers(bits[:, 1], tf.constant(q.shape[-1]))
    best_action = tf.argmax(q, axis=-1, output_type=tf.int32)
    return tf.where(uniforms(bits[:, 0]) < epsilon, random_action, best_action)


def correlated(noise: Any, correlation: float) -> Any:
    """Noise whose every number leans on the one before: e[t] = c e[t-1] + sqrt(1 - c^2) noise[t].

    Each number stays standard normal, so probabilities are as without; only neighbours in time
    resemble each other, and exploration goes somewhere instead of trembling. Every rollout begins
    afresh.

    Args:
        noise: [T, ...] independent standard normal numbers, a tensor or an array.
        correlation: `c`, of neighbours in time, in [0, 1).

    Source: Hollenstein et al. 2024, arXiv:2312.11091, with first-order noise.
    """
    share = math.sqrt(1.0 - correlation**2)
    scale = np.full([noise.shape[0]] + [1] * (len(noise.shape) - 1), share, np.float32)
    scale[0] = 1.0
    result, weight, step = noise * scale, correlation, 1
    concat = tf.concat if tf.is_tensor(noise) else np.concatenate
    while step < noise.shape[0]:  # by doubling, as policy.targets.generalized_advantage
        result = concat([result[:step], result[step:] + weight * result[:-step]], 0)
        weight, step = weight**2, 2 * step
    return result
