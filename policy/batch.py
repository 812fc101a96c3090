"""What a policy learns from."""

from __future__ import annotations

from typing import Any, NamedTuple

import tensorflow as tf


class Transition(NamedTuple):
    """Rows of experience.

    Attributes:
        obs: [B, *obs] observation that was acted on.
        action: [B] int32.
        reward: [B] sum of the n discounted rewards, in reward units.
        discount: [B] weight of what follows: gamma**n, or 0 where the episode terminated.
            A time limit is not a termination.
        next_obs: [B, *obs] observation after the n-th reward, before any reset.
    """

    obs: Any
    action: Any
    reward: Any
    discount: Any
    next_obs: Any


def transition_spec(obs_spec: tf.TensorSpec, batch_size: int) -> Transition:
    """TensorSpecs of a batch with a fixed number of rows."""
    obs = tf.TensorSpec([batch_size, *obs_spec.shape], obs_spec.dtype)
    scalar = tf.TensorSpec([batch_size], tf.float32)
    return Transition(obs, tf.TensorSpec([batch_size], tf.int32), scalar, scalar, obs)
