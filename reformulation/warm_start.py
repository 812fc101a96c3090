"""Learning from one-step gains, before reinforcement learning begins."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from kytolly.environment.mask import MASKED_LOGIT
from kytolly.machine.configure import xla_enabled
from kytolly.policy.weights import clip_factor, squared_norm
from kytolly.reformulation.episode import GainExamples, Queries
from kytolly.reformulation.options import ReformulationOptions

TEMPERATURE = 0.05  # gain, in units of the metric, that makes an action e times as likely
PATIENCE = 12  # passes without a better gain on dev queries
EPISODES = 4  # episodes of each training query whose states are learned from
ROWS = 256  # rows of a minibatch


class GainPolicy(tf.Module):
    """Fits a network [B, *obs] -> (logits [B, A], value [B]) to the gain of every action.

    Args:
        network: Built Keras model.
        optimizer: Keras optimizer.
        temperature: Gain, in reward units, that makes an action e times as likely.
        value_coef: Weight of the value loss.
        max_grad_norm: Gradient clipping, over all weights together.
        xla: Compile with XLA.
    """

    def __init__(
        self,
        network: keras.Model,
        optimizer: keras.optimizers.Optimizer,
        temperature: float,
        value_coef: float = 0.5,
        max_grad_norm: float = 0.5,
        xla: bool = True,
    ):
        super().__init__(name="gain_policy")
        self.network, self.optimizer = network, optimizer
        self.temperature, self.value_coef = temperature, value_coef
        self.max_grad_norm = max_grad_norm
        self.optimizer.build(network.trainable_variables)
        jit = (xla and xla_enabled()) or None
        self.fit_step = tf.function(self.update, jit_compile=jit, autograph=False)

    def update(self, obs: Any, mask: tf.Tensor, gain: tf.Tensor) -> tf.Tensor:
        """One update.

        Args:
            obs: [B, *obs] or a dict of them, without a mask.
            mask: [B, A] bool, which actions are allowed.
            gain: [B, A] reward of each action.

        Returns:
            [3] loss, cross-entropy, and the mean gain that the policy expects.
        """
        weights = self.network.trainable_variables
        with tf.GradientTape() as tape:
            outputs = self.network(obs, training=True)
            logits, value = (tf.cast(part, tf.float32) for part in outputs)
            logits = tf.where(mask, logits, MASKED_LOGIT)
            cross_entropy = soft_cross_entropy(
                logits, tf.where(mask, gain / self.temperature, MASKED_LOGIT)
            )
            best = tf.reduce_max(tf.where(mask, gain, 0.0), axis=-1)
            value_loss = tf.reduce_mean(tf.square(tf.reshape(value, [-1]) - best))
            loss = cross_entropy + self.value_coef * value_loss
        grads = tape.gradient(loss, weights)
        norm = tf.sqrt(tf.add_n([squared_norm(grad) for grad in grads]))
        factor = clip_factor(norm, self.max_grad_norm)
        grads = [grad * tf.cast(factor, grad.dtype) for grad in grads]
        self.optimizer.apply(grads, weights)
        expected = tf.reduce_mean(tf.reduce_sum(tf.nn.softmax(logits) * gain, axis=-1))
        return tf.stack([loss, cross_entropy, expected])


def warm_start_examples(queries: Queries, options: ReformulationOptions) -> GainExamples:
    """One-step gains along a few episodes of each training query."""
    return queries.gain_examples(options.retrieval.max_terms, options.seed, EPISODES)


def warm_start(
    network: keras.Model,
    examples: GainExamples,
    dev: Queries,
    options: ReformulationOptions,
    watch: Callable[[dict[str, float]], None] = lambda row: None,
) -> list[dict[str, float]]:
    """Fit a network to one-step gains; it keeps the weights that gain most on dev queries.

    Args:
        network: Keras model ({candidates, state}) -> (logits [E, N + 1], value [E]).
        examples: One-step gains of training queries.
        dev: Queries that decide when to stop.
        options: How long and how fast to learn.
        watch: Receives each row as soon as it is known.

    Returns:
        A row for each pass: training loss, and the mean gain on dev queries.
    """
    training, agent = options.training, options.rl_agent
    optimizer = keras.optimizers.AdamW(training.warm_start_learning_rate, weight_decay=1e-2)
    policy = GainPolicy(network, optimizer, TEMPERATURE, agent.value_coef, agent.max_grad_norm)
    play_dev = dev.greedy_player(network)
    rng, rows = np.random.default_rng(options.seed), []
    size = min(ROWS, len(examples.gain))
    best, best_weights, since = -np.inf, network.get_weights(), 0
    for epoch in range(training.warm_start_epochs):
        order, metrics = rng.permutation(len(examples.gain)), []
        for first in range(0, len(order) - size + 1, size):
            part = order[first : first + size]
            obs = {"candidates": examples.candidates[part], "state": examples.state[part]}
            update = policy.fit_step(obs, examples.allowed[part], examples.gain[part])
            metrics.append(update.numpy())
        gain = float(play_dev().gains.mean())
        loss = float(np.mean(metrics, axis=0)[0])
        rows.append({"epoch": epoch + 1, "loss": loss, "dev_gain": gain})
        watch(rows[-1])
        since += 1
        if gain > best:
            best, best_weights, since = gain, network.get_weights(), 0
        if since >= PATIENCE:
            break
    network.set_weights(best_weights)
    return rows


def soft_cross_entropy(logits: tf.Tensor, target_logits: tf.Tensor) -> tf.Tensor:
    """[] mean cross-entropy of a softmax with the softmax of the target logits, both [B, A].

    Source: Bishop 2006, "Pattern Recognition and Machine Learning", equation 4.108.
    """
    target = tf.stop_gradient(tf.nn.softmax(target_logits))
    return -tf.reduce_mean(tf.reduce_sum(target * tf.nn.log_softmax(logits), axis=-1))
