"""Queries whose episodes are tensor code on the device, search included."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from kytolly.environment.spec import ACTION_MASK
from kytolly.machine.configure import xla_enabled
from kytolly.policy.base import greedy_action
from kytolly.policy.distributions import Categorical
from kytolly.reformulation.episode import (
    NO_TERM,
    GainExamples,
    PlayedQueries,
    observation,
    query_spec,
    similarity_after,
)
from kytolly.reformulation.gains import CHUNK, concatenation, next_terms
from kytolly.reformulation.pool import BLOCK, NEVER, SHOWN_SCORES
from kytolly.reformulation.table import QueryTable, subset
from kytolly.retrieval.metrics import metric, relevant_ranks

BATCH = 16  # queries ranked at once; ranks compare every relevant document with the pool


class QueryState(NamedTuple):
    """States of `E` episodes.

    Attributes:
        query: [E] int32 row of the table.
        added: [E] int32 terms added so far.
        allowed: [E, N] bool candidates that may still be added.
        scores: [E, P] float32 scores of the pool's documents.
        value: [E] the metric now.
        similarity: [E, N] cosines of the candidates with the sum of query and added terms, times
            the norm of the sum.
        squared_norm: [E] squared norm of the sum.
    """

    query: tf.Tensor
    added: tf.Tensor
    allowed: tf.Tensor
    scores: tf.Tensor
    value: tf.Tensor
    similarity: tf.Tensor
    squared_norm: tf.Tensor


class DeviceQueries(tf.Module):
    """Queries as an environment in tensor code. An episode is one query.

    Each step adds a candidate term or stops, and its reward is the change of the metric. Actions 0
    to N - 1 add a candidate, N stops. An observation is a dict: `candidates` [E, N, F],
    `state` [E, G], and the `action_mask` [E, N + 1]. The episode ends with STOP, with the last
    allowed term, or when nothing is left to add. The rewards sum up to the gain of the metric.

    Args:
        table: The queries.
        in_order: Environment e always gets query e, modulo their number, instead of a random one.

    Attributes:
        table_bytes: Size of the tables on the device.
    """

    step_uniforms = 0

    def __init__(self, table: QueryTable, in_order: bool = False):
        super().__init__(name="query_environment")
        self.rules, self.in_order, self.table_bytes = table.rules, in_order, table.bytes
        self.num_queries, self.pool_blocks = len(table.number), int(table.blocks.max())
        self.reset_uniforms = 1
        # Variables, because constants of this size would be written into the program.
        self.arrays = {
            name: tf.Variable(part, trainable=False, name=name)
            for name, part in table._asdict().items()
            if isinstance(part, np.ndarray)
        }
        self.start_value = tf.Variable(self._start_values(table), trainable=False, name="start")
        _, self.candidates, features = table.candidate_features.shape
        self.spec = query_spec(self.candidates, features, table.state_features.shape[1])

    def _start_values(self, table: QueryTable) -> np.ndarray:
        """[Q] the metric of the queries as they were typed."""
        found = np.empty(len(table.number), np.float32)
        for blocks in np.unique(table.blocks):
            same = np.flatnonzero(table.blocks == blocks)
            for rows in np.array_split(same, -(-len(same) // BATCH)):
                places = table.base_row[rows][:, np.newaxis] + np.arange(blocks)
                scores = table.base[places].reshape(len(rows), -1)
                ranks = relevant_ranks(scores, table.relevant[rows])
                counts = table.relevant_count[rows]
                found[rows] = metric(self.rules.metric, ranks, counts).numpy()
        return found

    def reset(self, uniforms: tf.Tensor) -> QueryState:
        """Queries as they were typed, picked by [E, 1] draws."""
        count = uniforms.shape[0]
        if self.in_order:
            query = tf.range(count) % self.num_queries
        else:
            query = tf.minimum(
                tf.cast(uniforms[:, 0] * float(self.num_queries), tf.int32), self.num_queries - 1
            )
        return self.begin(query)

    def begin(self, query: tf.Tensor) -> QueryState:
        """States of the given [E] queries."""
        within, rows = self._rows(query, "base_row", tf.zeros_like(query))
        base = tf.where(within[..., tf.newaxis], tf.gather(self.arrays["base"], rows), NEVER)
        return QueryState(
            query=query,
            added=tf.zeros_like(query),
            allowed=tf.gather(self.arrays["allowed"], query),
            scores=self._flat(base),
            value=tf.gather(self.start_value, query),
            similarity=tf.gather(self.arrays["query_similarity"], query),
            squared_norm=tf.ones(query.shape),
        )

    def observe(self, state: QueryState) -> dict[str, tf.Tensor]:
        """What the agent sees. Nothing in it comes from a judgment."""
        return observation(
            tf.gather(self.arrays["candidate_features"], state.query),
            tf.gather(self.arrays["state_features"], state.query),
            state,
            best_scores(state.scores, SHOWN_SCORES),
            self.rules.max_terms,
        )

    def step(
        self, state: QueryState, action: tf.Tensor, uniforms: tf.Tensor
    ) -> tuple[QueryState, tf.Tensor, tf.Tensor]:
        """Add a term or stop.

        Returns:
            The states after it, [E] changes of the metric, and [E] bool, whether episodes are over.
        """
        adds = action < self.candidates
        term = tf.minimum(action, self.candidates - 1)
        within, rows = self._rows(state.query, "column_row", term)
        # Row 0 is zero. A candidate that only fills up has no rows: what it finds is not allowed.
        rows = tf.minimum(rows, tf.shape(self.arrays["columns"])[0] - 1)
        within = within & adds[:, tf.newaxis]
        column = tf.gather(self.arrays["columns"], tf.where(within, rows, 0))
        scores = state.scores + self._flat(column)
        ranks = relevant_ranks(scores, tf.gather(self.arrays["relevant"], state.query))
        counts = tf.gather(self.arrays["relevant_count"], state.query)
        value = tf.where(adds, metric(self.rules.metric, ranks, counts), state.value)
        chosen = tf.one_hot(term, self.candidates, on_value=True, off_value=False, dtype=tf.bool)
        allowed = state.allowed & ~(chosen & adds[:, tf.newaxis])
        added = state.added + tf.cast(adds, tf.int32)
        weight = tf.where(adds, self.rules.weight, 0.0)
        with_term = tf.gather(self._similarity(state.query), term, batch_dims=1)
        own = tf.gather(state.similarity, term, batch_dims=1)
        similarity, squared_norm = similarity_after(state, weight, with_term, own)
        after = QueryState(
            query=state.query,
            added=added,
            allowed=allowed,
            scores=scores,
            value=value,
            similarity=similarity,
            squared_norm=squared_norm,
        )
        over = ~adds | (added >= self.rules.max_terms) | ~tf.reduce_any(allowed, axis=-1)
        return after, value - state.value, over

    def greedy_player(self, network: keras.Model, xla: bool = True) -> Callable[[], PlayedQueries]:
        """A function that plays every query once, always with the likeliest action.

        Args:
            network: Keras model ({candidates, state}) -> (logits [E, N + 1], value [E]).
            xla: Compile with XLA. That takes seconds, so it pays if the function is called often.
        """
        jit = (xla and xla_enabled()) or None
        program = tf.function(lambda: self._play(network), jit_compile=jit, autograph=False)
        return lambda: PlayedQueries(*(part.numpy() for part in program()))

    def gain_examples(self, steps: int, seed: int = 0, passes: int = 1) -> GainExamples:
        """Examples along episodes of each query in which terms of higher gain are added sooner.

        Args:
            steps: States of each episode; the first one is the query as it was typed.
            seed: Seed of the choice of terms.
            passes: Episodes of each query.
        """
        return concatenation(self._gain_parts(steps, seed, passes))

    def one_step_gains(self, state: QueryState) -> tf.Tensor:
        """[E, N + 1] reward of every action in the given states; 0 where it is not allowed."""
        count = state.query.shape[0]
        nothing = tf.zeros([count, 0])

        def try_action(action, gains):
            _, reward, _ = self.step(state, tf.fill([count], action), nothing)
            return action + 1, gains.write(action, reward)

        gains = tf.TensorArray(tf.float32, self.candidates, element_shape=[count])
        _, gains = tf.while_loop(
            lambda action, _: action < self.candidates, try_action, (tf.constant(0), gains)
        )
        found = tf.where(state.allowed, tf.transpose(gains.stack()), 0.0)
        return tf.concat([found, tf.zeros([count, 1])], axis=-1)

    def subset(self, rows: np.ndarray) -> DeviceQueries:
        """Some of the queries, in the order of `rows`."""
        arrays = {name: part.numpy() for name, part in self.arrays.items()}
        table = QueryTable(rules=self.rules, **arrays)
        return DeviceQueries(subset(table, rows), self.in_order)

    def for_trainer(self, num_envs: int) -> DeviceQueries:
        """The environment itself; it plays as many episodes at once as it is given states."""
        return self

    def search_metrics(self) -> dict[str, Any]:
        """Where episodes are searched."""
        return {"where": "device"}

    def _play(self, network: keras.Model) -> tuple[tf.Tensor, tf.Tensor]:
        count, distribution = self.num_queries, Categorical(self.candidates + 1)
        state = self.begin(tf.range(count))
        first, over, actions = state.value, tf.zeros([count], tf.bool), []
        for _ in range(self.rules.max_terms):
            action = greedy_action(network, distribution, self.observe(state))
            action = tf.where(over, self.candidates, action)
            state, _, ends = self.step(state, action, tf.zeros([count, 0]))
            actions.append(tf.where(action < self.candidates, action, NO_TERM))
            over = over | ends
        return tf.stack(actions, axis=-1), state.value - first

    def _gain_parts(self, steps: int, seed: int, passes: int) -> Iterator[GainExamples]:
        count, jit = min(CHUNK, self.num_queries), xla_enabled() or None

        @tf.function(jit_compile=jit, autograph=False)
        def look(state: QueryState) -> tuple:
            return self.observe(state), self.one_step_gains(state)

        @tf.function(jit_compile=jit, autograph=False)
        def move(state: QueryState, action: tf.Tensor) -> tuple:
            state, _, over = self.step(state, action, tf.zeros([count, 0]))
            return state, over

        for number, first in itertools.product(range(passes), range(0, self.num_queries, count)):
            if not first:
                rng = np.random.default_rng(seed + number)
            rows = np.arange(first, first + count, dtype=np.int32)
            fresh = rows < self.num_queries
            state = self.begin(tf.constant(np.minimum(rows, self.num_queries - 1)))
            for added in range(steps):
                obs, gain = look(state)
                gain, allowed = gain.numpy(), obs[ACTION_MASK].numpy()
                columns = (obs["candidates"].numpy(), obs["state"].numpy(), allowed, gain, rows)
                whole = (*columns, np.full(count, added, np.int32))
                yield GainExamples(*(column[fresh] for column in whole))
                state, over = move(state, tf.constant(next_terms(gain, allowed, rng)))
                fresh = fresh & ~over.numpy()

    def _similarity(self, query: tf.Tensor) -> tf.Tensor:
        return tf.gather(self.arrays["similarity"], query)

    def _rows(self, query: tf.Tensor, where: str, column: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """[E, blocks] whether a row belongs to the query's pool, and its number, 0 if not."""
        blocks = tf.gather(self.arrays["blocks"], query)[:, tf.newaxis]
        place = tf.range(self.pool_blocks)[tf.newaxis]
        first = tf.gather(self.arrays[where], query)[:, tf.newaxis]
        within = place < blocks
        return within, tf.where(within, first + column[:, tf.newaxis] * blocks + place, 0)

    def _flat(self, rows: tf.Tensor) -> tf.Tensor:
        return tf.reshape(rows, [rows.shape[0], self.pool_blocks * BLOCK])


def best_scores(scores: tf.Tensor, count: int) -> list[tf.Tensor]:
    """The `count` highest of [E, P] scores, each [E]; a sort would look at all of them."""
    place, found = tf.range(scores.shape[-1]), []
    for _ in range(count):
        found.append(tf.reduce_max(scores, axis=-1))
        best = tf.argmax(scores, axis=-1, output_type=tf.int32)
        scores = tf.where(place == best[:, tf.newaxis], NEVER, scores)
    return found
