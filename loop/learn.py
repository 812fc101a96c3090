"""The learning half of an iteration, for every algorithm and both loops."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from kytolly.agent.kytolly import KytollyAgent
from kytolly.loop.metrics import LoopMetrics
from kytolly.policy.batch import Rollout


def learn(
    agent: KytollyAgent,
    rollout: Rollout,
    bits: tf.Tensor,
    metrics: LoopMetrics,
    learns: bool | None = None,
) -> LoopMetrics:
    """Open a rollout in the agent's memory and make the iteration's updates.

    Args:
        agent: The learner.
        rollout: [T, E] env steps.
        bits: [agent.memory.draws] uint32 words that pick the batches.
        metrics: Sums so far.
        learns: Whether to update; None: once the warm-up is over.
    """
    opened, latest = agent.observe(rollout)
    metrics = metrics._replace(latest=latest)
    if learns is not False:
        updates = agent.updates_due()
        if learns is None and agent.cfg.first_update_env_steps:
            updates = tf.where(agent.env_steps >= agent.cfg.first_update_env_steps, updates, 0)
        metrics = make_updates(agent, opened, bits, metrics, updates)
    agent.finish_iteration(rollout)
    return metrics


def make_updates(
    agent: KytollyAgent, opened: Any, bits: tf.Tensor, metrics: LoopMetrics, updates: Any
) -> LoopMetrics:
    """Up to so many updates; the policy may end them early."""
    memory, policy = agent.memory, agent.policy

    def update(index, going, sums):
        batch = memory.batch(opened, index, bits)
        result = policy.update(batch)
        memory.close(batch, result.td_error)
        again = policy.keep_going(result)
        sums = sums.with_update(result.metrics)
        return index + 1, going if again is None else again, sums

    if isinstance(updates, int) and updates == 1:  # entering a loop copies the weights
        return update(0, True, metrics)[-1]
    return tf.while_loop(
        lambda index, going, _: tf.logical_and(index < updates, going),
        update,
        (tf.constant(0), tf.constant(True), metrics),
    )[-1]
