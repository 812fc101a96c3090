"""The memory of a Q-learner that draws rows by how wrong their estimates were."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from kytolly.agent.priority_tree import PriorityTree
from kytolly.agent.replay_buffer import ReplayBuffer
from kytolly.agent.schedules import linear_schedule
from kytolly.config.dqn import DQNConfig
from kytolly.environment.spec import EnvSpec
from kytolly.environment.state_variable import state_variable
from kytolly.policy.base import Policy
from kytolly.policy.batch import Rollout, Transition

MIN_ERROR = 1e-6  # added to each error, so that every row may be drawn
MAX_PRIORITY = 1e30  # the sum of all stays finite


class PrioritizedReplay(ReplayBuffer):
    """A `ReplayBuffer` whose rows are drawn in proportion to a power of their errors.

    A row can be drawn once its window of `n_step` rows is complete, at first with the highest
    priority so far. A batch has one row of each of `B` equal parts of the sum.

    Args:
        capacity, obs_spec, stride, n_step, batch_size, updates, noise: As for `ReplayBuffer`.
        exponent: Power of an error that is its row's priority; 0 draws uniformly.
        correction: Power of the importance weights at the beginning. It rises to 1.
        total_rows: Rows after which it is 1.

    Source: Schaul et al. 2016, arXiv:1511.05952, algorithm 1, proportional (their alpha and beta).
    """

    metric_names = ("importance_exponent", "highest_priority", "ignored_priorities")

    def __init__(
        self,
        capacity: int,
        obs_spec: tf.TensorSpec | dict[str, tf.TensorSpec],
        stride: int = 1,
        *,
        exponent: float = 0.5,
        correction: float = 0.4,
        total_rows: int = 50_000,
        **more: int,
    ):
        super().__init__(capacity, obs_spec, stride, **more)
        self.exponent, self.correction, self.total_rows = exponent, correction, total_rows
        self.tree = PriorityTree(self.capacity)
        self.highest = tf.Variable(1.0, trainable=False)
        self.ignored = state_variable(0)  # errors that are not finite

    @classmethod
    def options(cls, cfg: DQNConfig, env_spec: EnvSpec) -> dict[str, Any]:
        """The arguments that a configuration asks for."""
        return {
            **super().options(cfg, env_spec),
            "exponent": cfg.priority_exponent,
            "correction": cfg.importance_exponent,
            "total_rows": cfg.total_env_steps,
        }

    def open(self, rollout: Rollout, policy: Policy) -> tuple[None, tf.Tensor]:
        """As for every replay; the metrics are `metric_names`."""
        opened, _ = super().open(rollout, policy)
        ignored = tf.cast(self.ignored.read_value(), tf.float32)
        return opened, tf.stack([self.importance_exponent(), self.highest, ignored])

    def add(self, rows: Transition, last: tf.Tensor, explored: tf.Tensor | None = None) -> None:
        """As for every replay; rows whose windows are now complete get the highest priority."""
        incomplete, before = (self.n_step - 1) * self.stride, tf.identity(self.added)
        super().add(rows, last, explored)
        count = rows.reward.shape[0] + incomplete
        touched = min(count, self.capacity)  # windows that began in an overwritten row are gone
        index = tf.range(count - touched, count)
        age = tf.cast(before - incomplete, tf.int64) + tf.cast(index, tf.int64)
        complete = (index < count - incomplete) & (age >= 0)
        slots = tf.cast(age % self.capacity, tf.int32)
        self.tree.set(slots, tf.where(complete, self.highest, 0.0))

    def sample(self, random_bits: tf.Tensor) -> Transition:
        """n-step rows by their priorities, one for each of the [B] uint32 words, with weights."""
        rows = random_bits.shape[0]
        within = (tf.cast(tf.cast(random_bits, tf.int64), tf.float64) + 0.5) / 2.0**32
        share = (tf.range(rows, dtype=tf.float64) + within) / rows
        slots, priority = self.tree.draw(share)
        if self.frames is not None:
            slots = self.usable_slots(slots)  # the error will be that of the row that is shown
            priority = self.tree.numbers(slots)
        weight = importance_weights(priority, self.importance_exponent())
        return self.rows_at(slots)._replace(weight=weight, slot=slots)

    def close(self, batch: Transition, td_error: tf.Tensor | None) -> None:
        """Give the rows of a batch their new priorities; one that is not finite is ignored."""
        if td_error is None:
            raise TypeError("the policy gives no errors of rows: set prioritized to false")
        finite = tf.math.is_finite(td_error)
        error = tf.where(finite, tf.abs(td_error), 0.0) + MIN_ERROR
        priority = tf.minimum(tf.exp(self.exponent * tf.math.log(error)), MAX_PRIORITY)
        highest = tf.reduce_max(tf.where(finite, priority, 0.0))
        self.highest.assign(tf.maximum(self.highest, highest))
        self.ignored.assign_add(tf.reduce_sum(tf.cast(~finite, tf.int32)))
        self.tree.set(batch.slot, tf.where(finite, priority, self.tree.numbers(batch.slot)))

    def importance_exponent(self) -> tf.Tensor:
        """[] power of the importance weights, after so many rows."""
        return linear_schedule(self.correction, 1.0, self.total_rows, self.added)


def importance_weights(priority: tf.Tensor, exponent: tf.Tensor) -> tf.Tensor:
    """[B] weights of rows drawn by priority, of which the largest is 1.

    (1 / (N P))^exponent, over the largest of the batch; number of rows and sum cancel.

    Args:
        priority: [B] above 0; a row's probability is in proportion to it.
        exponent: [] 1 corrects for the probabilities in full, 0 not at all.

    Source: Schaul et al. 2016, arXiv:1511.05952, section 3.4.
    """
    return tf.exp(exponent * tf.math.log(tf.reduce_min(priority) / priority))
