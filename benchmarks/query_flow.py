"""Query reformulation one query at a time: the flow that the compiled one replaces.

Batch 1 through the network, candidates mined in every episode, texts embedded anew at every step, a
BM25 search by `rank_bm25` and a sort for every reward, the buffer on the CPU, an update every 128
episodes. The network, the episodes and the rewards are those of `retrieval.query_env`.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from reformulation import SearchSide  # isort: skip  (checks the backend before Keras is imported)
import keras
import tensorflow as tf

from config import PPOConfig
from policy.distributions import Categorical
from policy.losses import clipped_surrogate, value_loss
from policy.ppo import normalised
from retrieval.candidates import mine_text
from retrieval.embedding import EmbeddingCache
from retrieval.metrics import metric
from retrieval.query_env import QueryEnvironment
from retrieval.query_table import Query, make_table

EPISODES_PER_UPDATE = 128
MINIBATCH = 64


class OneQueryFlow:
    """Trains a network as the old design did, for as long as it is asked to.

    Args:
        side: Collection, index and encoder.
        queries: Training queries with their judgements.
        network: Keras model ({candidates, state}) -> (logits [B, N + 1], value [B]).
        cfg: PPO's settings.
    """

    def __init__(self, side: SearchSide, queries: list[Query], network: Any, cfg: PPOConfig):
        from rank_bm25 import BM25Okapi

        self.side, self.queries, self.network, self.cfg = side, queries, network, cfg
        wanted = side.options.retrieval
        tokens = [side.index.tokenizer(text) for text in side.collection.texts]
        self.engine = BM25Okapi(tokens, k1=wanted.k1, b=wanted.b)
        self.optimizer = keras.optimizers.Adam(cfg.learning_rate, epsilon=cfg.adam_epsilon)
        self.rng = np.random.default_rng(cfg.seed)
        self.searches = self.embedded = self.episodes = 0
        self._rows: list[tuple] = []

    def run(self, seconds: float) -> float:
        """Train for about so long; returns episodes per second, updates included."""
        began, before = time.perf_counter(), self.episodes
        while time.perf_counter() - began < seconds:
            self.episode(self.queries[self.rng.integers(len(self.queries))])
            if self.episodes % EPISODES_PER_UPDATE == 0:
                self.update()
        return (self.episodes - before) / (time.perf_counter() - began)

    def episode(self, query: Query) -> float:
        """One query from its first step to its last; returns the gain."""
        text = self.side.collection.queries[query.number]
        weights, added, gain = dict(query.weights), [], 0.0
        value, (env, words) = self.judged(weights, query), self._mined(text, query)
        state = env.begin(tf.constant([0]))
        for _ in range(self.side.episode.max_terms):
            self.side.cache.encoder.encode(words)
            self.embedded += len(words)
            obs = env.observe(state)
            mask = obs.pop("action_mask").numpy()[0]
            logits, estimate = self.network(obs)
            chances = np.exp(np.where(mask, logits.numpy()[0], -1e9) - logits.numpy()[0].max())
            action = int(self.rng.choice(len(chances), p=chances / chances.sum()))
            log_prob = float(np.log(chances[action] / chances.sum()))
            reward = 0.0
            if action < env.candidates:
                added.append(action)
                state, _, _ = env.step(state, tf.constant([action]), tf.zeros([1, 0]))
                weights[query.candidates[action]] = self.side.episode.weight
                now = self.judged(weights, query)
                reward, value = now - value, now
            seen = {name: part.numpy()[0] for name, part in obs.items()}
            row = (seen, mask, action, log_prob, reward, float(estimate.numpy()[0]))
            over = action >= env.candidates or len(added) == self.side.episode.max_terms
            self._rows.append((*row, over))
            gain += reward
            if over:
                break
        self.episodes += 1
        return gain

    def judged(self, weights: dict[str, float], query: Query) -> float:
        """The metric of a weighted query: a search, a sort, and the places of what is relevant."""
        self.searches += 1
        scores = np.zeros(len(self.side.collection.texts))
        for term, weight in weights.items():
            scores += weight * self.engine.get_scores([term])
        order = np.argsort(-scores, kind="stable")
        place = np.empty(len(order), np.int32)
        place[order] = np.arange(len(order), dtype=np.int32)
        ranks = tf.constant(place[query.relevant][np.newaxis])
        counts = tf.constant([len(query.relevant)])
        return float(metric(self.side.episode.metric, ranks, counts).numpy()[0])

    def update(self) -> None:
        """Learn from the buffer and empty it."""
        seen, mask, action, log_prob, reward, value, over = zip(*self._rows, strict=True)
        advantage = self._advantages(np.array(reward), np.array(value), np.array(over))
        target, kind = advantage + np.array(value), Categorical(len(mask[0]))
        for _ in range(self.cfg.epochs):
            order = self.rng.permutation(len(action))
            for first in range(0, len(order), MINIBATCH):
                part = order[first : first + MINIBATCH]
                obs = {n: tf.constant(np.stack([seen[i][n] for i in part])) for n in seen[0]}
                adv = normalised(tf.constant(advantage[part], tf.float32))
                wanted = tf.constant(target[part], tf.float32)
                with tf.GradientTape() as tape:
                    logits, estimate = self.network(obs)
                    logits = kind.masked(logits, tf.constant(np.stack([mask[i] for i in part])))
                    chosen = tf.constant([action[i] for i in part])
                    old = tf.constant([log_prob[i] for i in part])
                    ratio = tf.exp(kind.log_prob(logits, chosen) - old)
                    loss = clipped_surrogate(ratio, adv, self.cfg.clip_range)
                    loss += self.cfg.value_coef * value_loss(estimate, wanted, wanted, None)
                    loss -= self.cfg.entropy_coef * tf.reduce_mean(kind.entropy(logits))
                weights = self.network.trainable_variables
                self.optimizer.apply(tape.gradient(loss, weights), weights)
        self._rows = []

    def _advantages(self, reward: np.ndarray, value: np.ndarray, over: np.ndarray) -> np.ndarray:
        advantage, following, next_value = np.zeros_like(value), 0.0, 0.0
        for row in reversed(range(len(reward))):
            if over[row]:
                following = next_value = 0.0
            error = reward[row] + self.cfg.gamma * next_value - value[row]
            following = error + self.cfg.gamma * self.cfg.gae_lambda * following
            advantage[row], next_value = following, value[row]
        return advantage

    def _mined(self, text: str, query: Query) -> tuple[QueryEnvironment, list[str]]:
        """The query's candidates and features from scratch, and the texts that a step embeds."""
        cache = EmbeddingCache(self.side.cache.encoder, 10_000)
        fresh = mine_text(
            text, self.side.collection.texts, self.side.index, cache, self.side.mining
        )
        self.embedded += cache.misses
        judged = fresh._replace(relevant=query.relevant)
        table = make_table([judged], self.side.index, self.side.episode)
        return QueryEnvironment(table, in_order=True), [text, *fresh.surfaces]
