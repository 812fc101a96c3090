"""Query reformulation one query at a time: the flow that the compiled one replaces.

Batch 1 through the network, candidates mined in every episode, texts embedded anew at every step, a
BM25 search by `rank_bm25` and a sort for every reward, the buffer on the CPU, an update every 128
episodes. Observations and rewards are those of `DeviceQueries` (a test plays the same actions in
both), and the network is the same.
"""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from kytolly.config.ppo import PPOConfig
from kytolly.environment.mask import MASKED_LOGIT
from kytolly.policy.distributions import Categorical
from kytolly.policy.policy_gradient import clipped_surrogate, value_loss
from kytolly.policy.ppo import normalize
from kytolly.reformulation.candidates import mine
from kytolly.reformulation.episode import STEP_FEATURES
from kytolly.reformulation.pool import SHOWN_SCORES
from kytolly.reformulation.query import Query
from kytolly.reformulation.search import SearchSide
from kytolly.retrieval.embedding import EmbeddingCache
from kytolly.retrieval.metrics import metric

EPISODES_PER_UPDATE = 128
MINIBATCH = 64


class Row(NamedTuple):
    """One env step in the buffer, as NumPy arrays: what was seen, done and got."""

    candidates: np.ndarray
    state: np.ndarray
    mask: np.ndarray
    action: int
    log_prob: float
    value: float
    reward: float
    over: bool


