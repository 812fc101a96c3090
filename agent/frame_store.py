"""Stacked frames, of which each is kept once: a replay memory for pixels in a quarter of the room.

The observation of a row is `K` frames, and the next one is `K - 1` of them and a new one. So a row
needs one frame of its own, and one more where an episode begins.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from kytolly.environment.state_variable import state_variable

SPARE = 16  # a frame more for so many rows, for the first frames of episodes
MAX_FRAMES = 2**30  # frames are counted up to the largest multiple of the ring's length below


class FrameStore(tf.Module):
    """The `obs` and `next_obs` of a `ReplayBuffer` whose observations are stacks of frames.

    Frames lie in a ring of their own. Each row knows the places of the `K + 1` frames of its two
    observations, so a stack never crosses the beginning of an episode, whatever lies beside it.

    The ring is longer than the memory's, so that frames outlive the rows that show them. Where
    episodes are shorter than `SPARE` steps on average they do not; a row whose frames are gone is
    then replaced by a newer one, see `usable`. The newer half of the rows always has its frames.

    Args:
        capacity: Rows.
        obs_spec: Shape [H, W, K] and dtype of one observation, the newest frame last. An episode
            begins with its first frame `K` times.
        stride: Environments that write in turn.
    """

    def __init__(self, capacity: int, obs_spec: tf.TensorSpec, stride: int):
        super().__init__(name="frame_store")
        height, width, self.stack = map(int, obs_spec.shape)
        self.size = (height, width)
        self.capacity, self.stride = capacity, stride
        self.length = ring_length(capacity, stride, self.stack)
        self.period = MAX_FRAMES // self.length * self.length
        pixels = math.prod(self.size)
        self.frames = tf.Variable(tf.zeros([self.length, pixels], obs_spec.dtype), trainable=False)
        # The number of each frame that a row shows, the newest of `next_obs` first.
        shape = [capacity, self.stack + 1]
        self.numbers = state_variable(tf.zeros(shape, tf.int32))
        # Those that the next row of each environment continues; -1: it begins an episode.
        self.newest = state_variable(tf.fill([stride, self.stack], -1))
        self.added = state_variable(0)  # frames, modulo `period`

    def add(self, slots: tf.Tensor, obs: tf.Tensor, next_obs: tf.Tensor, last: tf.Tensor) -> None:
        """Write the observations of [B] rows, time-major, into `slots` [B, 1].

        Args:
            slots: Of the memory.
            obs: [B, H, W, K], or only the newest frames [B, H, W, 1].
            next_obs: The same after the step.
            last: [B] bool, the episode ended there.
        """
        rows, envs = int(last.shape[0] or 0), self.stride
        if rows % envs:
            raise ValueError(
                f"add() got {rows} rows for {envs} environments, expected whole steps of all of "
                "them: frames are stacked over time."
            )
        newest, added = self.newest.read_value(), self.added.read_value()
        ended = tf.reshape(last, [-1, envs])
        begins = tf.concat([newest[tf.newaxis, :, 0] < 0, ended[:-1]], axis=0)  # [T, E]
        # Each row brings the frame of `next_obs`, and before it that of `obs` where it begins.
        count = 1 + tf.cast(tf.reshape(begins, [-1]), tf.int32)
        after = tf.cumsum(count)
        shown = tf.reshape(added + after - 1, [-1, envs])  # the newest of `next_obs`
        first = shown - 1
        ages = [shown]
        for age in range(self.stack):
            before = tf.concat([newest[tf.newaxis, :, age], ages[age][:-1]], axis=0)
            ages.append(tf.where(begins, first, before))
        numbers = tf.stack(ages, axis=-1) % self.period  # [T, E, K + 1]
        self.numbers.scatter_nd_update(slots, tf.reshape(numbers, [rows, -1]))
        continues = tf.logical_not(ended[-1])[:, tf.newaxis]
        self.newest.assign(tf.where(continues, numbers[-1, :, :-1], -1))
        self._write_frames(begins, tf.reshape(numbers, [rows, -1]), obs, next_obs)
        self.added.assign((added + after[-1]) % self.period)

    def end_episodes(self, envs: Sequence[int] | np.ndarray | None = None) -> None:
        """New episodes begin after the newest rows of the environments `envs`, None: of all."""
        chosen = tf.range(self.stride) if envs is None else tf.constant(envs, tf.int32)
        nothing = tf.fill([chosen.shape[0], self.stack], -1)
        self.newest.scatter_nd_update(chosen[:, tf.newaxis], nothing)

    def usable(self, slots: tf.Tensor, cursor: tf.Tensor, rows: tf.Tensor | int) -> tf.Tensor:
        """[B] slots whose frames are kept, for [B] slots among the oldest `rows` of the memory.

        Args:
            slots: Of the memory.
            cursor: [] slot of the oldest row.
            rows: How many rows from `cursor` on may be shown.
        """
        oldest = tf.gather(self.numbers, slots)[:, -1]
        gone = (self.added.read_value() - oldest) % self.period > self.length
        place = (slots - cursor) % self.capacity
        newer = (cursor + (place + rows) // 2) % self.capacity
        return tf.where(gone, newer, slots)

    def stacks(self, slots: tf.Tensor, end: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """[B, H, W, K] `obs` of the rows at [B] slots, and `next_obs` of those at [B] slots `end`.

        For a row whose end is itself they share `K - 1` frames.
        """
        if end is slots:
            frames = self._frames(tf.gather(self.numbers, slots))
            return frames[..., :-1], frames[..., 1:]
        obs = self._frames(tf.gather(self.numbers, slots)[:, 1:])
        return obs, self._frames(tf.gather(self.numbers, end)[:, :-1])

    def _frames(self, numbers: tf.Tensor) -> tf.Tensor:
        """[B, H, W, N] frames of [B, N] numbers, in the reverse order."""
        frames = tf.gather(self.frames, tf.reverse(numbers, [1]) % self.length)
        frames = tf.reshape(frames, [-1, numbers.shape[1], *self.size])
        return tf.transpose(frames, [0, 2, 3, 1])

    def _write_frames(
        self, begins: tf.Tensor, numbers: tf.Tensor, obs: tf.Tensor, next_obs: tf.Tensor
    ) -> None:
        """Write the frames of [B] rows: where a row begins no episode, its `next_obs` twice."""
        begin, pixels = tf.reshape(begins, [-1]), self.frames.shape[1]
        new = tf.reshape(next_obs[..., -1], [-1, pixels])
        old = tf.where(begin[:, tf.newaxis], tf.reshape(obs[..., -1], [-1, pixels]), new)
        places = tf.stack([tf.where(begin, numbers[:, 1], numbers[:, 0]), numbers[:, 0]], axis=1)
        frames = tf.reshape(tf.stack([old, new], axis=1), [-1, pixels])
        places = tf.reshape(places, [-1, 1]) % self.length
        self.frames.scatter_nd_update(places, tf.cast(frames, self.frames.dtype))


def ring_length(capacity: int, stride: int, stack: int) -> int:
    """Frames that are kept for so many rows of `stride` environments."""
    return capacity + capacity // SPARE + 2 * stride * (stack + 1)
