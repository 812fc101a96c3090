"""Noise whose neighbors in time resemble each other, for `noise_correlation`."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import tensorflow as tf


def correlate(noise: Any, correlation: float) -> Any:
    """Noise whose every number leans on the previous: e[t] = c e[t-1] + sqrt(1 - c^2) noise[t].

    Each number stays standard normal, so probabilities are as without; only neighbors in time
    resemble each other, and exploration goes somewhere instead of trembling. Every rollout begins
    afresh.

    Args:
        noise: [T, ...] independent standard normal numbers, a tensor or an array.
        correlation: `c`, of neighbors in time, in (0, 1).

    Source: Hollenstein et al. 2024, arXiv:2312.11091, with first-order noise.
    """
    share = math.sqrt(1.0 - correlation**2)
    scale = np.full([noise.shape[0]] + [1] * (len(noise.shape) - 1), share, np.float32)
    scale[0] = 1.0
    result, weight, step = noise * scale, correlation, 1
    concat = tf.concat if tf.is_tensor(noise) else np.concatenate
    while step < noise.shape[0]:  # by doubling, as policy.policy_gradient.generalized_advantage
        result = concat([result[:step], result[step:] + weight * result[:-step]], 0)
        weight, step = weight**2, 2 * step
    return result
