"""The memory of an on-policy learner: one rollout, and its rows in a random order."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from kytolly.agent.shuffle import keys_per_order, shuffled
from kytolly.environment.spec import EnvSpec, action_spec
from kytolly.policy.batch import PPOBatch, Rollout


class RolloutBuffer:
    """Columns [T, E, ...] that are written step by step within a compiled program.

    It holds no variables: a rollout is learnt from and forgotten within one call.

    Args:
        env_spec: What the environment looks like.
        num_envs: Environment copies, `E`.
        steps: Env steps of each, `T`.
        keeps_log_prob: Whether the log-probability of each action is known when it is taken.
    """

    def __init__(self, env_spec: EnvSpec, num_envs: int, steps: int, keeps_log_prob: bool = True):
        self.num_envs, self.steps = num_envs, steps
        action = action_spec(env_spec.action, num_envs)
        rows = tf.TensorSpec([num_envs], tf.float32)
        obs = tf.nest.map_structure(
            lambda spec: tf.TensorSpec([num_envs, *spec.shape], spec.dtype), env_spec.obs
        )
        last = tf.TensorSpec([num_envs], tf.bool)
        log_prob = rows if keeps_log_prob else ()
        self.step_spec = Rollout(obs, action, rows, rows, obs, last, log_prob)

    @property
    def rollout_spec(self) -> Rollout:
        """TensorSpecs of a whole rollout."""
        return tf.nest.map_structure(
            lambda spec: tf.TensorSpec([self.steps, *spec.shape], spec.dtype), self.step_spec
        )

    def empty(self) -> Any:
        """Nothing is written yet."""
        return tf.nest.map_structure(
            lambda spec: tf.TensorArray(spec.dtype, self.steps, element_shape=spec.shape),
            self.step_spec,
        )

    def written(self, columns: Any, time: tf.Tensor, step: Rollout) -> Any:
        """The columns with one more env step of all copies; each leaf of `step` is [E, ...]."""
        return tf.nest.map_structure(lambda column, row: column.write(time, row), columns, step)

    def rollout(self, columns: Any) -> Rollout:
        """All that was written."""
        return tf.nest.map_structure(lambda column: column.stack(), columns)


def order_keys(epochs: int) -> int:
    """Random words that `minibatch` needs for as many epochs."""
    return epochs * keys_per_order()


def minibatch(batch: PPOBatch, index: tf.Tensor, rows: int, keys: tf.Tensor) -> PPOBatch:
    """One part of a pass over all rows in a random order: every row is in exactly one part.

    Args:
        batch: All rows, [N, ...].
        index: [] int32, which part.
        rows: Rows of a part; divides N.
        keys: [keys_per_order()] uint32 random words, the same for all parts of a pass.
    """
    count = batch.value.shape[0]
    slots = shuffled(index * rows + tf.range(rows), count, keys)
    return tf.nest.map_structure(lambda column: tf.gather(column, slots), batch)
