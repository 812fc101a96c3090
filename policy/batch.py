"""The rows that an agent collects, and those that a policy learns from."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, TypeVar

import tensorflow as tf

from kytolly.environment.spec import EnvSpec, action_spec

Obs = tf.Tensor | Mapping[str, tf.Tensor]  # a tensor, or an entry for each part
Columns = TypeVar("Columns")


class Rollout(NamedTuple):
    """Consecutive env steps of `E` environments, time-major: what one iteration collects.

    The columns are tensors, arrays on the host, or the specs of `rollout_spec`.
    """

    obs: Any  # [T, E, *obs] what was acted on, a tensor or a dict of them
    action: Any  # [T, E, ...] raw action, as the exploration drew it
    reward: Any  # [T, E] of one env step
    discount: Any  # [T, E] gamma, or 0 where the episode terminated, which no time limit does
    next_obs: Any  # [T, E, *obs] what the step led to, before any reset
    last: Any  # [T, E] bool, the episode ended with the step: terminated or truncated
    log_prob: tf.Tensor | None = None  # [T, E] of the action; None where it was not kept
    value: tf.Tensor | None = None  # [T, E] the policy's, of `obs`; None where it was not kept
    explored: Any = None  # [T, E] bool, the action was a random one; None where it was not kept


class Transition(NamedTuple):
    """Rows that Q-learning learns from."""

    obs: Any  # [B, *obs] what was acted on, a tensor or a dict of them
    action: Any  # [B] int32
    reward: Any  # [B] sum of the n discounted rewards, in reward units
    discount: Any  # [B] weight of what follows: gamma**n, or 0 where the episode terminated
    next_obs: Any  # [B, *obs] observation after the n-th reward, before any reset
    weight: tf.Tensor | None = None  # [B] importance weight of a row in the loss; None: 1
    slot: tf.Tensor | None = None  # [B] int32 slot in a memory that wants to know the errors
    # [K, N] numbers in [0, 1) that an update takes (`Policy.num_uniforms`), the same in each of the
    # K parts that gradients are accumulated over; None where it takes none
    noise: tf.Tensor | None = None


def rollout_spec(
    env_spec: EnvSpec,
    num_envs: int,
    keeps_log_prob: bool = False,
    keeps_value: bool = False,
    keeps_explored: bool = False,
) -> Rollout:
    """TensorSpecs of one env step of `num_envs` environments: a rollout without its time axis."""
    obs = tf.nest.map_structure(
        lambda spec: tf.TensorSpec([num_envs, *spec.shape], spec.dtype), env_spec.obs
    )
    number, flag = tf.TensorSpec([num_envs], tf.float32), tf.TensorSpec([num_envs], tf.bool)
    action = action_spec(env_spec.action, num_envs)
    log_prob, value = (number if keeps else None for keeps in (keeps_log_prob, keeps_value))
    explored = flag if keeps_explored else None
    return Rollout(obs, action, number, number, obs, flag, log_prob, value, explored)


def map_columns(function: Callable[[Any], Any], columns: Columns) -> Columns:
    """The same structure with what a function makes of each column; what is absent stays so."""
    return tf.nest.map_structure(lambda x: None if x is None else function(x), columns)


def present(columns: Any) -> list[Any]:
    """The columns of a structure in one list, without those that are absent."""
    return [column for column in tf.nest.flatten(columns) if column is not None]


def with_present(columns: Columns, values: Iterable[Any]) -> Columns:
    """The same structure with other columns than those that `present` gives, in their order."""
    rest = iter(values)
    return map_columns(lambda _: next(rest), columns)


def merge_time(column: Obs) -> Any:
    """[T * E, ...] from [T, E, ...], or the same for each entry of a dict."""
    return tf.nest.map_structure(lambda x: tf.reshape(x, [-1, *x.shape[2:]]), column)
