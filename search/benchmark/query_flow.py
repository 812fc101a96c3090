"""Query reformulation one query at a time: the two flows that the compiled one is compared with.

Both play one episode after another, with the same network, queries and rewards as
`DeviceQueries` (a test plays the same actions in all three).

- `OneQueryFlow` is the usual program: candidates mined and texts embedded anew in every episode,
  the network called with one row, a search by `rank_bm25` and a sort for every reward, an update
  every 128 episodes.
- `SequentialFlow` is the fastest that we can write: everything is mined, embedded and searched for
  once, the network runs in NumPy, only added terms are scored, through our sparse index, and
  updates are compiled, as large as those of the compiled flow.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from kytolly.config.ppo import PPOConfig
from kytolly.machine.facts import xla_enabled
from kytolly.policy.continuous import Gaussian
from kytolly.policy.losses import clipped_surrogate, value_loss
from kytolly.policy.ppo import normalize
from kytolly.search.index.embedding import EmbeddingCache
from kytolly.search.index.fusion import score_unit
from kytolly.search.index.metrics import metric_parts
from kytolly.search.index.rank_metrics import ideal_dcg
from kytolly.search.model.candidate_scorer import NO_WEIGHT, CandidateScorer
from kytolly.search.reformulate.device_env import (
    MAX_ACTION,
    MAX_LOWERED,
    is_query_term,
    used_proposals,
)
from kytolly.search.reformulate.network import NumpyScorer
from kytolly.search.reformulate.query import Query, mine
from kytolly.search.reformulate.search import SearchContext
from kytolly.search.reformulate.table import candidate_postings, padded_rows

if TYPE_CHECKING:
    from rank_bm25 import BM25Okapi

EPISODES_PER_UPDATE, MINIBATCH = 128, 64  # of the usual program


class Row(NamedTuple):
    """One episode, which is one env step, in the buffer: what was seen, done and got."""

    candidates: np.ndarray
    state: np.ndarray
    action: np.ndarray
    log_prob: float
    value: float
    reward: float


class QueryByQuery:
    """Trains a network with PPO, one query after another, for as long as it is asked to.

    Args:
        context: Collection, index and embeddings.
        queries: Training queries with their judgments.
        fusions: Weights of the cosines; an episode has one of them.
        network: A `CandidateScorer`, which learns.
        cfg: PPO's config.
        rows: Episodes between two updates.
        minibatch: Rows of an optimizer step.

    Attributes:
        episodes: Played so far.
        embedded, searches, terms: Embedding calls, search calls and scored terms, as
            `search.benchmark.reformulation` counts them.
    """

    def __init__(
        self,
        context: SearchContext,
        queries: Sequence[Query],
        fusions: Sequence[float],
        network: CandidateScorer,
        cfg: PPOConfig,
        rows: int = EPISODES_PER_UPDATE,
        minibatch: int = MINIBATCH,
    ):
        self.context, self.queries, self.fusions = context, queries, fusions
        self.network, self.cfg, self.rows, self.minibatch = network, cfg, rows, minibatch
        self.candidates = context.rules.max_candidates
        self.distribution = Gaussian(
            (-MAX_ACTION,) * self.candidates, (MAX_ACTION,) * self.candidates
        )
        self.optimizer = keras.optimizers.Adam(cfg.learning_rate, epsilon=cfg.adam_epsilon)
        self.optimizer.build(network.trainable_variables)
        self.rng = np.random.default_rng(cfg.seed)
        self.episodes = self.embedded = self.searches = self.terms = 0
        self.buffer: list[Row] = []

    @functools.cached_property
    def _fit(self) -> Callable[..., None]:
        return tf.function(self._apply_gradient, autograph=False, reduce_retracing=True)

    @property
    def counts(self) -> tuple[int, int, int]:
        """Embedding calls, search calls and scored terms so far."""
        return self.embedded, self.searches, self.terms

    def ready(self) -> None:
        """Play and learn a little, so that every function is traced."""
        self.run(0.0)

    def run(self, seconds: float) -> int:
        """Train for at least so long, and learn from what is left; returns the episodes played."""
        began, before = time.perf_counter(), self.episodes
        while self.episodes == before or time.perf_counter() - began < seconds:
            self.play_any()
            if len(self.buffer) == self.rows:
                self.update()
        self.update()
        return self.episodes - before

    def play_any(self) -> None:
        """Play an episode of any query and weight of the cosines."""
        row = int(self.rng.integers(len(self.queries)))
        self.play(row, self.fusions[int(self.rng.integers(len(self.fusions)))])

    def play(self, row: int, fusion: float) -> float:
        """Play one episode; returns its reward."""
        raise NotImplementedError

    def finish(
        self,
        shown: tuple[np.ndarray, np.ndarray],
        action: np.ndarray,
        drawn: tuple[float, float],
        reward: float,
    ) -> float:
        """Remember an episode; returns its reward."""
        self.buffer.append(Row(*shown, action, *drawn, reward))
        self.episodes += 1
        return reward

    def action(
        self, means: np.ndarray, log_std: float, value: float
    ) -> tuple[np.ndarray, tuple[float, float]]:
        """A drawn action [N], and its log-density with the expected gain."""
        noise = self.rng.standard_normal(len(means), dtype=np.float32)
        density = -0.5 * float(noise @ noise) - len(noise) * (log_std + 0.5 * np.log(2.0 * np.pi))
        return means + np.float32(np.exp(log_std)) * noise, (float(density), value)

    def weights(self, action: np.ndarray, candidates: np.ndarray, state: np.ndarray) -> np.ndarray:
        """[N] weights that an action gives candidates [N, F] of a query with features [G + 1]."""
        action = np.clip(action, -MAX_ACTION, MAX_ACTION)
        weights = np.logaddexp(action, np.float32(0.0))
        lowered = np.minimum(weights, np.float32(MAX_LOWERED))
        weights = np.where(is_query_term(candidates), lowered, weights)
        row = weights[np.newaxis], candidates[np.newaxis], state[np.newaxis]
        return used_proposals(*row, self.context.rules, float(state[-1]))[0]

    def update(self) -> None:
        """Learn from the buffer and empty it."""
        if not self.buffer:
            return
        columns = [np.array(part, np.float32) for part in zip(*self.buffer, strict=True)]
        candidates, state, action, log_prob, value, reward = columns
        columns = [candidates, state, action, log_prob, reward - value, reward]
        for _ in range(self.cfg.epochs):
            order = self.rng.permutation(len(reward))
            for first in range(0, len(order), self.minibatch):
                part = order[first : first + self.minibatch]
                self._fit(*(tf.constant(column[part]) for column in columns))
        self.buffer = []

    def _apply_gradient(
        self,
        candidates: tf.Tensor,
        state: tf.Tensor,
        action: tf.Tensor,
        log_prob: tf.Tensor,
        advantage: tf.Tensor,
        target: tf.Tensor,
    ) -> None:
        cfg = self.cfg
        with tf.GradientTape() as tape:
            params, value = self.network({"candidates": candidates, "state": state})
            ratio = tf.exp(self.distribution.log_prob(params, action) - log_prob)
            loss = clipped_surrogate(ratio, normalize(advantage), cfg.clip_range)
            loss += cfg.value_coef * value_loss(value, target, target, None)
            loss -= (cfg.entropy_coef or 0.0) * tf.reduce_mean(self.distribution.entropy(params))
        weights = self.network.trainable_variables
        grads, _ = tf.clip_by_global_norm(tape.gradient(loss, weights), cfg.max_grad_norm)
        self.optimizer.apply(grads, weights)

    def observation(self, query: Query, fusion: float) -> tuple[np.ndarray, np.ndarray]:
        """Candidates [N, F] and state [G + 1]: what `DeviceQueries.observe` shows."""
        state = np.append(query.state_features, fusion).astype(np.float32)
        return padded_rows([query.candidate_features], self.candidates)[0], state


class OneQueryFlow(QueryByQuery):
    """The usual program: see the top of this file."""

    @functools.cached_property
    def engine(self) -> BM25Okapi:
        """The index of rank_bm25."""
        from rank_bm25 import BM25Okapi

        wanted, index = self.context.options.retrieval, self.context.index
        tokens = [index.tokenizer(text) for text in self.context.collection.texts]
        return BM25Okapi(tokens, k1=wanted.k1, b=wanted.b)

    @functools.cached_property
    def _forward(self) -> Callable[[dict[str, tf.Tensor]], tuple[tf.Tensor, tf.Tensor]]:
        return tf.function(lambda obs: self.network(obs))

    def play(self, row: int, fusion: float) -> float:
        """Play one episode; returns its reward."""
        query = self._mine(self.queries[row])
        shown = self.observation(query, fusion)
        action, drawn = self.act(*shown)
        typed = self.scores(query.weights)
        if query.excluded >= 0:
            typed[query.excluded] = 0.0
        cosines = fusion * score_unit(typed) * self.context.documents.cosines(query.vector)
        before = self.value(query, typed + cosines)
        weights = self.weights(action, *shown)
        changes = {int(place): float(weights[place]) for place in np.flatnonzero(weights)}
        after = self.value(query, self.scores(query.changed_weights(changes)) + cosines)
        return self.finish(shown, action, drawn, after - before)

    def act(
        self, candidates: np.ndarray, state: np.ndarray
    ) -> tuple[np.ndarray, tuple[float, float]]:
        """An action drawn from the policy, its log-density, and the expected gain."""
        obs = {"candidates": candidates[np.newaxis], "state": state[np.newaxis]}
        params, value = self._forward({name: tf.constant(part) for name, part in obs.items()})
        means, log_std = np.split(params.numpy()[0], 2)
        return self.action(means, float(log_std[0]), float(value.numpy()[0]))

    def scores(self, weights: dict[str, float]) -> np.ndarray:
        """[documents] scores of a weighted query."""
        self.searches += 1
        self.terms += len(weights)
        scores = np.zeros(len(self.context.collection.texts))
        for term, weight in weights.items():
            scores += weight * self.engine.get_scores([term])
        return scores

    def value(self, query: Query, scores: np.ndarray) -> float:
        """The metric of a ranking."""
        if query.excluded >= 0:
            scores[query.excluded] = -np.inf
        order = np.argsort(-scores, kind="stable")
        rank = np.empty(len(order), np.int64)
        rank[order] = np.arange(len(order))
        ranks = rank[query.relevant[query.relevant != query.excluded]]
        return metric_value(self.context.rules.metric, ranks, len(query.relevant))

    def _mine(self, typed: Query) -> Query:
        """The query's candidates and features from scratch, with its judgments."""
        context, cache = self.context, EmbeddingCache(self.context.cache.encoder, 10_000)
        (fresh,) = mine(
            context.collection,
            [typed.number],
            context.index,
            cache,
            context.documents,
            context.mining,
            workers=1,
        )
        self.embedded += cache.misses
        self.searches += 1
        self.terms += len(fresh.weights)
        return fresh._replace(relevant=typed.relevant)


