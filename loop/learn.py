"""The learning half of an iteration, for every algorithm and both loops, and its metrics."""

from __future__ import annotations

from typing import NamedTuple, Protocol, TypeAlias

import numpy as np
import tensorflow as tf

from kytolly.agent.kytolly import KytollyAgent
from kytolly.environment.fusion_barrier import is_mapped
from kytolly.policy.base import Loss, Policy
from kytolly.policy.batch import Rollout

Number: TypeAlias = tf.Tensor | np.ndarray | np.number | int  # in a program, or on the host


class Learner(Protocol):
    """The part of a session that learns: an agent, or a network that learns from rows of data.

    Attributes:
        policy: The learning rule, which counts its updates.
        latest_names: Metrics that are not sums, in the order of `LoopMetrics.latest`.
        part_names: The user's classes of optimizer and policy: pairs of part and name.
        fixed_rate: The learning rate that a resumed run sets; None where a schedule or the
            optimizer's own variables say it.
    """

    @property
    def policy(self) -> Policy: ...

    @property
    def latest_names(self) -> tuple[str, ...]: ...

    @property
    def part_names(self) -> tuple[tuple[str, str], ...]: ...

    @property
    def fixed_rate(self) -> float | None: ...


class LoopMetrics(NamedTuple):
    """Sums over one call of a loop's program.

    `fit` is one tensor, because every tensor more that a loop carries costs it time. Where float16
    overflows and an update is skipped, it is [2, F]: sums of the finite metrics, and their number.
    """

    updates: Number  # [] optimizer steps
    fit: tf.Tensor | np.ndarray  # [F] sums over updates of the policy's `metric_names`
    episodes: Number  # [] episodes that ended
    episode_return: Number  # [] sum over those episodes, in reward units
    episode_length: Number  # [] sum over those episodes, in env steps
    latest: Number  # [L] the learner's `latest_names`, as they are at the end

    @classmethod
    def zeros(cls, learner: Learner) -> LoopMetrics:
        """Nothing has happened yet."""
        none = tf.zeros([], tf.int32)
        count, skips = len(learner.policy.metric_names), learner.policy.skips_overflow
        fit = tf.zeros([2, count] if skips else [count])
        return cls(none, fit, none, tf.zeros([]), none, tf.zeros([len(learner.latest_names)]))

    def plus(self, later: LoopMetrics) -> LoopMetrics:
        """Sums over two consecutive spans; what is no sum is taken from the later."""
        pairs = zip(self[:-1], later[:-1], strict=True)
        return LoopMetrics._make([*(a + b for a, b in pairs), later.latest])

    def with_update(self, metrics: tf.Tensor) -> LoopMetrics:
        """The sums with one more update and its metrics [F]."""
        if len(self.fit.shape) == 2:
            finite = tf.math.is_finite(metrics)
            metrics = tf.stack([tf.where(finite, metrics, 0.0), tf.cast(finite, tf.float32)])
        return self._replace(updates=self.updates + 1, fit=self.fit + metrics)

    def on_host(self) -> LoopMetrics:
        """The same as NumPy arrays, which add numbers faster."""
        return LoopMetrics(*map(np.asarray, self))

    def averages(self, learner: Learner) -> dict[str, float]:
        """Means over updates and over episodes, by name; NaN where there was none."""
        with np.errstate(invalid="ignore", divide="ignore"):
            fit = np.asarray(self.fit, np.float64)
            fit = fit[0] / fit[1] if fit.ndim == 2 else fit / np.float64(self.updates)
            sums = np.array([self.episode_return, self.episode_length])
            episodes = sums / np.float64(self.episodes)
        names = (*learner.policy.metric_names, *learner.latest_names)
        names = (*names, "episode_return", "episode_length")
        values = map(float, [*fit, *np.asarray(self.latest), *episodes])
        return dict(zip(names, values, strict=True))


def learn(
    agent: KytollyAgent,
    rollout: Rollout,
    random_bits: tf.Tensor,
    metrics: LoopMetrics,
    update_enabled: bool | tf.Tensor = True,
) -> LoopMetrics:
    """Open a rollout in the agent's memory and make the iteration's updates.

    Args:
        agent: The learner; its policy may end the updates early.
        rollout: [T, E] env steps.
        random_bits: [agent.memory.num_random_words] uint32 words that pick the batches.
        metrics: Sums so far.
        update_enabled: Make updates; [] bool where only the program knows.
    """
    memory, policy = agent.memory, agent.policy
    hyper = agent.hyper()  # those of the env steps before the rollout
    opened, latest = agent.observe(rollout)
    metrics = metrics._replace(latest=latest)

    def update(
        index: int | tf.Tensor, active: bool | tf.Tensor, sums: LoopMetrics
    ) -> tuple[int | tf.Tensor, bool | tf.Tensor, LoopMetrics]:
        batch = memory.batch(opened, index, random_bits)
        result: Loss = policy.update(batch, hyper)
        memory.close(batch, result.td_error)
        again = policy.should_continue(result)
        return index + 1, active if again is None else again, sums.with_update(result.metrics)

    updates = 0 if update_enabled is False else agent.updates_due()
    if not isinstance(update_enabled, bool):
        updates = tf.where(update_enabled, updates, 0)
    if isinstance(updates, int) and updates < 2:  # entering a loop copies the weights
        metrics = update(0, True, metrics)[-1] if updates else metrics
    else:
        repeat = tf.while_loop
        if is_mapped():
            from kytolly.loop.member_state import loop_while_active as repeat

        metrics = repeat(
            lambda index, active, _: tf.logical_and(index < updates, active),
            update,
            (tf.constant(0), tf.constant(True), metrics),
        )[-1]
    agent.finish_iteration(rollout)
    return metrics
