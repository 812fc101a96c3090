"""What an agent collects, and what a policy learns from."""

from __future__ import annotations

from typing import Any, NamedTuple

import tensorflow as tf

from kytolly.environment.spec import EnvSpec, action_spec


class Rollout(NamedTuple):
    """Consecutive env steps of `E` environments, time-major: what one iteration collects.

    Attributes:
        obs: [T, E, *obs] observation that was acted on, a tensor or a dict of them.
        action: [T, E, ...] raw action, as the exploration drew it.
        reward: [T, E] reward of one env step.
        discount: [T, E] gamma, or 0 where the episode terminated. A time limit is not a
            termination.
        next_obs: [T, E, *obs] what the step led to, before any reset.
        last: [T, E] bool, the episode ended with the step: terminated or truncated.
        log_prob: [T, E] log-probability of the action; () where it was not kept.
    """

    obs: Any
    action: Any
    reward: Any
    discount: Any
    next_obs: Any
    last: Any
    log_prob: Any = ()


class Transition(NamedTuple):
    """Rows that Q-learning learns from.

    Attributes:
        obs: [B, *obs] observation that was acted on.
        action: [B] int32.
        reward: [B] sum of the n discounted rewards, in reward units.
        discount: [B] weight of what follows: gamma**n, or 0 where the episode terminated.
        next_obs: [B, *obs] observation after the n-th reward, before any reset.
        weight: [B] importance weight of a row in the loss; () means 1 for every row.
    """

    obs: Any
    action: Any
    reward: Any
    discount: Any
    next_obs: Any
    weight: Any = ()


def rollout_spec(env_spec: EnvSpec, num_envs: int, keeps_log_prob: bool) -> Rollout:
    """TensorSpecs of one env step of `num_envs` environments: a rollout without its time axis."""
    obs = tf.nest.map_structure(
        lambda spec: tf.TensorSpec([num_envs, *spec.shape], spec.dtype), env_spec.obs
    )
    number, flag = tf.TensorSpec([num_envs], tf.float32), tf.TensorSpec([num_envs], tf.bool)
    action = action_spec(env_spec.action, num_envs)
    return Rollout(obs, action, number, number, obs, flag, number if keeps_log_prob else ())


def merge_time(column: Any) -> Any:
    """[T * E, ...] from [T, E, ...], or the same for each entry of a dict."""
    return tf.nest.map_structure(lambda x: tf.reshape(x, [-1, *x.shape[2:]]), column)
