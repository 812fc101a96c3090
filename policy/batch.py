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


class Rollout(NamedTuple):
    """Consecutive env steps of `E` copies, all collected by one policy; time-major.

    An observation is a tensor, or a dict of them.

    Attributes:
        obs: [T, E, *obs] observation that was acted on.
        action: [T, E, ...] raw action, as the policy's distribution drew it.
        reward: [T, E] in reward units, of one env step.
        discount: [T, E] gamma, or 0 where the episode terminated. A time limit is not a
            termination.
        next_obs: [T, E, *obs] what the step led to, before any reset.
        last: [T, E] bool, the episode ended with the step, for either reason.
        log_prob: [T, E] of the action; () where it was not kept when the action was drawn.
    """

    obs: Any
    action: Any
    reward: Any
    discount: Any
    next_obs: Any
    last: Any
    log_prob: Any = ()


class PPOBatch(NamedTuple):
    """What PPO learns from: rows of one or more rollouts with what the acting policy made of them.

    Attributes:
        obs: [B, *obs] or a dict.
        action: [B, ...] raw action.
        log_prob: [B] of the action, under the policy that took it.
        advantage: [B] in reward units.
        target: [B] value target, in reward units.
        value: [B] estimate before learning, in reward units.
    """

    obs: Any
    action: Any
    log_prob: Any
    advantage: Any
    target: Any
    value: Any


def transition_spec(obs_spec: tf.TensorSpec, batch_size: int) -> Transition:
    """TensorSpecs of a batch with a fixed number of rows."""
    obs = tf.TensorSpec([batch_size, *obs_spec.shape], obs_spec.dtype)
    scalar = tf.TensorSpec([batch_size], tf.float32)
    return Transition(obs, tf.TensorSpec([batch_size], tf.int32), scalar, scalar, obs)
