"""Reformulating queries as an environment in tensor code, search included."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import tensorflow as tf

from kytolly.environment.spec import ACTION_MASK, Discrete, EnvSpec
from kytolly.reformulation.table import BLOCK, NEVER, SHOWN_SCORES, QueryTable
from kytolly.retrieval.metrics import metric, ranks_of

STATE_FIGURES = 5  # of `observation`, beside the query's own
TOGETHER = 16  # queries ranked at once; ranks compare every relevant document with the pool


class QueryState(NamedTuple):
    """`E` queries on their way.

    Attributes:
        query: [E] int32 row of the table.
        added: [E] int32 terms added so far.
        allowed: [E, N] bool candidates that may still be added.
        scores: [E, P] float32 of the pool's documents.
        value: [E] the metric now.
        similarity: [E, N] of the candidates with the sum of query and added terms, times its norm.
        squared_norm: [E] of that sum.
    """

    query: tf.Tensor
    added: tf.Tensor
    allowed: tf.Tensor
    scores: tf.Tensor
    value: tf.Tensor
    similarity: tf.Tensor
    squared_norm: tf.Tensor


class QueryEnvironment(tf.Module):
    """An episode is one query: each step adds a candidate term, or stops; the reward is the gain.

    Actions 0 to N - 1 add a candidate, N stops. An observation is a dict: `candidates` [E, N, F],
    `state` [E, G], and the `action_mask` [E, N + 1]. The episode ends with STOP, with the last
    allowed term, or when nothing is left to add. Rewards sum up to the gain of the metric.

    Args:
        table: The queries.
        in_order: Copy e always gets query e, modulo their number, instead of a random one: with as
            many copies as queries each is played once.
    """

    step_uniforms = 0

    def __init__(self, table: QueryTable, in_order: bool = False):
        super().__init__(name="query_environment")
        self.settings, self.in_order = table.settings, in_order
        self.queries, self.pool_blocks = len(table.number), int(table.blocks.max())
        self.reset_uniforms = 1
        # Variables, because constants of this size would be written into the program.
        self.arrays = {
            name: tf.Variable(part, trainable=False, name=name)
            for name, part in table._asdict().items()
            if isinstance(part, np.ndarray)
        }
        self.start_value = tf.Variable(self._start_values(table), trainable=False, name="start")
        _, count, features = table.candidate_features.shape
        self.candidates = count
        self.spec = query_spec(count, features, table.state_features.shape[1])

    def _start_values(self, table: QueryTable) -> np.ndarray:
        """[Q] the metric of the queries as they were typed."""
        found = np.empty(len(table.number), np.float32)
        for blocks in np.unique(table.blocks):
            same = np.flatnonzero(table.blocks == blocks)
            for rows in np.array_split(same, -(-len(same) // TOGETHER)):
                places = table.base_row[rows][:, np.newaxis] + np.arange(blocks)
                scores = table.base[places].reshape(len(rows), -1)
                ranks = ranks_of(scores, table.relevant[rows])
                counts = table.relevant_count[rows]
                found[rows] = metric(self.settings.metric, ranks, counts).numpy()
        return found

    def reset(self, uniforms: tf.Tensor) -> QueryState:
        """Queries as they were typed, picked by [E, 1] draws."""
        copies = uniforms.shape[0]
        if self.in_order:
            query = tf.range(copies) % self.queries
        else:
            query = tf.minimum(
                tf.cast(uniforms[:, 0] * float(self.queries), tf.int32), self.queries - 1
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
        """What the agent sees; nothing in it comes from a judgement."""
        return observation(
            tf.gather(self.arrays["candidate_features"], state.query),
            tf.gather(self.arrays["state_features"], state.query),
            state,
            best_scores(state.scores, SHOWN_SCORES),
            self.settings.max_terms,
        )

    def step(
        self, state: QueryState, action: tf.Tensor, uniforms: tf.Tensor
    ) -> tuple[QueryState, tf.Tensor, tf.Tensor]:
        """Add a term or stop; the reward [E] is the change of the metric; [E] bool whether over."""
        adds = action < self.candidates
        term = tf.minimum(action, self.candidates - 1)
        within, rows = self._rows(state.query, "column_row", term)
        within = within & adds[:, tf.newaxis]
        column = tf.gather(self.arrays["columns"], tf.where(within, rows, 0))  # row 0 is zero
        scores = state.scores + self._flat(column)
        ranks = ranks_of(scores, tf.gather(self.arrays["relevant"], state.query))
        counts = tf.gather(self.arrays["relevant_count"], state.query)
        value = tf.where(adds, metric(self.settings.metric, ranks, counts), state.value)
        chosen = tf.one_hot(term, self.candidates, on_value=True, off_value=False, dtype=tf.bool)
        allowed = state.allowed & ~(chosen & adds[:, tf.newaxis])
        added = state.added + tf.cast(adds, tf.int32)
        weight = tf.where(adds, self.settings.weight, 0.0)
        with_term = tf.gather(self._similarity(state.query), term, batch_dims=1)
        own = tf.gather(state.similarity, term, batch_dims=1)
        similarity, squared_norm = longer(state, weight, with_term, own)
        after = QueryState(
            query=state.query,
            added=added,
            allowed=allowed,
            scores=scores,
            value=value,
            similarity=similarity,
            squared_norm=squared_norm,
        )
        over = ~adds | (added >= self.settings.max_terms) | ~tf.reduce_any(allowed, axis=-1)
        return after, value - state.value, over

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


class Episode(Protocol):
    """What `observation` reads of a state, as in `QueryState`; tensors or NumPy arrays."""

    @property
    def added(self) -> Any:
        """[E] int32 terms added so far."""
        ...

    @property
    def allowed(self) -> Any:
        """[E, N] bool candidates that may still be added."""
        ...

    @property
    def similarity(self) -> Any:
        """[E, N] of the candidates with the sum of query and added terms, times its norm."""
        ...

    @property
    def squared_norm(self) -> Any:
        """[E] of that sum."""
        ...


def query_spec(candidates: int, features: int, figures: int) -> EnvSpec:
    """The environment's spec, from the sizes of a table's features."""
    return EnvSpec(
        name="query-reformulation",
        obs={
            "candidates": tf.TensorSpec([candidates, features + 1], tf.float32),
            "state": tf.TensorSpec([figures + STATE_FIGURES], tf.float32),
            ACTION_MASK: tf.TensorSpec([candidates + 1], tf.bool),
        },
        action=Discrete(candidates + 1),
    )


def observation(
    candidate_features: Any, state_features: Any, state: Episode, best: Sequence, max_terms: int
) -> dict[str, tf.Tensor]:
    """What the agent sees; nothing in it comes from a judgement.

    Args:
        candidate_features: [E, N, F] of the queries' candidates.
        state_features: [E, G] of the queries.
        state: How far the episodes are.
        best: The highest scores [E] of the search as it stands, best first.
        max_terms: Most terms that an episode adds.
    """
    norm = tf.sqrt(tf.maximum(state.squared_norm, 1e-6))[:, tf.newaxis]
    cosine = (state.similarity / norm)[..., tf.newaxis]
    first, *others = best
    top = tf.maximum(first, 1e-6)
    gaps = [(top - tf.maximum(other, 0.0)) / top for other in others]
    added = tf.cast(state.added, tf.float32) / max_terms
    left = tf.reduce_mean(tf.cast(state.allowed, tf.float32), axis=-1)
    figures = tf.stack([added, tf.math.log1p(top), *gaps, left], axis=-1)
    stop = tf.ones([state.allowed.shape[0], 1], tf.bool)
    return {
        "candidates": tf.concat([candidate_features, cosine], axis=-1),
        "state": tf.concat([state_features, figures], axis=-1),
        ACTION_MASK: tf.concat([state.allowed, stop], axis=-1),
    }


def longer(state: Episode, weight: Any, with_term: Any, own: Any) -> tuple[Any, Any]:
    """`similarity` and `squared_norm` after a term is added at a `weight` [E].

    Args:
        state: Before.
        weight: [E], 0 where no term is added.
        with_term: [E, N] cosines of the candidates with the term.
        own: [E] `state.similarity` of the term itself.
    """
    similarity = state.similarity + weight[:, np.newaxis] * with_term
    return similarity, state.squared_norm + 2.0 * weight * own + weight * weight


def best_scores(scores: tf.Tensor, count: int) -> list[tf.Tensor]:
    """The `count` highest of [E, P] scores, each [E]; a sort would look at all of them."""
    place, found = tf.range(scores.shape[-1]), []
    for _ in range(count):
        found.append(tf.reduce_max(scores, axis=-1))
        best = tf.argmax(scores, axis=-1, output_type=tf.int32)
        scores = tf.where(place == best[:, tf.newaxis], NEVER, scores)
    return found
