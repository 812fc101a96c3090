"""Rewriting as an environment in tensor code, search included: an env step writes a word."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from kytolly.environment.spec import ACTION_MASK, Discrete, EnvSpec
from kytolly.environment.state_variable import state_variable
from kytolly.search.index.rank_metrics import metric
from kytolly.search.text.rewriting_pools import Pools, Postings, found_ranks
from kytolly.search.text.vocabulary import BEGIN, END, PADDING, UNKNOWN

TOGETHER = 64  # queries whose metric is computed at once before training


class RewardRules(NamedTuple):
    """The reward of a written term.

    Attributes:
        metric: The reward is the change of this metric, such as "ndcg@10".
        term_weight: Weight of a written term in BM25.
        term_cost: Reward that it must earn.
    """

    metric: str = "ndcg@10"
    term_weight: float = 0.3
    term_cost: float = 0.0


class RewritingState(NamedTuple):
    """`E` queries that are being rewritten."""

    query: tf.Tensor  # [E] int32 row of the pools
    written: tf.Tensor  # [E, T] int32 terms so far, then padding
    count: tf.Tensor  # [E] int32 how many they are
    scores: tf.Tensor  # [E, P] of the pool's documents, with those terms
    value: tf.Tensor  # [E] the metric of these scores


class RewritingEnv(tf.Module):
    """Queries that get terms, one in an env step, until the end is written or there are T.

    An action is a token of the vocabulary. The mask forbids words of the query, words that are
    written already and all special tokens but the end. The reward is the change of the metric of
    BM25 by the term, minus its cost; that of the end is 0. So the rewards of an episode sum up to
    the gain of the written terms. Observations are `source` [S] and `written` [T] tokens.

    What a term adds to the scores of a pool is looked up in its postings on the device, by halving:
    `tf.searchsorted` takes time in proportion to the length of the postings under XLA.

    Args:
        name: Of the collection.
        source: [Q, S] int32 tokens of the queries, zeros at the end.
        pools: Of the queries.
        postings: Of the vocabulary's tokens.
        length: T.
        rules: What a term brings.
        in_order: Environment e gets query e, modulo their number.
    """

    reset_uniforms, step_uniforms = 1, 0

    def __init__(
        self,
        name: str,
        source: np.ndarray,
        pools: Pools,
        postings: Postings,
        length: int,
        rules: RewardRules,
        in_order: bool = False,
    ):
        super().__init__(name="rewriting_environment")
        self.rules, self.length, self.in_order = rules, length, in_order
        self.num_queries, places = source.shape
        size = len(postings.starts) - 1
        lengths = np.diff(postings.starts)
        self.halvings = int(lengths.max(initial=1)).bit_length()
        # Variables, because constants of this size would be written into the program.
        arrays = {"source": source, **pools._asdict()}
        arrays |= {f"posting_{name}": part for name, part in postings._asdict().items()}
        for part in ("posting_docs", "posting_impacts"):
            arrays[part] = np.append(arrays[part], [-2]).astype(arrays[part].dtype)  # never empty
        self.arrays = {key: state_variable(part, key) for key, part in arrays.items()}
        self.spec = EnvSpec(
            name=f"{name}-rewriting",
            obs={
                "source": tf.TensorSpec([places], tf.int32),
                "written": tf.TensorSpec([length], tf.int32),
                ACTION_MASK: tf.TensorSpec([size], tf.bool),
            },
            action=Discrete(size),
        )
        rows = tf.range(self.num_queries)
        parts = [rows[at : at + TOGETHER] for at in range(0, self.num_queries, TOGETHER)]
        start = tf.concat([self.metric(q, self.rows("base", q)) for q in parts], axis=0)
        self.start_value = tf.Variable(start, trainable=False, name="start")

    def rows(self, name: str, query: tf.Tensor) -> tf.Tensor:
        """[E, ...] rows of an array."""
        return tf.gather(self.arrays[name], query)

    def reset(self, uniform: tf.Tensor) -> RewritingState:
        """Queries picked by [E, 1] draws."""
        count = uniform.shape[0]
        query = tf.range(count) % self.num_queries
        if not self.in_order:
            query = tf.cast(uniform[:, 0] * self.num_queries, tf.int32)
            query = tf.minimum(query, self.num_queries - 1)
        written, none = tf.zeros([count, self.length], tf.int32), tf.zeros([count], tf.int32)
        value = tf.gather(self.start_value, query)
        return RewritingState(query, written, none, self.rows("base", query), value)

    def observe(self, state: RewritingState) -> dict[str, tf.Tensor]:
        """The agent's observation. Nothing in it comes from a judgment."""
        source = self.rows("source", state.query)
        return {
            "source": source,
            "written": state.written,
            ACTION_MASK: allowed_tokens(source, state.written, self.spec.num_actions),
        }

    def step(
        self, state: RewritingState, action: tf.Tensor, uniform: tf.Tensor
    ) -> tuple[RewritingState, tf.Tensor, tf.Tensor]:
        """Write a token.

        Returns:
            The states, [E] rewards, and [E] bool, whether that was the last token.
        """
        writes = action != END
        added = self.impacts(action, self.rows("docs", state.query)) * self.rules.term_weight
        scores = tf.where(writes[:, tf.newaxis], state.scores + added, state.scores)
        here = writes[:, tf.newaxis] & (tf.range(self.length) == state.count[:, tf.newaxis])
        written = tf.where(here, action[:, tf.newaxis], state.written)
        count = state.count + tf.cast(writes, tf.int32)
        value = self.metric(state.query, scores)
        reward = value - state.value - self.rules.term_cost * tf.cast(writes, tf.float32)
        after = RewritingState(state.query, written, count, scores, value)
        return after, reward, tf.logical_or(tf.logical_not(writes), count >= self.length)

    def metric(self, query: tf.Tensor, scores: tf.Tensor) -> tf.Tensor:
        """[E] the metric of scores [E, P]."""
        ranks = found_ranks(scores, self.rows("relevant", query))
        return metric(self.rules.metric, ranks, self.rows("relevant_count", query))

    def impacts(self, token: tf.Tensor, docs: tf.Tensor) -> tf.Tensor:
        """[E, P] what tokens [E] at weight 1 add to the scores of documents [E, P]."""
        starts, posted = self.arrays["posting_starts"], self.arrays["posting_docs"]
        place = tf.gather(starts, token)[:, tf.newaxis] + tf.zeros_like(docs)
        end = tf.gather(starts, token + 1)[:, tf.newaxis]
        for power in reversed(range(self.halvings)):
            beyond = place + 2**power
            before = tf.gather(posted, tf.maximum(tf.minimum(beyond, end) - 1, 0)) < docs
            place = tf.where((beyond <= end) & before, beyond, place)
        here = (place < end) & (tf.gather(posted, place) == docs)
        return tf.where(here, tf.gather(self.arrays["posting_impacts"], place), 0.0)


def allowed_tokens(source: tf.Tensor, written: tf.Tensor, size: int) -> tf.Tensor:
    """[E, size] bool: the tokens that may be written next, the end among them.

    Args:
        source: [E, S] tokens of the queries.
        written: [E, T] tokens so far.
        size: Of the vocabulary.
    """
    rows: Any = source.shape[0]
    special = tf.tile(tf.constant([[PADDING, BEGIN, UNKNOWN]]), [rows, 1])
    tokens = tf.concat([special, source, written], axis=1)
    lines = tf.range(rows)[:, tf.newaxis] + tf.zeros_like(tokens)
    places = tf.reshape(tf.stack([lines, tokens], axis=-1), [-1, 2])
    nothing = tf.zeros([places.shape[0]], tf.bool)
    return tf.tensor_scatter_nd_update(tf.ones([rows, size], tf.bool), places, nothing)