class OneQueryFlow:
    """Trains a network as the old design did, for as long as it is asked to.

    Args:
        side: Collection, index and encoder.
        queries: Training queries with their judgements.
        network: Keras model ({candidates, state}) -> (logits [B, N + 1], value [B]).
        cfg: PPO's settings.

    Attributes:
        episodes: Played so far.
        embedded, searches, terms: As `benchmarks.reformulation` counts embedding calls, search
            calls and scored terms.
    """

    def __init__(self, side: SearchSide, queries: list[Query], network: Any, cfg: PPOConfig):
        from rank_bm25 import BM25Okapi

        self.side, self.queries, self.network, self.cfg = side, queries, network, cfg
        self.encoder = side.cache.encoder
        wanted = side.options.retrieval
        tokens = [side.index.tokenizer(text) for text in side.collection.texts]
        self.engine = BM25Okapi(tokens, k1=wanted.k1, b=wanted.b)
        self.optimizer = keras.optimizers.Adam(cfg.learning_rate, epsilon=cfg.adam_epsilon)
        self.optimizer.build(network.trainable_variables)
        self.rng = np.random.default_rng(cfg.seed)
        self.episodes = self.embedded = self.searches = self.terms = 0
        self._rows: list[Row] = []
        self._forward = tf.function(lambda obs: self.network(obs))
        # Traced once for any number of rows; no XLA, which would compile for every number.
        count, features = side.episode.max_candidates, queries[0].candidate_features.shape[1] + 1
        figures = len(queries[0].state_features) + STEP_FEATURES
        shapes = [([count, features], tf.float32), ([figures], tf.float32), ([count + 1], tf.bool)]
        shapes += [([], tf.int32), *[([], tf.float32)] * 3]
        rows = [tf.TensorSpec([None, *shape], kind) for shape, kind in shapes]
        self._fit = tf.function(self._apply_gradient, input_signature=rows)

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
            self.episode(self.queries[self.rng.integers(len(self.queries))])
            if (self.episodes - before) % EPISODES_PER_UPDATE == 0:
                self.update()
        self.update()
        return self.episodes - before

    def episode(self, typed: Query) -> float:
        """One query from its first step to its last; returns the gain of the metric."""
        episode, texts = self.side.episode, self.side.collection.queries
        query = self._mine(typed)
        weights, added, gain = dict(query.weights), [], 0.0
        scores, value = self.evaluate(weights, query)
        for _ in range(episode.max_terms):
            vectors = self.encoder.encode([texts[query.number], *query.surfaces])
            self.embedded += len(vectors)
            candidates, state, mask = self.observation(query, vectors, added, scores)
            action, log_prob, estimate = self.act(candidates, state, mask)
            reward, over = 0.0, action >= episode.max_candidates
            if not over:
                added.append(action)
                weights[query.candidates[action]] = episode.weight
                scores, now = self.evaluate(weights, query)
                reward, value = now - value, now
                over = len(added) == min(episode.max_terms, len(query.candidates))
            row = Row(candidates, state, mask, action, log_prob, estimate, reward, over)
            self._rows.append(row)
            gain += reward
            if over:
                break
        self.episodes += 1
        return gain

    def observation(
        self, query: Query, vectors: np.ndarray, added: list[int], scores: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Candidates [N, F], state [G] and mask [N + 1]: what `DeviceQueries.observe` shows.

        Args:
            query: Freshly mined.
            vectors: [1 + n, d] of the query and its candidates.
            added: Candidates added so far.
            scores: [documents] with them.
        """
        episode, count = self.side.episode, len(query.candidates)
        current = vectors[0] + episode.weight * vectors[1:][added].sum(axis=0)
        cosine = vectors[1:] @ current / max(float(np.linalg.norm(current)), 1e-3)
        candidates = np.zeros(
            (episode.max_candidates, query.candidate_features.shape[1] + 1), np.float32
        )
        candidates[:count, :-1], candidates[:count, -1] = query.candidate_features, cosine
        mask = np.arange(episode.max_candidates + 1) < count
        mask[added], mask[-1] = False, True
        first, *others = np.sort(np.partition(scores, -SHOWN_SCORES)[-SHOWN_SCORES:])[::-1]
        top = max(first, 1e-6)
        gaps = [(top - max(other, 0.0)) / top for other in others]
        left = (mask.sum() - 1) / episode.max_candidates
        figures = [len(added) / episode.max_terms, np.log1p(top), *gaps, left]
        return candidates, np.array([*query.state_features, *figures], np.float32), mask

    def act(
        self, candidates: np.ndarray, state: np.ndarray, mask: np.ndarray
    ) -> tuple[int, float, float]:
        """An action drawn from the policy, its log-probability, and the state's value."""
        obs = {"candidates": candidates[np.newaxis], "state": state[np.newaxis]}
        logits, value = self._forward({name: tf.constant(part) for name, part in obs.items()})
        logits = np.where(mask, logits.numpy()[0].astype(np.float64), MASKED_LOGIT)
        chances = np.exp(logits - logits.max())
        chances /= chances.sum()
        action = int(self.rng.choice(len(chances), p=chances))
        return action, float(np.log(chances[action])), float(value.numpy()[0])

    def evaluate(self, weights: dict[str, float], query: Query) -> tuple[np.ndarray, float]:
        """[documents] scores of a weighted query, and the metric: a search and a sort."""
        self.searches += 1
        self.terms += len(weights)
        scores = np.zeros(len(self.side.collection.texts))
        for term, weight in weights.items():
            scores += weight * self.engine.get_scores([term])
        if query.excluded >= 0:
            scores[query.excluded] = -np.inf
        order = np.argsort(-scores, kind="stable")
        place = np.empty(len(order), np.int32)
        place[order] = np.arange(len(order), dtype=np.int32)
        found = place[query.relevant[query.relevant != query.excluded]]
        ranks, counts = tf.constant(found[np.newaxis]), tf.constant([len(query.relevant)])
        return scores, float(metric(self.side.episode.metric, ranks, counts).numpy()[0])

    def update(self) -> None:
        """Learn from the buffer and empty it."""
        if not self._rows:
            return
        columns = [np.array(column) for column in zip(*self._rows, strict=True)]
        candidates, state, mask, action, log_prob, value, reward, over = columns
        advantage = self._advantages(reward, value, over)
        columns = [
            *(candidates, state, mask, action.astype(np.int32), log_prob.astype(np.float32)),
            *(advantage.astype(np.float32), (advantage + value).astype(np.float32)),
        ]
        for _ in range(self.cfg.epochs):
            order = self.rng.permutation(len(action))
            for first in range(0, len(order), MINIBATCH):
                part = order[first : first + MINIBATCH]
                self._fit(*(tf.constant(column[part]) for column in columns))
        self._rows = []

    def _apply_gradient(self, candidates, state, mask, action, log_prob, advantage, target) -> None:
        kind = Categorical(self.side.episode.max_candidates + 1)
        with tf.GradientTape() as tape:
            logits, value = self.network({"candidates": candidates, "state": state})
            logits = kind.mask(logits, mask)
            ratio = tf.exp(kind.log_prob(logits, action) - log_prob)
            loss = clipped_surrogate(ratio, normalize(advantage), self.cfg.clip_range)
            loss += self.cfg.value_coef * value_loss(value, target, target, None)
            loss -= self.cfg.entropy_coef * tf.reduce_mean(kind.entropy(logits))
        weights = self.network.trainable_variables
        grads, _ = tf.clip_by_global_norm(tape.gradient(loss, weights), self.cfg.max_grad_norm)
        self.optimizer.apply(grads, weights)

    def _advantages(self, reward: np.ndarray, value: np.ndarray, over: np.ndarray) -> np.ndarray:
        advantage, following, next_value = np.zeros_like(value), 0.0, 0.0
        for row in reversed(range(len(reward))):
            if over[row]:
                following = next_value = 0.0
            error = reward[row] + self.cfg.gamma * next_value - value[row]
            following = error + self.cfg.gamma * self.cfg.gae_lambda * following
            advantage[row], next_value = following, value[row]
        return advantage

    def _mine(self, typed: Query) -> Query:
        """The query's candidates and features from scratch, with its judgements."""
        side, cache = self.side, EmbeddingCache(self.encoder, 10_000)
        (fresh,) = mine(side.collection, [typed.number], side.index, cache, side.mining, workers=1)
        self.embedded += cache.misses
        self.searches += 1
        self.terms += len(fresh.weights)
        return fresh._replace(relevant=typed.relevant)
