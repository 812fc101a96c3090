"""The learning half of a round, shared by both loops."""

from __future__ import annotations

import tensorflow as tf

from agent.kytolly import KytollyAgent
from loop.metrics import LoopMetrics


def learn_round(agent: KytollyAgent, bits: tf.Tensor, metrics: LoopMetrics) -> LoopMetrics:
    """`updates_per_round` updates; the caller sees to it that warm-up is over.

    Args:
        agent: The learner.
        bits: [updates_per_round * batch_size] uint32 draws that pick the batches.
        metrics: Sums so far.
    """
    cfg = agent.cfg
    if cfg.updates_per_round == 1:  # entering a loop copies the weights: 14 microseconds
        return metrics.with_update(agent.learn(bits))
    batches = tf.reshape(bits, [cfg.updates_per_round, cfg.batch_size])
    return tf.while_loop(
        lambda done, _: done < cfg.updates_per_round,
        lambda done, sums: (done + 1, sums.with_update(agent.learn(tf.gather(batches, done)))),
        (tf.constant(0), metrics),
    )[1]


def ready(agent: KytollyAgent) -> tf.Tensor:
    """[] bool, enough env steps are collected to learn from."""
    return agent.env_steps >= agent.cfg.warmup_env_steps