class Start(NamedTuple):
    """The start of an episode, kept for all episodes of the query.

    Attributes:
        shown: What the agent sees.
        scores: [documents] scores before terms are added, cosines included.
        value: The metric of `scores`.
        postings: Documents of each candidate, and what it adds to their scores at weight 1.
    """

    shown: tuple[np.ndarray, np.ndarray]
    scores: np.ndarray
    value: float
    postings: list[tuple[np.ndarray, np.ndarray]]


class SequentialFlow(QueryByQuery):
    """The fastest program that plays one query at a time: see the top of this file."""

    @functools.cached_property
    def _fit(self) -> Callable[..., None]:
        jit = xla_enabled() or None
        return tf.function(self._apply_gradient, jit_compile=jit, autograph=False)

    def ready(self) -> None:
        """Search for all queries once, and compile the update."""
        self._starts = {
            (row, fusion): self.start(query, fusion)
            for row, query in enumerate(self.queries)
            for fusion in self.fusions
        }
        self._read_network()
        self.run(0.0)

    def run(self, seconds: float) -> int:
        """Train for at least so long, in whole iterations; returns the episodes played."""
        began, before = time.perf_counter(), self.episodes
        while self.episodes == before or time.perf_counter() - began < seconds:
            for _ in range(self.rows):
                self.play_any()
            self.update()
            self._read_network()
        return self.episodes - before

    def play(self, row: int, fusion: float) -> float:
        """Play one episode; returns its reward."""
        start = self._starts[row, fusion]
        candidates, state = start.shown
        proposed, value = self.scorer(candidates[np.newaxis], state[np.newaxis])
        action, drawn = self.action(inverse_softplus(proposed[0]), self.log_std, float(value[0]))
        weights = self.weights(action, candidates, state)
        scores, places = start.scores.copy(), np.flatnonzero(weights[: len(start.postings)])
        for place in places:
            docs, impacts = start.postings[place]
            scores[docs] += weights[place] * impacts
        self.searches += 1
        self.terms += len(places)
        after = self.value(self.queries[row], scores)
        return self.finish(start.shown, action, drawn, after - start.value)

    def start(self, query: Query, fusion: float) -> Start:
        """The start of the query's episodes."""
        index = self.context.index
        scores = index.scores(query.weights)
        if query.excluded >= 0:
            scores[query.excluded] = 0.0
        unit = np.float32(fusion * score_unit(scores))
        scores += unit * self.context.documents.cosines(query.vector)
        if query.excluded >= 0:
            scores[query.excluded] = -np.inf
        postings = [candidate_postings(index, query, place) for place in range(query.options)]
        return Start(self.observation(query, fusion), scores, self.value(query, scores), postings)

    def value(self, query: Query, scores: np.ndarray) -> float:
        """The metric of a ranking, by counting what is before the relevant documents."""
        ranks = []
        for doc in query.relevant:
            if doc != query.excluded:
                score = scores[doc]
                ahead = np.count_nonzero(scores > score) + np.count_nonzero(scores[:doc] == score)
                ranks.append(ahead)
        return metric_value(self.context.rules.metric, np.array(ranks), len(query.relevant))

    def _read_network(self) -> None:
        self.scorer, self.log_std = NumpyScorer(self.network), float(self.network.log_std.numpy())


def inverse_softplus(weights: np.ndarray) -> np.ndarray:
    """The numbers whose softplus are weights above 0; `NO_WEIGHT` for weights of 0."""
    above = np.maximum(weights, np.float32(1e-8))
    means = above + np.log(-np.expm1(-above))
    return np.where(weights > 0.0, means, np.float32(NO_WEIGHT)).astype(np.float32)


def metric_value(name: str, ranks: np.ndarray, count: int) -> float:
    """`search.index.metrics.metric` of one query in NumPy.

    Args:
        name: ndcg@k, ap, recall@k or mrr@k.
        ranks: Ranks of the relevant documents from 0.
        count: Number of relevant documents.
    """
    kind, depth = metric_parts(name)
    places = np.sort(ranks) + 1.0
    if depth is not None:
        places = places[places <= depth]
    if not len(places) or not count:
        return 0.0
    if kind == "mrr":
        return float(1.0 / places[0])
    if kind == "recall":
        return len(places) / count
    if kind == "ap":
        return float(np.sum(np.arange(1, len(places) + 1) / places)) / count
    return float(
        np.sum(1.0 / np.log2(places + 1.0)) / ideal_dcg(depth or 0)[min(count, depth or 0)]
    )
