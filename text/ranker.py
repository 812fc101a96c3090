"""A re-ranker: its task for the trainer, and its use afterwards."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from kytolly.config.ranker import RankerConfig
from kytolly.model.cross_encoder import CrossEncoder
from kytolly.policy.cross_entropy import cross_entropy
from kytolly.record.checkpoint import BEST
from kytolly.record.files import write_text
from kytolly.record.network_file import load_network
from kytolly.record.run_folder import RunFolder
from kytolly.retrieval.bm25 import BM25Index
from kytolly.retrieval.collection import Collection
from kytolly.retrieval.significance import CHANCE, best_row
from kytolly.text.outputs import RowOutputs, length_batches
from kytolly.text.ranking_data import (
    NONE,
    Candidates,
    mixed_scores,
    ndcg,
    search_split,
    training_rows,
)
from kytolly.text.rows import Lookup, Rows
from kytolly.text.tables import make_rows
from kytolly.text.vocabulary import (
    BytePairs,
    Vocabulary,
    read_vocabulary,
    text_tokens,
    write_vocabulary,
)

RANKER_FILE, VOCABULARY_FILE = "ranker.json", "vocabulary.json"
WEIGHTS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)  # of the network beside BM25, and 0: BM25 alone
EVALUATION_BUCKETS = 2  # shapes of a split's pairs


class RankedDocument(NamedTuple):
    """A document in its new order.

    Attributes:
        place: Its place among the documents that were given.
        score: What the order is by.
        network_score: What the network gives it.
    """

    place: int
    score: float
    network_score: float


class Weight(NamedTuple):
    """The weight of the network beside BM25 that dev queries allow.

    Attributes:
        weight: 0 where the network is not better than nothing beyond chance.
        chance: Probability that the best of the weights gains as much where none is better.
        queries: Number of dev queries that chose.
        gain: Their mean gain in nDCG@10 with it.
    """

    weight: float
    chance: float
    queries: int
    gain: float


class RankingTask:
    """A collection, a network and a loss, as `Trainer.train_supervised` asks for them.

    Args:
        collection: With the judgments of "train" and "dev".
        cfg: How texts are searched and read, and the sizes of the network.

    Raises:
        ValueError: A split has no query with a relevant document.
    """

    metric_names = ("accuracy",)
    best_metric = "ndcg"

    def __init__(self, collection: Collection, cfg: RankerConfig):
        self.name, self.collection, self.cfg = collection.name, collection, cfg
        self.vocabulary = BytePairs()
        self.index = BM25Index(collection.texts, k1=cfg.k1, b=cfg.b)
        self.questions = text_tokens(self.vocabulary, collection.queries, cfg.max_question_length)
        self.contexts = text_tokens(self.vocabulary, collection.texts, cfg.context_length)
        dev = self.search("dev")
        if len(dev.queries) < 2:
            raise ValueError(
                f"{collection.name} has {len(dev.queries)} dev queries with a relevant document; "
                "expected at least 2: one picks the weights of the network, one its weight beside "
                "BM25."
            )
        order = np.random.default_rng(cfg.seed).permutation(len(dev.queries))
        watched = min(cfg.dev_queries, len(order) // 2)
        self.watched, self.choosing = dev.part(order[:watched]), dev.part(order[watched:])
        self._outputs: tuple[Any, RowOutputs] | None = None

    def search(self, split: str) -> Candidates:
        """The best documents of BM25 for a split's queries."""
        return search_split(self.collection, self.index, split, self.cfg.depth)

    def make_rows(self, cfg: RankerConfig) -> Rows:
        """A question with its relevant document and negatives, in each row."""
        queries, documents = training_rows(
            self.collection, self.search("train"), cfg.negatives, cfg.samples, cfg.seed
        )
        columns = {
            "question": Lookup(self.questions, queries),
            "context": Lookup(self.contexts, documents),
        }
        return make_rows(cfg, columns)

    def make_network(self, cfg: RankerConfig) -> keras.Model:
        """The network, with wordllama's token vectors to begin with."""
        self.cfg = cfg  # XLA may be off
        table = self.vocabulary.first_vectors()
        network = CrossEncoder(
            *(len(table), cfg.max_length, table.shape[1]),
            width=cfg.width,
            layers=cfg.layers,
            heads=cfg.heads,
            dropout=cfg.dropout,
            train_embedding=cfg.train_embedding,
            recompute=cfg.activation_checkpointing,
        )
        network.build()
        network.embedding.set_weights([table])
        return network

    def loss(
        self, network: Any, batch: Mapping[str, tf.Tensor], cfg: RankerConfig
    ) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
        """Cross-entropy of the relevant document among those of its row."""
        question, context = batch["question"], batch["context"]
        rows, count, length = (int(size or 0) for size in context.shape)
        pairs = {
            "question": tf.repeat(question, count, axis=0),
            "context": tf.reshape(context, [rows * count, length]),
        }
        logits = tf.reshape(network(pairs, training=True), [rows, count])
        label = tf.zeros([rows], tf.int32)  # the relevant document comes first
        others = tf.reduce_max(logits[:, 1:], axis=1)
        accuracy = tf.reduce_mean(tf.cast(logits[:, 0] > others, tf.float32))
        return cross_entropy(logits, label, cfg.label_smoothing), {"accuracy": accuracy}

    def evaluate(self, network: Any) -> dict[str, float]:
        """NDCG@10 of some dev queries, with the best weight beside BM25 and with none of BM25."""
        if self._outputs is None or self._outputs[0] is not network:
            self._outputs = network, self.outputs(network, self.watched)
        scores = pair_scores(self._outputs[1], self.watched)
        mixed = [mixed_scores(self.watched.scores, scores, weight) for weight in WEIGHTS]
        return {
            "ndcg": max(float(ndcg(self.watched, one).mean()) for one in mixed),
            "network_ndcg": float(ndcg(self.watched, scores).mean()),
            "bm25_ndcg": float(ndcg(self.watched, self.watched.scores).mean()),
        }

    def outputs(self, network: Any, found: Candidates) -> RowOutputs:
        """The network's scores of all found documents of some queries."""
        there = found.documents != NONE
        queries = np.repeat(found.queries, there.sum(axis=1))
        columns = {
            "question": Lookup(self.questions, queries),
            "context": Lookup(self.contexts, found.documents[there]),
        }
        buckets = EVALUATION_BUCKETS
        return RowOutputs(network, score_batch, columns, num_buckets=buckets, xla=self.cfg.xla)

    def scores(self, network: Any, found: Candidates) -> np.ndarray:
        """[Q, depth] scores of the network; 0 where there is no document."""
        return pair_scores(self.outputs(network, found), found)

    def choose_weight(self, network: Any) -> Weight:
        """The weight beside BM25, by dev queries that did not pick the network."""
        found = self.choosing
        scores, start = self.scores(network, found), ndcg(found, found.scores)
        gains = np.array(
            [ndcg(found, mixed_scores(found.scores, scores, one)) - start for one in WEIGHTS]
        )
        best, chance = best_row(gains, CHANCE, self.cfg.seed)
        if best is None:
            return Weight(0.0, chance, len(start), 0.0)
        return Weight(WEIGHTS[best], chance, len(start), float(gains[best].mean()))


