"""What every candidate would bring, at states that episodes pass through."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from kytolly.environment.spec import ACTION_MASK
from kytolly.reformulation.baselines import ranks_of_relevant
from kytolly.reformulation.device_env import QueryEnvironment, QueryState
from kytolly.reformulation.host_env import NO_TERM, HostQueries, HostState
from kytolly.reformulation.table import Pool, make_pool
from kytolly.retrieval.metrics import NOT_RANKED, metric

CHUNK = 256  # queries looked at together
POOL_BYTES = 2**28  # of the queries that the host looks at together
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


def gain_examples(
    env: QueryEnvironment | HostQueries, steps: int, seed: int = 0, passes: int = 1
) -> GainExamples:
    """Examples along episodes of each query in which terms of higher gain are added sooner.

    Args:
        env: The training queries.
        steps: States of each episode, the query as it was typed first.
        seed: Of the terms that are added.
        passes: Episodes of each query.
    """
    play = _on_host if isinstance(env, HostQueries) else _on_device
    parts = play(env, steps, seed, passes)
    return GainExamples(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def _on_device(env: QueryEnvironment, steps: int, seed: int, passes: int) -> Iterator[GainExamples]:
    copies = min(CHUNK, env.queries)

    @tf.function(jit_compile=True, autograph=False)
    def look(state: QueryState) -> tuple:
        return env.observe(state), one_step_gains(env, state)

    @tf.function(jit_compile=True, autograph=False)
    def move(state: QueryState, action: tf.Tensor) -> tuple:
        state, _, over = env.step(state, action, tf.zeros([copies, 0]))
        return state, over

    for number, first in itertools.product(range(passes), range(0, env.queries, copies)):
        if not first:
            rng = np.random.default_rng(seed + number)
        rows = np.arange(first, first + copies, dtype=np.int32)
        fresh = rows < env.queries
        state = env.begin(tf.constant(np.minimum(rows, env.queries - 1)))
        for added in range(steps):
            obs, gain = look(state)
            gain, allowed = gain.numpy(), obs[ACTION_MASK].numpy()
            columns = (obs["candidates"].numpy(), obs["state"].numpy(), allowed, gain, rows)
            counted = (*columns, np.full(copies, added, np.int32))
            yield GainExamples(*(column[fresh] for column in counted))
            state, over = move(state, tf.constant(drawn(gain, allowed, rng)))
            fresh = fresh & ~over.numpy()


def drawn(gain: np.ndarray, allowed: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """[E] int32 terms to add next, the likelier the higher their gain; no STOP."""
    noisy = gain / LIKELY + rng.gumbel(size=gain.shape)
    noisy[:, -1] = -np.inf  # STOP would only repeat the state
    return np.where(allowed, noisy, -np.inf).argmax(axis=-1).astype(np.int32)


def _on_host(env: HostQueries, steps: int, seed: int, passes: int) -> Iterator[GainExamples]:
    rng = np.random.default_rng(seed)
    for first, pools in _pools_at_a_time(env, CHUNK // passes or 1):
        place = np.tile(np.arange(len(pools)), passes)
        rows = (first + place).astype(np.int32)
        state, fresh = env.begin(rows), np.ones(len(rows), bool)
        for added in range(steps):
            obs = env.observe(state)
            allowed = obs[ACTION_MASK]
            gain = host_gains(env, state, [pools[one] for one in place])
            columns = (obs["candidates"], obs["state"], allowed, gain, rows)
            counted = (*columns, np.full(len(rows), added, np.int32))
            yield GainExamples(*(column[fresh] for column in counted))
            action = np.where(fresh, drawn(gain, allowed, rng), env.candidates)
            state, _, over = env.step(state, action)
            fresh = fresh & ~over


def _pools_at_a_time(env: HostQueries, most: int) -> Iterator[tuple[int, list[Pool]]]:
    """The first query and the pools of it and those after it, as many as memory should hold."""
    first, pools, taken = 0, [], 0
    for row, query in enumerate(env.rows):
        pools.append(make_pool(query, env.index, env.settings))
        taken += pools[-1].columns.nbytes
        if len(pools) == most or taken > POOL_BYTES or row + 1 == env.queries:
            yield first, pools
            first, pools, taken = row + 1, [], 0


def host_gains(env: HostQueries, state: HostState, pools: Sequence[Pool]) -> np.ndarray:
    """[E, N + 1] reward of every action in the given states; 0 where it is not allowed."""
    wide = max(1, *(len(pool.relevant) for pool in pools))
    ranks = np.full((len(pools), env.candidates, wide), NOT_RANKED, np.int32)
    for copy, pool in enumerate(pools):
        columns = pool.columns.reshape(len(pool.columns), -1)
        scores = pool.base.ravel() + columns
        for term in state.chosen[copy]:
            if term != NO_TERM:
                scores += columns[term]
        query = env.rows[state.query[copy]]._replace(relevant=pool.relevant, excluded=-1)
        ranks[copy, : len(columns), : len(pool.relevant)] = ranks_of_relevant(query, scores)
    counts = env.arrays["relevant_count"][state.query]
    counts = np.broadcast_to(counts[:, np.newaxis], ranks.shape[:2])
    found = metric(env.settings.metric, ranks, counts).numpy() - state.value[:, np.newaxis]
    gain = np.where(state.allowed, found, np.float32(0.0))
    return np.concatenate([gain, np.zeros((len(gain), 1), np.float32)], axis=-1)
