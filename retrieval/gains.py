"""What every candidate would bring, at states that episodes pass through."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import tensorflow as tf

from environment.spec import ACTION_MASK
from retrieval.query_env import QueryEnvironment, QueryState

CHUNK = 256  # queries looked at together
LIKELY = 0.05  # gain, in units of the metric, that makes a term e times as likely to be added next


class GainExamples(NamedTuple):
    """`M` states and the reward of every action there.

    Attributes:
        candidates: [M, N, F].
        state: [M, G].
        allowed: [M, N + 1] bool.
        gain: [M, N + 1] reward of each action; 0 for STOP and for what is not allowed.
        query: [M] row of the table.
        added: [M] terms added before.
    """

    candidates: np.ndarray
    state: np.ndarray
    allowed: np.ndarray
    gain: np.ndarray
    query: np.ndarray
    added: np.ndarray


def one_step_gains(env: QueryEnvironment, state: QueryState) -> tf.Tensor:
    """[E, N + 1] reward of every action in the given states; 0 where it is not allowed."""
    copies = state.query.shape[0]
    nothing = tf.zeros([copies, 0])

    def look(action, gains):
        _, reward, _ = env.step(state, tf.fill([copies], action), nothing)
        return action + 1, gains.write(action, reward)

    gains = tf.TensorArray(tf.float32, env.candidates, element_shape=[copies])
    _, gains = tf.while_loop(
        lambda action, _: action < env.candidates, look, (tf.constant(0), gains)
    )
    found = tf.where(state.allowed, tf.transpose(gains.stack()), 0.0)
    return tf.concat([found, tf.zeros([copies, 1])], axis=-1)


def gain_examples(env: QueryEnvironment, steps: int, seed: int = 0) -> GainExamples:
    """Examples along one episode of each query in which terms of higher gain are added sooner.

    Args:
        env: The training queries.
        steps: States of each episode, the query as it was typed first.
        seed: Of the terms that are added.
    """
    rng, parts = np.random.default_rng(seed), []
    copies = min(CHUNK, env.queries)

    @tf.function(jit_compile=True, autograph=False)
    def look(state: QueryState) -> tuple:
        return env.observe(state), one_step_gains(env, state)

    @tf.function(jit_compile=True, autograph=False)
    def move(state: QueryState, action: tf.Tensor) -> tuple:
        state, _, over = env.step(state, action, tf.zeros([copies, 0]))
        return state, over

    for first in range(0, env.queries, copies):
        rows = np.arange(first, first + copies, dtype=np.int32)
        fresh = rows < env.queries
        state = env.begin(tf.constant(np.minimum(rows, env.queries - 1)))
        for added in range(steps):
            obs, gain = look(state)
            gain, allowed = gain.numpy(), obs[ACTION_MASK].numpy()
            columns = (obs["candidates"].numpy(), obs["state"].numpy(), allowed, gain, rows)
            counted = (*columns, np.full(copies, added, np.int32))
            parts.append(GainExamples(*(column[fresh] for column in counted)))
            noisy = gain / LIKELY + rng.gumbel(size=gain.shape)
            noisy[:, -1] = -np.inf  # STOP would only repeat the state
            action = np.where(allowed, noisy, -np.inf).argmax(axis=-1).astype(np.int32)
            state, over = move(state, tf.constant(action))
            fresh = fresh & ~over.numpy()
    return GainExamples(*(np.concatenate(column) for column in zip(*parts, strict=True)))
