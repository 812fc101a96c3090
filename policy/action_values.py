"""Values of discrete actions: read, taken, and averaged."""

from __future__ import annotations

from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from kytolly.environment.mask import MASKED_LOGIT
from kytolly.environment.spec import Discrete, EnvSpec
from kytolly.policy.few_columns import by_column, row_argmax


class ActionValues(NamedTuple):
    """Reads `num_params` action values [B, A]; the most likely action is the best one."""

    num_params: int
    masked: bool = False  # observations say which actions are allowed

    def mask(self, params: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
        """Values in which no action that [B, A] bool `mask` forbids is the best.

        A mask that forbids everything, as some environments have it at an episode's end, forbids
        nothing: where time ran out, what may follow counts.
        """
        allowed = mask | ~tf.reduce_any(mask, axis=-1, keepdims=True)
        return tf.where(allowed, params, MASKED_LOGIT)

    def mode(self, params: tf.Tensor) -> tf.Tensor:
        """[B] int32 best actions."""
        return row_argmax(params)

    def host_mode(self, params: np.ndarray) -> np.ndarray:
        """`mode` in NumPy."""
        return np.argmax(params, axis=-1)

    def to_env(self, action: tf.Tensor) -> tf.Tensor:
        """The action itself."""
        return action

    def host_to_env(self, action: np.ndarray) -> np.ndarray:
        """The action itself."""
        return action


def action_values_for(algorithm: str, env_spec: EnvSpec) -> ActionValues:
    """The reader of the values of an environment's actions.

    Raises:
        ValueError: The actions are not Discrete.
    """
    action = env_spec.action
    if not isinstance(action, Discrete):
        kind = "a Box" if env_spec.has_numbers_as_actions else "a MultiDiscrete or MultiBinary"
        raise ValueError(
            f"the actions of {env_spec.name} are {kind}, and {algorithm} needs Discrete ones. "
            "Train it with ppo, or wrap the environment in gymnasium.wrappers.DiscretizeAction "
            "(Box) or a gymnasium.wrappers.TransformAction that numbers the combinations."
        )
    return ActionValues(action.count, env_spec.masked)


def take_action(outputs: tf.Tensor, action: tf.Tensor) -> tf.Tensor:
    """The outputs [B] or [B, Z] of the actions [B], from [B, A] or [B, A, Z] of all.

    A sum with zeros, because a gather's gradient is a scatter, which is slower.
    """
    if by_column(outputs, axis=1):
        shape = [-1] + [1] * (len(outputs.shape) - 2)
        columns = enumerate(tf.unstack(outputs, axis=1))
        return tf.add_n(
            [tf.where(tf.reshape(action == index, shape), part, 0.0) for index, part in columns]
        )
    taken = tf.one_hot(action, outputs.shape[1])
    if len(outputs.shape) == 3:
        taken = tf.expand_dims(taken, -1)
    return tf.reduce_sum(outputs * taken, axis=1)


def reward_scale(cfg: Any, network: keras.Model) -> Any:
    """The factor by which a network's action values are larger than returns: a float or a weight.

    It is 1 where neither the config nor the network has one.
    """
    given = getattr(cfg, "reward_scale", 1.0)
    if given is not None:
        return given
    return network.reward_scale.value if getattr(network, "learns_scale", False) else 1.0
