"""The warm start: weights of candidates are learned from judgments, before PPO learns from rewards.

The loss is the cross-entropy of the relevant documents under a softmax of all scores in the pool.
Scores are linear in the weights, so every candidate of every query gets a gradient from each pass.

Source: Cao et al. 2007, "Learning to Rank: From Pairwise Approach to Listwise Approach" (ListNet's
top-one loss); Bruch et al. 2019, "An Analysis of the Softmax Cross Entropy Loss for
Learning-to-Rank with Binary Relevance".
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import keras
import numpy as np
import tensorflow as tf

from kytolly.machine.facts import xla_enabled
from kytolly.policy.weights import clip_factor, squared_norm
from kytolly.search.index.training_queries import JudgedTexts, held_out_parts
from kytolly.search.model.candidate_scorer import CandidateScorer
from kytolly.search.reformulate.choice import HeldOut
from kytolly.search.reformulate.device_env import DeviceQueries
from kytolly.search.reformulate.network import NumpyScorer, copied_scorer, make_scorer
from kytolly.search.reformulate.options import ReformulationOptions
from kytolly.search.reformulate.search import SearchContext
from kytolly.search.reformulate.table import QueryTable

FIRST_TEMPERATURE = 0.1  # of the softmax, in units of the query's highest BM25 score
ROWS = 32  # queries of a minibatch
SHARE = 300  # queries of each group in a pass
AVERAGING = 0.99  # share of the past in the running mean of the weights
WEIGHT_DECAY = 1e-2
GAIN_COEF = 1.0
MAX_GRAD_NORM = 1.0

Say = Callable[[str], None]


class ListwisePolicy(tf.Module):
    """Fits a `CandidateScorer` to judgments.

    Args:
        network: The built network.
        queries: Queries to learn from.
        learning_rate: At the start; it falls to 0 in `updates`, along a cosine.
        updates: Their number.
        weight_cost: Loss for each unit of weight.
    """

    def __init__(
        self,
        network: keras.Model,
        queries: DeviceQueries,
        learning_rate: float,
        updates: int,
        weight_cost: float = 0.0,
    ):
        super().__init__(name="listwise_policy")
        self.network, self.queries, self.weight_cost = network, queries, weight_cost
        self.log_temperature = tf.Variable(math.log(FIRST_TEMPERATURE), name="log_temperature")
        self.weights = [*network.trainable_variables, self.log_temperature]
        schedule = keras.optimizers.schedules.CosineDecay(learning_rate, max(updates, 1))
        self.optimizer = keras.optimizers.AdamW(schedule, weight_decay=WEIGHT_DECAY)
        self.optimizer.exclude_from_weight_decay(var_names=["log_temperature", "log_std"])
        self.optimizer.build(self.weights)
        self.mean_weights = [tf.Variable(tf.zeros_like(part), False) for part in self.weights]
        self.averaged = tf.Variable(0.0, trainable=False, name="averaged")
        jit = xla_enabled() or None
        self.fit_step = tf.function(self.update, jit_compile=jit, autograph=False)

    def update(self, rows: tf.Tensor, fusion: tf.Tensor) -> tf.Tensor:
        """One update from [B] rows of the table, searched with weights [B] of cosines.

        Returns:
            [2] cross-entropy and squared error of the expected gain.
        """
        queries = self.queries
        relevant = tf.gather(queries.arrays["relevant"], rows)
        pool = queries.table.base.shape[1]
        wanted = tf.reduce_sum(tf.one_hot(relevant, pool), axis=1)
        wanted /= tf.maximum(tf.reduce_sum(wanted, axis=-1, keepdims=True), 1.0)
        with tf.GradientTape() as tape:
            params, expected = self.network(queries.observation(rows, fusion), training=True)
            weights = queries.weights(rows, params[:, : queries.candidates])
            scores = queries.scores(rows, fusion, weights)
            log_shares = tf.nn.log_softmax(scores * tf.exp(-self.log_temperature))
            cross_entropy = -tf.reduce_mean(tf.reduce_sum(wanted * log_shares, axis=-1))
            used = queries.used_weights(rows, tf.stop_gradient(weights), fusion)
            gain = queries.value(rows, fusion, used)
            gain -= queries.value(rows, fusion, tf.zeros_like(used))
            error = tf.reduce_mean(tf.square(expected - gain))
            loss = cross_entropy + GAIN_COEF * error
            loss += self.weight_cost * tf.reduce_mean(tf.reduce_sum(weights, axis=-1))
        grads = tape.gradient(loss, self.weights)
        pairs = [(grad, weight) for grad, weight in zip(grads, self.weights, strict=True)]
        grads = [tf.zeros_like(weight) if grad is None else grad for grad, weight in pairs]
        norm = tf.sqrt(tf.add_n([squared_norm(grad) for grad in grads]))
        factor = clip_factor(norm, MAX_GRAD_NORM)
        self.optimizer.apply([grad * factor for grad in grads], self.weights)
        self.averaged.assign(AVERAGING * self.averaged + 1.0 - AVERAGING)
        for mean, weight in zip(self.mean_weights, self.weights, strict=True):
            mean.assign(AVERAGING * mean + (1.0 - AVERAGING) * weight)
        return tf.stack([cross_entropy, error])

    def take_mean_weights(self) -> None:
        """Give the network the running mean of its weights.

        It needs no choice among noisy evaluations. Source: Izmailov et al. 2018, arXiv:1803.05407.
        """
        for mean, weight in zip(self.mean_weights, self.weights, strict=True):
            weight.assign(mean / self.averaged)


def fit_listwise(
    network: keras.Model,
    queries: DeviceQueries,
    groups: Sequence[np.ndarray],
    epochs: int,
    learning_rate: float,
    seed: int,
    weight_cost: float = 0.0,
    watch: Callable[[int, float, float], None] = lambda epoch, loss, error: None,
) -> None:
    """Fit a network to the judgments of queries.

    Args:
        network: A built `CandidateScorer`.
        queries: The queries.
        groups: Rows of the table, such as one array for each collection. A pass takes all rows of
            one group, or `SHARE` of each where there are several.
        epochs: Passes.
        learning_rate: Of the first update.
        seed: Seed of the order of rows.
        weight_cost: Loss for each unit of weight.
        watch: Receives the number of a pass, its mean cross-entropy and its gain's squared error.
    """
    rng = np.random.default_rng(seed)
    share = max(map(len, groups)) if len(groups) == 1 else SHARE
    size = min(ROWS, share * len(groups))
    steps = max(1, share * len(groups) // size)
    policy = ListwisePolicy(network, queries, learning_rate, epochs * steps, weight_cost)
    fusions = np.array(queries.fusions, np.float32)
    for epoch in range(epochs):
        parts = [_drawn_rows(rng, group, share) for group in groups]
        order = rng.permutation(np.concatenate(parts))
        metrics = []
        for first in range(0, steps * size, size):
            rows = order[first : first + size]
            fusion = rng.choice(fusions, size)
            metrics.append(policy.fit_step(tf.constant(rows, tf.int32), tf.constant(fusion)))
        loss, error = np.mean([part.numpy() for part in metrics], axis=0)
        watch(epoch + 1, float(loss), float(error))
    if epochs:
        policy.take_mean_weights()


def _drawn_rows(rng: np.random.Generator, group: np.ndarray, count: int) -> np.ndarray:
    """`count` rows of a group: a part of a large one, a small one several times."""
    turns = -(-count // len(group))
    return np.concatenate([rng.permutation(group) for _ in range(turns)])[:count]


def warm_network(
    options: ReformulationOptions,
    train: DeviceQueries | None,
    synthetic: DeviceQueries | None,
    begin: CandidateScorer | None,
    say: Say,
    rows: np.ndarray | None = None,
) -> CandidateScorer:
    """A network that has learned from synthetic queries, if there are any, and from judgments.

    Args:
        options: Settings of learning.
        train: Queries with judgments.
        synthetic: Synthetic queries.
        begin: The network to begin with; None: a new one.
        say: Receives a line for each pass.
        rows: Rows of `train` to learn from; None: all.
    """
    training, network = options.training, begin
    for name, queries in (("synthetic queries", synthetic), ("", train)):
        if queries is None:
            continue
        network = copied_scorer(
            network or make_scorer(queries.table, options.rl_agent), options.rl_agent.dropout
        )

        def watch(epoch: int, loss: float, error: float, name: str = name) -> None:
            say(f"warm start{name and ', '}{name}: pass {epoch}, loss {loss:.4f}")

        if training.warm_start_epochs:
            all_rows = np.arange(queries.num_queries)
            fit_listwise(
                network,
                queries,
                [all_rows if rows is None or queries is synthetic else rows],
                training.warm_start_epochs,
                training.warm_start_learning_rate,
                options.seed,
                training.weight_cost,
                watch,
            )
    if network is None:
        raise ValueError("there is no query to learn from, expected some: see `prepare`.")
    return network


def parts_of(
    context: SearchContext, train: QueryTable, dev: QueryTable | None
) -> np.ndarray | None:
    """[Q] the part of each train query that `held_out_networks` leaves out together.

    Args:
        context: Has the collection and the options.
        train: Queries of the split "train".
        dev: Those of "dev"; None: there are none.

    Returns:
        None if none are asked for, or there are too few queries.
    """
    folds, collection = context.options.training.held_out_folds, context.collection
    judged = []
    for split, table in (("train", train), ("dev", dev)):
        numbers: list[int] = [] if table is None else table.number.tolist()
        others = [collection.relevant_others(number, split) for number in numbers]
        judged.append(JudgedTexts([collection.queries[number] for number in numbers], others))
    if folds < 2 or len(set(judged[0].texts)) < folds:
        return None
    return held_out_parts(judged[0], judged[1], folds, context.options.seed)


def held_out_networks(
    options: ReformulationOptions,
    train: DeviceQueries,
    fold: np.ndarray,
    synthetic: DeviceQueries | None,
    begin: CandidateScorer | None,
    say: Say,
) -> HeldOut:
    """Networks made as the warm start is, each without a part of the train queries.

    They say how much the warm start gains on queries that it did not learn from.

    Args:
        options: Settings of learning.
        train: Queries with judgments.
        fold: [Q] the part of each.
        synthetic: Synthetic queries.
        begin: The network to begin with, which has learned from none of `train`; None: a new one.
        say: Receives a line for each network.
    """
    scorers, folds = [], int(fold.max()) + 1
    for number in range(folds):
        say(f"held-out queries: part {number + 1} of {folds}")
        rows = np.flatnonzero(fold != number)
        network = warm_network(options, train, synthetic, begin, lambda line: None, rows)
        scorers.append(NumpyScorer(network))
    return HeldOut(train, scorers, fold)