class Ranker:
    """A trained re-ranker.

    Args:
        network: A `CrossEncoder`.
        vocabulary: What the network was trained with.
        weight: Of the network beside BM25.
        max_question_length: Tokens of a question that are read.
        context_length: Tokens of a document that are read.
    """

    def __init__(
        self,
        network: keras.Model,
        vocabulary: Vocabulary,
        weight: float,
        max_question_length: int,
        context_length: int,
    ):
        self.network, self.vocabulary, self.weight = network, vocabulary, weight
        self.max_question_length, self.context_length = max_question_length, context_length

    @classmethod
    def load(cls, run_dir: str | Path) -> Ranker:
        """The best network of a run, with the weight that was chosen.

        Raises:
            ValueError: The folder is no run of a re-ranker, or its files do not fit.
        """
        folder = RunFolder.existing(run_dir).path
        try:
            saved = json.loads((folder / RANKER_FILE).read_text(encoding="utf-8"))
            weight = float(saved["weight"])
            lengths = int(saved["max_question_length"]), int(saved["context_length"])
            if not math.isfinite(weight) or min(lengths) < 1:
                raise ValueError("its numbers")
        except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError):
            raise ValueError(
                f"{folder} has no {RANKER_FILE} that holds the weight and the lengths of a "
                "re-ranker; expected a run of `kytolly train ranker`: give the folder that it "
                "printed."
            ) from None
        vocabulary = read_vocabulary(folder / VOCABULARY_FILE)
        return cls(load_network(folder / BEST), vocabulary, weight, *lengths)

    def save(self, folder: Path) -> None:
        """Write what a run needs beside its network."""
        names = ("weight", "max_question_length", "context_length")
        saved = {name: getattr(self, name) for name in names}
        write_text(folder / RANKER_FILE, json.dumps(saved, indent=2) + "\n")
        write_vocabulary(self.vocabulary, folder / VOCABULARY_FILE)

    def network_scores(self, query: str, documents: Sequence[str]) -> np.ndarray:
        """[n] the network's score of each document."""
        question = text_tokens(self.vocabulary, [query], self.max_question_length).tokens
        contexts = text_tokens(self.vocabulary, documents, self.context_length)
        found = np.zeros(len(documents), np.float32)
        for rows, length in length_batches(contexts.lengths):
            pairs = {
                "question": np.tile(question, (len(rows), 1)),
                "context": contexts.matrix(rows, length),
            }
            found[rows] = keras.ops.convert_to_numpy(self.network(pairs))
        return found

    def rank(
        self, query: str, documents: Sequence[str], scores: Sequence[float] | None = None
    ) -> list[RankedDocument]:
        """Documents that a search has found, in their new order, best first.

        Args:
            query: The question.
            documents: [n] texts.
            scores: [n] of BM25 for the documents; None: the network alone decides.

        Raises:
            ValueError: There is not one finite score for each document.
        """
        network = self.network_scores(query, documents)
        order_by = network.astype(np.float64)
        if scores is not None:
            given = np.asarray(scores, np.float64)
            if given.shape != network.shape or not np.isfinite(given).all():
                raise ValueError(
                    f"rank() got scores of shape {given.shape} for {len(documents)} documents; "
                    "expected one finite number for each: give those of the search."
                )
            order_by = mixed_scores(given, network, self.weight)
        order = np.argsort(-order_by, kind="stable").tolist()
        return [RankedDocument(one, float(order_by[one]), float(network[one])) for one in order]


def score_batch(network: keras.Model, batch: Mapping[str, tf.Tensor]) -> tf.Tensor:
    """[B] scores of a batch of pairs."""
    return network(dict(batch))


def pair_scores(outputs: RowOutputs, found: Candidates) -> np.ndarray:
    """[Q, depth] scores from those of the documents that were found."""
    scores = np.zeros(found.documents.shape, np.float32)
    scores[found.documents != NONE] = outputs()
    return scores
