"""The memory of a Q-learner: a ring of rows that lives on the device."""

from __future__ import annotations

import math

import tensorflow as tf

from kytolly.agent.n_step import n_step_return
from kytolly.agent.randomness import whole_numbers
from kytolly.policy.batch import Transition


class ReplayBuffer(tf.Module):
    """Ring of one-step transitions in `tf.Variable`s, sampled uniformly.

    Rows are stored one step long and folded into n-step rows when they are sampled, so nothing
    has to be flushed at the end of an episode. `stride` rows (one for each environment copy) are
    one moment in time: the successor of a row lies `stride` rows further.

    Args:
        capacity: Rows.
        obs_spec: Shape and dtype of one observation; uint8 images stay uint8.
        stride: Environment copies that write in turn.
        n_step: Rewards summed before bootstrapping.
        available_bytes: Memory of the device, if known: a buffer that does not fit is refused
            before anything is allocated.
    """

    def __init__(
        self,
        capacity: int,
        obs_spec: tf.TensorSpec,
        stride: int = 1,
        n_step: int = 1,
        available_bytes: int | None = None,
    ):
        super().__init__(name="replay_buffer")
        self.capacity, self.stride, self.n_step = capacity, stride, n_step
        self.obs_spec = obs_spec
        row = bytes_per_row(obs_spec)
        if available_bytes is not None and capacity * row > available_bytes:
            raise ValueError(
                f"A replay buffer of {capacity:,} rows needs {capacity * row / 2**30:.1f} GiB "
                f"({row:,} bytes a row) and {available_bytes / 2**30:.1f} GiB are free: "
                f"{available_bytes // row:,} rows would fit. Lower replay_capacity."
            )
        obs = (obs_spec.shape, obs_spec.dtype)
        columns = Transition(obs, ([], tf.int32), ([], tf.float32), ([], tf.float32), obs)
        self.columns = Transition(
            *(
                tf.Variable(tf.zeros([capacity, *shape], dtype), trainable=False, name=name)
                for name, (shape, dtype) in zip(Transition._fields, columns, strict=True)
            )
        )
        self.last = tf.Variable(tf.zeros([capacity], tf.bool), trainable=False, name="last")
        self.cursor = tf.Variable(0, dtype=tf.int32, trainable=False, name="cursor")
        self.size = tf.Variable(0, dtype=tf.int32, trainable=False, name="size")

    def add(self, rows: Transition, last: tf.Tensor) -> None:
        """Write rows behind the newest, over the oldest.

        Args:
            rows: One-step transitions, a number of them that is fixed when the program is traced.
            last: bool for each row, the episode ended with it.
        """
        count = rows.reward.shape[0]
        if count is None or count > self.capacity:
            raise ValueError(
                f"add() got {count} rows for a buffer of {self.capacity}. The row count must be "
                "known at trace time and fit the buffer: give add() a fixed number of "
                "environments."
            )
        slots = ((self.cursor + tf.range(count)) % self.capacity)[:, tf.newaxis]
        for column, value in zip(self.columns, rows, strict=True):
            column.scatter_nd_update(slots, tf.cast(value, column.dtype))
        if self.n_step > 1:
            self.last.scatter_nd_update(slots, last)
        self.cursor.assign((self.cursor + count) % self.capacity)
        self.size.assign(tf.minimum(self.size + count, self.capacity))

    def sample(self, bits: tf.Tensor) -> Transition:
        """Rows drawn uniformly and with replacement, one for each of the [B] uint32 draws."""
        return self.rows(self.slots(bits))

    def slots(self, bits: tf.Tensor) -> tf.Tensor:
        """[B] int32 slots of rows whose n-step window is complete, uniformly from uint32 draws."""
        immature = (self.n_step - 1) * self.stride
        age = whole_numbers(bits, self.size - immature)
        oldest = self.cursor - self.size
        return (oldest + age + self.capacity) % self.capacity

    def rows(self, slots: tf.Tensor) -> Transition:
        """n-step transitions that begin at the given [B] slots."""
        if self.n_step == 1:
            return Transition(*(tf.gather(column, slots) for column in self.columns))
        steps = self.stride * tf.range(self.n_step)
        window = (slots[:, tf.newaxis] + steps) % self.capacity
        reward, discount, used = n_step_return(
            tf.gather(self.columns.reward, window),
            tf.gather(self.columns.discount, window),
            tf.gather(self.last, window),
        )
        end = (slots + used * self.stride) % self.capacity
        return Transition(
            obs=tf.gather(self.columns.obs, slots),
            action=tf.gather(self.columns.action, slots),
            reward=reward,
            discount=discount,
            next_obs=tf.gather(self.columns.next_obs, end),
        )


def bytes_per_row(obs_spec: tf.TensorSpec) -> int:
    """Bytes that one stored transition takes."""
    observation = math.prod(obs_spec.shape) * obs_spec.dtype.size
    return 2 * observation + 3 * 4 + 1
