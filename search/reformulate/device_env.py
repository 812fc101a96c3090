"""Queries as an environment in tensor code, search included."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeVar

import numpy as np
import tensorflow as tf

from kytolly.environment.spec import Box, EnvSpec
from kytolly.environment.state_variable import state_variable
from kytolly.search.index.rank_metrics import metric, relevant_ranks
from kytolly.search.reformulate.mining_features import LENGTH_UNIT, QUERY_FEATURES
from kytolly.search.reformulate.query import IN_QUERY, SearchRules
from kytolly.search.reformulate.table import QueryTable

BATCH = 64  # queries ranked at once where all are; ranks compare relevant documents with the pool
QUERY_LENGTH = QUERY_FEATURES.index("query length")
MAX_ACTION = 20.0  # of an action, whose softplus is a weight
MIN_WEIGHT = 0.01  # a term of less is not added
MAX_LOWERED = 0.9  # share of its weight that a term of the query loses: what it finds stays found


Features = TypeVar("Features", np.ndarray, tf.Tensor)


class QueryState(NamedTuple):
    """`E` episodes.

    Attributes:
        query: [E] int32 row of the table.
        fusion: [E] int32 place in `DeviceQueries.fusions`.
    """

    query: tf.Tensor
    fusion: tf.Tensor


class DeviceQueries(tf.Module):
    """Queries as an environment in tensor code. An episode is one query and has one step.

    An action gives every candidate a number whose softplus is its weight [E, N]; for a term of the
    query, it is the share that the term loses. The reward is the change of the metric under a
    search with the weights, minus a cost for each added term. Observations
    are a dict: `candidates` [E, N, F] and `state` [E, G + 1], whose last number is the weight of
    the cosines in the search.

    Args:
        table: The queries.
        rules: Limits of a reformulation.
        fusions: Weights of the cosines; an episode has one of them.
        term_cost: Reward that an added term must earn.
        in_order: Environment e gets query e, modulo their number, and then the next fusion.
    """

    step_uniforms = 0

    def __init__(
        self,
        table: QueryTable,
        rules: SearchRules,
        fusions: Sequence[float] = (0.0,),
        term_cost: float = 0.0,
        in_order: bool = False,
    ):
        super().__init__(name="query_environment")
        self.table, self.rules, self.term_cost, self.in_order = table, rules, term_cost, in_order
        self.num_queries, self.table_bytes = len(table.number), table.bytes
        self.reset_uniforms = 2
        # Variables, because constants of this size would be written into the program.
        self.arrays = {name: state_variable(part, name) for name, part in table._asdict().items()}
        self.is_query_term = tf.Variable(
            is_query_term(table.candidate_features), trainable=False, name="own"
        )
        self.fusions = tuple(fusions)
        self.weights_of_fusion = tf.constant(self.fusions, tf.float32)
        _, self.candidates, features = table.candidate_features.shape
        self.spec = EnvSpec(
            name="query-reformulation",
            obs={
                "candidates": tf.TensorSpec([self.candidates, features], tf.float32),
                "state": tf.TensorSpec([table.state_features.shape[1] + 1], tf.float32),
            },
            action=Box((-MAX_ACTION,) * self.candidates, (MAX_ACTION,) * self.candidates),
        )
        nothing = np.zeros((self.num_queries, self.candidates), np.float32)
        starts = [self.values(fusion, nothing) for fusion in self.fusions]
        # Flat, because XLA has no gather_nd of a variable.
        self.start_value = tf.Variable(np.concatenate(starts), trainable=False, name="start")

    def reset(self, uniform: tf.Tensor) -> QueryState:
        """Queries and fusions picked by [E, 2] draws."""
        count, kinds = uniform.shape[0], len(self.fusions)
        if self.in_order:
            number = tf.range(count)
            return QueryState(number % self.num_queries, number // self.num_queries % kinds)
        ends = tf.constant([self.num_queries, kinds])
        picked = tf.cast(uniform * tf.cast(ends, tf.float32), tf.int32)
        picked = tf.minimum(picked, ends - 1)
        return QueryState(picked[:, 0], picked[:, 1])

    def observe(self, state: QueryState) -> dict[str, tf.Tensor]:
        """The agent's observation. Nothing in it comes from a judgment."""
        return self.observation(state.query, tf.gather(self.weights_of_fusion, state.fusion))

    def observation(self, query: tf.Tensor, fusion: tf.Tensor) -> dict[str, tf.Tensor]:
        """The observation of [E] rows of the table, searched with weights [E] of cosines."""
        state = tf.gather(self.arrays["state_features"], query)
        return {
            "candidates": tf.gather(self.arrays["candidate_features"], query),
            "state": tf.concat([state, fusion[:, tf.newaxis]], axis=-1),
        }

    def step(
        self, state: QueryState, action: tf.Tensor, uniform: tf.Tensor
    ) -> tuple[QueryState, tf.Tensor, tf.Tensor]:
        """Search with the weights.

        Returns:
            The states, [E] rewards, and [E] bool, true: all episodes are over.
        """
        fusion = tf.gather(self.weights_of_fusion, state.fusion)
        weights = self.used_weights(state.query, self.weights(state.query, action), fusion)
        before = tf.gather(self.start_value, state.fusion * self.num_queries + state.query)
        gain = self.value(state.query, fusion, weights) - before
        added = tf.logical_and(weights > 0.0, tf.logical_not(self.in_query(state.query)))
        terms = tf.reduce_sum(tf.cast(added, tf.float32), axis=-1)
        over = tf.ones_like(state.query, tf.bool)
        return state, gain - self.term_cost * terms, over

    def weights(self, query: tf.Tensor, numbers: tf.Tensor) -> tf.Tensor:
        """[E, N] weights that an agent's numbers [E, N] stand for."""
        weights = tf.nn.softplus(numbers)
        return tf.where(self.in_query(query), tf.minimum(weights, MAX_LOWERED), weights)

    def used_weights(self, query: tf.Tensor, weights: tf.Tensor, fusion: tf.Tensor) -> tf.Tensor:
        """[E, N] `kept_weights` of rows of the table, within `bounded_weights`.

        Args:
            query: [E] rows of the table.
            weights: [E, N] weights of the candidates.
            fusion: [E] weights of the cosines in the search.
        """
        in_query, shares = self.in_query(query), self.rules.typed_shares
        weights = kept_weights(weights, in_query, self.rules.max_terms)
        typed = typed_weight(tf.gather(self.arrays["state_features"], query))
        plain, fused = (
            weights if share is None else bounded_weights(weights, in_query, typed, share)
            for share in shares
        )
        return (
            plain if shares[0] == shares[1] else tf.where(fusion[:, tf.newaxis] > 0.0, fused, plain)
        )

    def in_query(self, query: tf.Tensor) -> tf.Tensor:
        """[E, N] bool, true for terms of the query, which a weight lowers."""
        return tf.gather(self.is_query_term, query)

    def scores(self, query: tf.Tensor, fusion: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
        """[E, P] scores of the pool's documents.

        Args:
            query: [E] rows of the table.
            fusion: [E] weights of the cosines.
            weights: [E, N] weights of the candidates.
        """
        columns = tf.cast(tf.gather(self.arrays["columns"], query), tf.float32)
        base = tf.gather(self.arrays["base"], query)
        base += fusion[:, tf.newaxis] * tf.gather(self.arrays["cosine"], query)
        return base + tf.einsum("en,enp->ep", weights, columns)

    def value(self, query: tf.Tensor, fusion: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
        """[E] the metric of `scores`."""
        scores = self.scores(query, fusion, weights)
        ranks = relevant_ranks(scores, tf.gather(self.arrays["relevant"], query))
        return metric(self.rules.metric, ranks, tf.gather(self.arrays["relevant_count"], query))

    def values(
        self, fusion: float, weights: np.ndarray, rows: np.ndarray | None = None
    ) -> np.ndarray:
        """[R] the metric of rows [R] of the table, or of all, under weights [R, N]."""
        values, rows = [], np.arange(self.num_queries) if rows is None else rows
        for first in range(0, len(rows), BATCH):
            query = tf.constant(rows[first : first + BATCH], tf.int32)
            given = tf.convert_to_tensor(weights[first : first + BATCH], tf.float32)
            values.append(self.value(query, tf.fill(query.shape, fusion), given).numpy())
        return np.concatenate(values)


def is_query_term(candidate_features: np.ndarray) -> np.ndarray:
    """[..., N] bool from features [..., N, F]: true for terms of the query."""
    return candidate_features[..., IN_QUERY] > 0.5


def kept_weights(weights: tf.Tensor, in_query: tf.Tensor, max_terms: int) -> tf.Tensor:
    """[E, N] weights, 0 for those that are too small, and for added terms beyond `max_terms`.

    The largest are kept. Of equal weights, those of the first candidates are.

    Args:
        weights: [E, N].
        in_query: [E, N] bool, true for those that lower a term of the query: they do not count.
        max_terms: Most added terms.
    """
    count = weights.shape[-1]
    if max_terms < count:
        best = tf.math.top_k(tf.where(in_query, 0.0, weights), max_terms).indices
        weights *= tf.where(in_query, 1.0, tf.reduce_sum(tf.one_hot(best, count), axis=1))
    return tf.where(weights >= MIN_WEIGHT, weights, 0.0)


def bounded_weights(
    weights: tf.Tensor, in_query: tf.Tensor, typed: tf.Tensor, share: float
) -> tf.Tensor:
    """[E, N] weights of which typed words keep their share of the query.

    A word of weight `w` keeps at least `share * w`, and the added terms of a query whose words
    weigh `T` get at most `(1 - share) * T` together. So at least `share` of the new query's weight
    is that of typed words.

    Args:
        weights: [E, N].
        in_query: [E, N] bool, true for those that lower a term of the query.
        typed: [E] the weight of all words as they were typed, `T`.
        share: From 0 to 1.
    """
    total = tf.reduce_sum(tf.where(in_query, 0.0, weights), axis=-1)
    factor = tf.minimum(1.0, (1.0 - share) * typed / tf.maximum(total, MIN_WEIGHT))
    lowered = tf.minimum(weights, 1.0 - share)
    bounded = tf.where(in_query, lowered, weights * factor[:, tf.newaxis])
    return tf.where(bounded >= MIN_WEIGHT, bounded, 0.0)


def typed_weight(state_features: Features) -> Features:
    """[...] the weight of a query's words, from its features [..., G]."""
    return state_features[..., QUERY_LENGTH] * LENGTH_UNIT


def used_proposals(
    weights: np.ndarray,
    features: np.ndarray,
    state: np.ndarray,
    rules: SearchRules,
    fusion: float,
) -> np.ndarray:
    """`DeviceQueries.used_weights` in NumPy.

    Args:
        weights: [Q, N].
        features: [Q, N, F] of the candidates.
        state: [Q, G] features of the queries, or more.
        rules: Limits of a reformulation.
        fusion: Weight of the cosines in the search.
    """
    in_query, share = is_query_term(features), rules.typed_share(fusion)
    weights = kept_proposals(weights, in_query, rules.max_terms)
    if share is None:
        return weights
    left = np.float32(1.0 - share)
    total = np.where(in_query, np.float32(0.0), weights).sum(axis=-1)
    factor = np.minimum(1.0, left * typed_weight(state) / np.maximum(total, MIN_WEIGHT))
    added = weights * factor[:, np.newaxis].astype(np.float32)
    bounded = np.where(in_query, np.minimum(weights, left), added)
    return np.where(bounded >= MIN_WEIGHT, bounded, np.float32(0.0))


def kept_proposals(weights: np.ndarray, in_query: np.ndarray, max_terms: int) -> np.ndarray:
    """`kept_weights` in NumPy."""
    if max_terms < weights.shape[1]:
        others = np.argsort(np.where(in_query, 0.0, -weights), axis=1, kind="stable")[:, max_terms:]
        added = np.ones_like(in_query)
        np.put_along_axis(added, others, False, axis=1)
        weights = np.where(added | in_query, weights, 0.0)
    return np.where(weights >= MIN_WEIGHT, weights, 0.0)
