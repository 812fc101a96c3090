"""Figures that a loop sums up on the device between two looks from the host."""

from __future__ import annotations

from typing import Any, NamedTuple

import tensorflow as tf

from environment.device import EpisodeEnd
from policy.base import FitResult


class LoopMetrics(NamedTuple):
    """Sums over one call of a loop's program; all [] tensors.

    Attributes:
        updates: Optimiser steps.
        loss, td_error, q_mean, grad_norm: Sums over updates; td_error of mean absolute values.
        episodes: Episodes that ended.
        episode_return, episode_length: Sums over those episodes, in reward units and env steps.
        epsilon: Share of random actions at the end.
    """

    updates: Any
    loss: Any
    td_error: Any
    q_mean: Any
    grad_norm: Any
    episodes: Any
    episode_return: Any
    episode_length: Any
    epsilon: Any

    @classmethod
    def zeros(cls) -> LoopMetrics:
        """Nothing has happened yet."""
        whole = ("updates", "episodes", "episode_length")
        return cls(*(tf.zeros([], tf.int32 if f in whole else tf.float32) for f in cls._fields))

    def plus(self, later: LoopMetrics) -> LoopMetrics:
        """Sums over two consecutive spans; what is no sum is taken from the later."""
        sums = LoopMetrics(*(a + b for a, b in zip(self, later, strict=True)))
        return sums._replace(epsilon=later.epsilon)

    def with_update(self, result: FitResult) -> LoopMetrics:
        """The sums with one more update."""
        return self._replace(
            updates=self.updates + 1,
            loss=self.loss + result.loss,
            td_error=self.td_error + tf.reduce_mean(tf.abs(result.td_error)),
            q_mean=self.q_mean + result.q_mean,
            grad_norm=self.grad_norm + result.grad_norm,
        )

    def with_episodes(self, sums: tf.Tensor) -> LoopMetrics:
        """The sums with more episodes: [3] their count, returns and lengths."""
        return self._replace(
            episodes=self.episodes + tf.cast(sums[0], tf.int32),
            episode_return=self.episode_return + sums[1],
            episode_length=self.episode_length + tf.cast(sums[2], tf.int32),
        )


def episode_sums(end: EpisodeEnd) -> tf.Tensor:
    """[3] float32 count, summed return and summed length of the episodes a step ended.

    One tensor, because every tensor more that a loop carries costs it time.
    """
    figures = [tf.ones_like(end.episode_return), end.episode_return]
    figures.append(tf.cast(end.episode_length, tf.float32))
    return tf.reduce_sum(tf.where(end.ended, tf.stack(figures), 0.0), axis=-1)
