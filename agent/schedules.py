"""Numbers that change with the env steps of an agent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
import tensorflow as tf

from kytolly.config.run import RunConfig
from kytolly.policy.hyper import Hyper


def linear_schedule(start: float, final: float, steps: int, done: tf.Tensor) -> tf.Tensor:
    """[] value that falls linearly from `start` to `final` over `steps`, and stays there.

    `done` counts the steps done, [] in the same unit; negative counts as 0.
    """
    return start + linear_share(steps, done) * (final - start)


def linear_share(steps: int, done: tf.Tensor) -> tf.Tensor:
    """[] share of the steps that are done, 0 to 1."""
    return tf.clip_by_value(tf.cast(done, tf.float32) / steps, 0.0, 1.0)


class Fall:
    """A value that goes linearly from one number to another, and stays there; tensor code.

    Args:
        start, final: The numbers.
        after: Env steps before it begins.
        steps: Env steps that it takes.

    Attributes:
        numbers: What may differ between members of a population: the start and the change.
    """

    def __init__(self, start: float, final: float, after: int, steps: int):
        self.after, self.steps = after, steps
        self.numbers = (np.float32(start), np.float32(final - start))

    def __call__(self, env_steps: tf.Tensor, numbers: Sequence[Any] | None = None) -> tf.Tensor:
        """[] the value after so many env steps, with these numbers or its own."""
        start, change = numbers or self.numbers
        return linear_share(self.steps, env_steps - self.after) * change + start


class Schedule:
    """A value that is linear between the points of a table; tensor code.

    Args:
        shares: [K] shares of the run that remain, from 1 down to 0.
        values: [K] values there.
        total: Env steps of the run.

    Attributes:
        numbers: What may differ between members of a population: the first, least and greatest
            value, and [K - 1] starts, widths and slopes.
        least: The least value.
    """

    def __init__(self, shares: np.ndarray, values: np.ndarray, total: int):
        done, self.total, self.least = 1.0 - shares, total, values.min()
        ends = values[0], self.least, values.max()
        lines = done[:-1], np.diff(done), np.diff(values) / np.diff(done)
        self.numbers = tuple(np.asarray(each, np.float32) for each in (*ends, *lines))

    def __call__(
        self, env_steps: tf.Tensor | int, numbers: Sequence[Any] | None = None
    ) -> tf.Tensor:
        """[] the value after so many env steps, with these numbers or its own."""
        first, least, most, starts, widths, slopes = numbers or self.numbers
        done = tf.cast(env_steps, tf.float32) / self.total
        within = tf.clip_by_value(done - starts, 0.0, widths)
        value = tf.reduce_sum(slopes * within) + first
        return tf.clip_by_value(value, least, most)


class ScheduledNumbers:
    """The numbers of a config that follow the env steps.

    Args:
        schedules: From env steps to a value, by the name in `Hyper`.
    """

    def __init__(self, schedules: Mapping[str, Fall | Schedule]):
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
        return cls({"learning_rate": Fall(cfg.learning_rate, final, warmup, rest)})

    @property
    def metric_names(self) -> tuple[str, ...]:
        """The numbers that are logged with an agent's metrics; the learning rate is anyway."""
        return tuple(name for name in self.schedules if name != "learning_rate")

    def replace(self, hyper: Hyper, env_steps: tf.Tensor) -> Hyper:
        """The numbers with those that follow the env steps as they are now, [] tensors.

        Where members of a population have different schedules, `hyper` has a tuple of the
        schedule's numbers in the place of the value.
        """
        values = {}
        for name, schedule in self.schedules.items():
            own = getattr(hyper, name)
            values[name] = schedule(env_steps, own if isinstance(own, tuple) else None)
        return hyper._replace(**values)
