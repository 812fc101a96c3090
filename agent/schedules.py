"""Numbers that change with the env steps of an agent."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

import numpy as np
import tensorflow as tf

from kytolly.config.run import RunConfig
from kytolly.policy.hyper import Hyper


def linear_schedule(start: float, final: float, steps: int, done: tf.Tensor) -> tf.Tensor:
    """[] value that falls linearly from `start` to `final` over `steps`, and stays there.

    `done` counts the steps done, [] in the same unit; negative counts as 0.
    """
    share = tf.clip_by_value(tf.cast(done, tf.float32) / steps, 0.0, 1.0)
    return start + share * (final - start)


class Schedule:
    """A value that is linear between the points of a table; tensor code.

    Args:
        shares: [K] shares of the run that remain, from 1 down to 0.
        values: [K] values there.
        total: Env steps of the run.
    """

    def __init__(self, shares: np.ndarray, values: np.ndarray, total: int):
        done, self.total = 1.0 - shares, total
        self.first, self.least, self.most = values[0], values.min(), values.max()
        self.starts, self.widths = done[:-1].astype(np.float32), np.diff(done).astype(np.float32)
        self.slopes = (np.diff(values) / np.diff(done)).astype(np.float32)

    def __call__(self, env_steps: tf.Tensor | int) -> tf.Tensor:
        """[] the value after so many env steps."""
        done = tf.cast(env_steps, tf.float32) / self.total
        within = tf.clip_by_value(done - self.starts, 0.0, self.widths)
        value = self.first + tf.reduce_sum(self.slopes * within)
        return tf.clip_by_value(value, self.least, self.most)


class ScheduledNumbers:
    """The numbers of a config that follow the env steps.

    Args:
        schedules: From env steps to a value, by the name in `Hyper`.
    """

    def __init__(self, schedules: Mapping[str, Callable[[tf.Tensor], tf.Tensor]]):
        self.schedules = MappingProxyType(dict(schedules))

    @classmethod
    def of(cls, cfg: RunConfig) -> ScheduledNumbers:
        """The learning rate alone, where it falls by env steps and not by the optimizer's updates.

        The warm-up is the optimizer's.
        """
        final: float | None = cfg.learning_rate_final
        if final is None or cfg.learning_rate_decay_updates is not None:
            return cls({})
        warmup = int(cfg.warmup_ratio * cfg.total_env_steps)
        rest = cfg.total_env_steps - warmup
        return cls(
            {
                "learning_rate": lambda env_steps: linear_schedule(
                    cfg.learning_rate, final, rest, env_steps - warmup
                )
            }
        )

    @property
    def metric_names(self) -> tuple[str, ...]:
        """The numbers that are logged with an agent's metrics; the learning rate is anyway."""
        return tuple(name for name in self.schedules if name != "learning_rate")

    def replace(self, hyper: Hyper, env_steps: tf.Tensor) -> Hyper:
        """The numbers with those that follow the env steps as they are now, [] tensors."""
        return hyper._replace(**{name: of(env_steps) for name, of in self.schedules.items()})
