"""The learning half of an iteration, for every algorithm and both loops."""

from __future__ import annotations

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
        agent: The learner; its policy may end the updates early.
        rollout: [T, E] env steps.
        bits: [agent.memory.draws] uint32 words that pick the batches.
        metrics: Sums so far.
        learns: Whether to update; None: once the warm-up is over.
    """
    memory, policy = agent.memory, agent.policy
    opened, latest = agent.observe(rollout)

    def update(index, going, sums):
        result = policy.update(memory.batch(opened, index, bits))
        again = policy.keep_going(result)
        return index + 1, going if again is None else again, sums.with_update(result.metrics)

    updates, first = agent.updates_due(), agent.cfg.first_update_env_steps
    if learns is None and first:
        updates = tf.where(agent.env_steps >= first, updates, 0)
    metrics = metrics._replace(latest=latest)
    if learns is not False and isinstance(updates, int) and updates == 1:
        metrics = update(0, True, metrics)[-1]  # entering a loop copies the weights
    elif learns is not False:
        metrics = tf.while_loop(
            lambda index, going, _: tf.logical_and(index < updates, going),
            update,
            (tf.constant(0), tf.constant(True), metrics),
        )[-1]
    agent.finish_iteration(rollout)
    return metrics
