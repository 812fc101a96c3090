"""Q-learning of sequences, by a network with a memory."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import tensorflow as tf

from kytolly.config.dqn import DQNConfig
from kytolly.environment.memory import MEMORY
from kytolly.policy.action_values import take_action
from kytolly.policy.base import Loss
from kytolly.policy.batch import Obs
from kytolly.policy.few_columns import means
from kytolly.policy.heads import Head, Next
from kytolly.policy.hyper import Hyper
from kytolly.policy.selection import Selection
from kytolly.policy.value_learning import huber_delta, n_step_return
from kytolly.policy.weights import Weights

LARGEST_SHARE = 0.9  # of the largest error in a sequence's priority; the rest is the mean


class Sequences(NamedTuple):
    """Sequences that Q-learning with a memory learns from: rows of the first, of the second, ..."""

    obs: Any  # [B * W, *obs] entries; `memory` [B, S] is that before each sequence
    action: Any  # [B * W] int32
    reward: Any  # [B * W] of one env step
    discount: Any  # [B * W] gamma, or 0 where the episode terminated
    next_obs: Any  # [B * W, *obs] what the step led to, before any reset
    cut: Any  # [B * W] bool, no later reward belongs to the row's return
    weight: tf.Tensor | None = None  # [B] importance weight of a sequence; None: 1
    slot: tf.Tensor | None = None  # [B] int32 slot of its first row
    noise: tf.Tensor | None = None  # as in `Transition`


class SequenceLearner(Protocol):
    """A `policy.q_learning.QLearningPolicy` whose network has a memory.

    Attributes:
        cfg: Config.
        head: As there.
        selection: As there.
        updates: As there.
    """

    cfg: DQNConfig
    head: Head
    selection: Selection
    updates: tf.Variable

    def step(
        self, obs: Obs, weights: Weights, noise: Any = None, **options: Any
    ) -> tuple[tf.Tensor, tf.Tensor | None, Any]:
        """As for every policy: values, and the memory after each row."""
        ...

    def target_weights(self) -> Weights:
        """The target network's."""
        ...


def sequence_loss(policy: SequenceLearner, batch: Any, weights: Weights, hyper: Hyper) -> Loss:
    """The head's loss over the steps of sequences that follow the burn-in.

    Each sequence begins with the memory that was stored when its steps were taken. The steps of
    burn-in bring it up to date with the weights of now, of the online and of the target network,
    and no gradient passes through them. The errors that are returned are one for each sequence,
    0.9 of the largest and 0.1 of the mean, as a memory's priorities take them.

    Source: Kapturowski et al. 2019, "Recurrent Experience Replay in Distributed Reinforcement
    Learning", sections 2.3 and 3, without their rescaling of values.
    """
    sequences: Sequences = batch
    cfg, count = policy.cfg, int(sequences.obs[MEMORY].shape[0])
    burn_in, length, n_step = cfg.burn_in, cfg.sequence_length, cfg.n_step

    def apart(rows: tf.Tensor) -> tf.Tensor:
        return tf.reshape(rows, [count, -1, *rows.shape[1:]])

    def together(steps: tf.Tensor) -> tf.Tensor:
        return tf.reshape(steps, [-1, *steps.shape[2:]])

    def part(obs: Any, steps: slice) -> dict[str, tf.Tensor]:
        return {name: together(apart(rows)[:, steps]) for name, rows in obs.items()}

    def windows(steps: tf.Tensor) -> tf.Tensor:
        """[B * L, n, ...] of [B, L + n - 1, ...]."""
        return together(tf.stack([steps[:, i : i + length] for i in range(n_step)], axis=2))

    def learned(rows: tf.Tensor) -> tf.Tensor:
        """[B * L, ...] rows that are learned from, of those after burn-in."""
        return together(apart(rows)[:, :length])

    def outputs(weights: Weights, **options: Any) -> tuple[tf.Tensor, tf.Tensor]:
        memory = sequences.obs[MEMORY]
        seen = {name: rows for name, rows in sequences.obs.items() if name != MEMORY}
        if burn_in:
            before = {**part(seen, slice(burn_in)), MEMORY: memory}
            memory = tf.stop_gradient(apart(policy.step(before, weights)[-1])[:, -1])
        after = {**part(seen, slice(burn_in, None)), MEMORY: memory}
        q, _, states = policy.step(after, weights, **options)
        return q, tf.stop_gradient(states)

    def next_q(weights: Weights, memory: tf.Tensor) -> tf.Tensor:
        seen = part(sequences.next_obs, slice(burn_in, None))
        return policy.step({**seen, MEMORY: memory}, weights)[0]

    online, online_memory = outputs(weights, training=True)
    target_weights = policy.target_weights()
    target_q, target_memory = outputs(target_weights)
    following = next_q(target_weights, target_memory)
    selecting = next_q(weights, online_memory) if policy.selection.double else following
    reward, discount, cut = (
        windows(apart(column)[:, burn_in:])
        for column in (sequences.reward, sequences.discount, sequences.cut)
    )
    total, weight, used = n_step_return(reward, discount, cut)
    q, selection_values = (
        tf.gather(windows(apart(values)), used, batch_dims=1) for values in (following, selecting)
    )
    action = together(apart(sequences.action)[:, burn_in : burn_in + length])
    bonus = policy.selection.bonus(lambda: learned(target_q), action, hyper)
    hyper = hyper._replace(huber_delta=huber_delta(hyper.huber_delta, total))
    total = total if bonus is None else total + bonus
    future = Next(total, weight, q, q, selection_values, policy.updates >= 0)
    target = policy.head.target(future, policy.selection, hyper)
    losses = policy.head.loss(take_action(learned(online), action), None, target, hyper)
    td_error = losses.target - losses.estimate
    by_row = losses.loss
    if sequences.weight is not None:
        by_row *= tf.repeat(sequences.weight, length)
    loss, *others = means(by_row, tf.abs(td_error), losses.estimate)
    size = apart(tf.abs(td_error))
    error = LARGEST_SHARE * tf.reduce_max(size, -1)
    error += (1.0 - LARGEST_SHARE) * tf.reduce_mean(size, -1)
    return Loss(loss, error, tf.stack([loss, *others]))
