"""The learning half of a round, shared by both loops."""

from __future__ import annotations

import tensorflow as tf

from kytolly.agent.kytolly import KytollyAgent
from kytolly.agent.ppo_agent import PPOAgent
from kytolly.agent.rollout_buffer import minibatch, order_keys
from kytolly.loop.metrics import LoopMetrics
from kytolly.policy.batch import Rollout
from kytolly.policy.targets import explained_variance

KL_TOLERANCE = 1.5  # times target_kl; as in OpenAI's Spinning Up and Stable-Baselines3


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


def rollout_draws(agent: PPOAgent) -> int:
    """uint32 draws that `learn_rollout` needs."""
    return order_keys(agent.cfg.epochs)


def learn_rollout(
    agent: PPOAgent,
    rollout: Rollout,
    bits: tf.Tensor,
    metrics: LoopMetrics,
    cut_once: bool = False,
) -> LoopMetrics:
    """All epochs of updates from one rollout.

    With a `target_kl` no update follows the one that finds the policies too far apart.

    Args:
        agent: The learner.
        rollout: [T, E] env steps, collected with the agent's present weights.
        bits: [rollout_draws(agent)] uint32 draws that order the rows.
        metrics: Sums so far.
        cut_once: No copy was truncated more than once.
    """
    cfg = agent.cfg
    batch = agent.prepare(rollout, cut_once)
    orders = tf.reshape(bits, [cfg.epochs, -1])
    kl_place = agent.policy.figure_names.index("approximate_kl")

    def update(done, near, sums):
        epoch, part = done // cfg.updates_per_epoch, done % cfg.updates_per_epoch
        rows = minibatch(batch, part, cfg.rows_per_update, tf.gather(orders, epoch))
        figures = agent.policy.update(rows)
        if cfg.target_kl is not None:
            near = figures[kl_place] <= KL_TOLERANCE * cfg.target_kl
        return done + 1, near, sums.with_update(figures)

    updates = cfg.epochs * cfg.updates_per_epoch
    _, _, metrics = tf.while_loop(
        lambda done, near, _: tf.logical_and(done < updates, near),
        update,
        (tf.constant(0), tf.constant(True), metrics),
    )
    agent.learnt(rollout)
    return metrics._replace(latest=explained_variance(batch.value, batch.target)[tf.newaxis])
