"""Evaluations on the device that end when the time of a run is over."""

from __future__ import annotations

import math
import time
from typing import Any

import numpy as np
import tensorflow as tf

from kytolly.callback.base import Evaluation
from kytolly.loop.deadline import warn_of_time
from kytolly.loop.device import DeviceEvaluator, DeviceSide
from kytolly.loop.limits import EpisodeLimit
from kytolly.loop.program import Program

CALL_STEPS = 200  # of each environment, between two looks at the clock


class TimedSide(DeviceSide):
    """Training as ever; evaluations look at the clock."""

    def evaluator(
        self,
        network: Any,
        episodes: int,
        seed: int,
        *,
        xla: bool,
        device: str | None,
        step_limit: int | None = None,
    ) -> TimedEvaluator:
        """What plays one episode in each of `episodes` environments at once, by a Keras network."""
        limit = EpisodeLimit(self.env.spec.name, step_limit)
        return TimedEvaluator(self, network, episodes, seed, limit, xla, device)


class TimedEvaluator(DeviceEvaluator):
    """Plays in several calls of a program; between two of them it looks at the clock."""

    def evaluate(self, number: int = 0, deadline: float = math.inf) -> Evaluation:
        """The returns and lengths of `episodes` episodes, other ones for each `number`.

        If `time.perf_counter()` passes the `deadline`, only episodes that have ended count, or,
        where none has, what all of them have reached.
        """
        self.random_stream.counter.assign(number << 32)
        limit, name = self.step_limit, self.env.spec.name
        until, episodes, ended = 0, self.start, np.zeros(1, bool)
        while until < limit and not ended.all() and (not until or time.perf_counter() <= deadline):
            until = min(limit, until + CALL_STEPS)
            episodes = self.program(tf.constant(until), *tf.nest.flatten(episodes))
            ended = episodes[3].numpy()
        returns, lengths = (part.numpy() for part in episodes[4:])
        late = until < limit and not ended.all()
        if late:
            warn_of_time(name, int(ended.sum()), self.episodes)
            counted = ended if ended.any() else ~ended
            returns, lengths = returns[counted], lengths[counted]
        elif not ended.all() and self.env.spec.max_episode_steps is None:
            self.limit.warn_of_cut()
        return Evaluation.of_episodes(returns, lengths, late)

    def _make_program(self, *how: Any) -> Program:
        self.start: Any = self.begin()
        specs = map(tf.TensorSpec.from_tensor, tf.nest.flatten(self.start))
        return Program(self._play_on, [tf.TensorSpec([], tf.int32), *specs], *how)

    def _play_on(self, until: tf.Tensor, *leaves: tf.Tensor) -> tuple[Any, ...]:
        """Play up to a step; step 0 stands for episodes that begin here."""
        before = tf.nest.pack_sequence_as(self.start, leaves)
        at_start = before[0] == 0
        begun = tf.nest.map_structure(
            lambda new, old: tf.where(at_start, new, old), self.begin(), before
        )
        return self.play_until(until, *begun)
