"""The learning half of an iteration, for every algorithm and both loops, and its metrics."""

from __future__ import annotations

from typing import Any, NamedTuple

import tensorflow as tf

from kytolly.agent.kytolly import KytollyAgent
from kytolly.policy.batch import Rollout


class LoopMetrics(NamedTuple):
    """Sums over one call of a loop's program.

    `fit` is one tensor, because every tensor more that a loop carries costs it time. Where float16
    overflows and an update is skipped, it is [2, F]: sums of the finite metrics, and their number.
    """

    updates: Any  # [] optimizer steps
    fit: Any  # [F] sums over updates of the policy's `metric_names`
    episodes: Any  # [] episodes that ended
    episode_return: Any  # [] sum over those episodes, in reward units
    episode_length: Any  # [] sum over those episodes, in env steps
    latest: Any  # [L] the agent's `latest_names`, as they are at the end

    @classmethod
    def zeros(cls, agent: KytollyAgent) -> LoopMetrics:
        """Nothing has happened yet."""
        none = tf.zeros([], tf.int32)
        count, skips = len(agent.policy.metric_names), agent.policy.skips_overflow
        fit = tf.zeros([2, count] if skips else [count])
        return cls(none, fit, none, tf.zeros([]), none, tf.zeros([len(agent.latest_names)]))

    def plus(self, later: LoopMetrics) -> LoopMetrics:
        """Sums over two consecutive spans; what is no sum is taken from the later."""
        sums = LoopMetrics(*(a + b for a, b in zip(self, later, strict=True)))
        return sums._replace(latest=later.latest)

    def with_update(self, metrics: tf.Tensor) -> LoopMetrics:
        """The sums with one more update and its metrics [F]."""
        if len(self.fit.shape) == 2:
            finite = tf.math.is_finite(metrics)
            metrics = tf.stack([tf.where(finite, metrics, 0.0), tf.cast(finite, tf.float32)])
        return self._replace(updates=self.updates + 1, fit=self.fit + metrics)


def learn(
    agent: KytollyAgent,
    rollout: Rollout,
    bits: tf.Tensor,
    metrics: LoopMetrics,
    learns: bool | None = None,
) -> LoopMetrics:
    """Open a rollout in the agent's memory and make the iteration's updates.

    Args:
        agent: The learner; its policy may end the updates early.
        rollout: [T, E] env steps.
        bits: [agent.memory.draws] uint32 words that pick the batches.
        metrics: Sums so far.
        learns: Whether to update; None: once the warm-up is over.
    """
    memory, policy = agent.memory, agent.policy
    hyper = agent.hyper()  # those of the env steps before the rollout
    opened, latest = agent.observe(rollout)

    def update(index, going, sums):
        batch = memory.batch(opened, index, bits)
        result = policy.update(batch, hyper)
        if hasattr(memory, "close"):
            memory.close(batch, result.td_error)
        again = policy.should_continue(result)
        return index + 1, going if again is None else again, sums.with_update(result.metrics)

    updates: Any = 0 if learns is False else agent.updates_due()
    if learns is None and agent.cfg.first_update_env_steps:
        updates = tf.where(agent.env_steps >= agent.cfg.first_update_env_steps, updates, 0)
    metrics = metrics._replace(latest=latest)
    if isinstance(updates, int) and updates < 2:  # entering a loop copies the weights
        metrics = update(0, True, metrics)[-1] if updates else metrics
    else:
        metrics = tf.while_loop(
            lambda index, going, _: tf.logical_and(index < updates, going),
            update,
            (tf.constant(0), tf.constant(True), metrics),
        )[-1]
    agent.finish_iteration(rollout)
    return metrics
