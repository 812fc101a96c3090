"""A re-ranker: its task for the trainer, and its use afterwards."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypedDict

import numpy as np
import tensorflow as tf
from msgspec import Meta

from kytolly.config.fields import from_mapping
from kytolly.config.files import read_json
from kytolly.policy.supervised import cross_entropy
from kytolly.record.checkpoint import BEST
from kytolly.record.files import write_text
from kytolly.record.network_file import load_network_of
from kytolly.record.saved_run import SavedRun
from kytolly.search.config.ranker import RankerConfig
from kytolly.search.index.collection import Collection
from kytolly.search.index.fusion import NONE, FirstSearch, FusedSearch
from kytolly.search.index.metrics import CHANCE, best_row
from kytolly.search.index.trained_documents import TrainedDocuments
from kytolly.search.model.cross_encoder import CrossEncoder
from kytolly.search.text.language import tokenizer_of
from kytolly.search.text.outputs import RowOutputs, length_batches
from kytolly.search.text.ranking_data import (
    Candidates,
    mixed_scores,
    ndcg,
    search_split,
    training_rows,
)
from kytolly.search.text.rows import Lookup, Ragged, Rows, make_rows
from kytolly.search.text.vocabulary import (
    BytePairs,
    Vocabulary,
    read_vocabulary,
    require_tokens,
    text_tokens,
    write_vocabulary,
)

RANKER_FILE, VOCABULARY_FILE = "ranker.json", "vocabulary.json"
# Of the network beside the first search; and 0: the first search alone.
WEIGHTS = (0.01, 0.03, 0.06, 0.1, 0.15, 0.25, 0.5, 1.0)
SAMPLED_PAIRS = 2_000  # that say what is usual
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
    """The weight of the network beside the first search that dev queries allow.

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
        first: The search whose best documents are ranked anew; None: the one that cfg names. In
            training it is always that one: scores that were learned from the same questions would
            say more there than on others.

    Raises:
        ValueError: A split has no query with a relevant document.
    """

    metric_names = ("accuracy",)
    best_metric = "ndcg"

    def __init__(self, collection: Collection, cfg: RankerConfig, first: FirstSearch | None = None):
        self.name, self.collection, self.cfg = collection.name, collection, cfg
        self.vocabulary, self.learned = BytePairs(), 0
        fusion = float(cfg.first_search == "fused")
        self.plain: FirstSearch = FusedSearch.of_texts(
            collection.texts,
            cfg.k1,
            cfg.b,
            fusion,
            tokenizer_of(cfg.language, collection.texts),
        )
        self.first = first or self.plain
        self.questions = text_tokens(self.vocabulary, collection.queries, cfg.max_question_length)
        self.contexts = text_tokens(self.vocabulary, collection.texts, cfg.context_length)
        if cfg.train_embedding:
            self.vocabulary, self.learned, (self.questions, self.contexts) = BytePairs.seen_first(
                self.questions, self.contexts
            )
        dev = self.search("dev")
        if len(dev.queries) < 2:
            raise ValueError(
                f"{collection.name} has {len(dev.queries)} dev queries with a relevant document; "
                "expected at least 2: one picks the weights of the network, one its weight beside "
                "the first search."
            )
        order = np.random.default_rng(cfg.seed).permutation(len(dev.queries))
        watched = min(cfg.dev_queries, len(order) // 2)
        self.watched, self.choosing = dev.part(order[:watched]), dev.part(order[watched:])
        self._outputs: tuple[Any, RowOutputs] | None = None

    def search(self, split: str) -> Candidates:
        """The best documents of the first search for a split's queries."""
        return search_split(self.collection, self.first, split, self.cfg.depth)

    @functools.cached_property
    def train(self) -> Candidates:
        """The documents that training learns from."""
        return search_split(self.collection, self.plain, "train", self.cfg.depth)

    def make_rows(self, cfg: RankerConfig) -> Rows:
        """A question with its relevant document and negatives, in each row."""
        queries, documents, scores = training_rows(
            self.collection, self.train, cfg.negatives, cfg.samples, cfg.seed
        )
        columns = {
            "question": Lookup(self.questions, queries),
            "context": Lookup(self.contexts, documents),
            "score": scores,
        }
        return make_rows(cfg, columns)

    def make_network(self, cfg: RankerConfig) -> CrossEncoder:
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
            learned=self.learned,
        )
        network.build()
        network.embedding.assign(table)
        network.rarity.assign(rarity(self.contexts, len(table)))
        self.set_units(network)
        return network

    def set_units(self, network: CrossEncoder) -> None:
        """Set what is usual for a question and a document that it finds."""
        train = self.train
        there = np.argwhere(train.documents != NONE)
        rng = np.random.default_rng(self.cfg.seed)
        rows, ranks = rng.permutation(there)[:SAMPLED_PAIRS].T
        columns = {
            "question": Lookup(self.questions, train.queries[rows]),
            "context": Lookup(self.contexts, train.documents[rows, ranks]),
        }
        shared = RowOutputs(network, shared_features, columns, num_buckets=1, xla=self.cfg.xla)()
        network.center.assign(shared.mean(axis=0))
        network.spread.assign(np.maximum(shared.std(axis=0), 1e-3))

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
        noise = None
        if cfg.dropout and cfg.layers:
            shape = [rows * count, *network.noise_shape]
            noise = tf.random.stateless_uniform(shape, batch["seed"][0])
        network_logits = tf.reshape(network(pairs, training=True, noise=noise), [rows, count])
        logits = network_logits + network.first_scale * batch["score"]
        label = tf.zeros([rows], tf.int32)  # the relevant document comes first
        others = tf.reduce_max(logits[:, 1:], axis=1)
        accuracy = tf.reduce_mean(tf.cast(logits[:, 0] > others, tf.float32))
        return cross_entropy(logits, label, cfg.label_smoothing), {"accuracy": accuracy}

    def evaluate(self, network: Any) -> dict[str, float]:
        """NDCG@10 of some dev queries: with the best weight, of the network alone, and without."""
        if self._outputs is None or self._outputs[0] is not network:
            self._outputs = network, self.outputs(network, self.watched)
        scores = pair_scores(self._outputs[1], self.watched)
        mixed = [mixed_scores(self.watched.scores, scores, weight) for weight in WEIGHTS]
        return {
            "ndcg": max(float(ndcg(self.watched, one).mean()) for one in mixed),
            "network_ndcg": float(ndcg(self.watched, scores).mean()),
            "first_ndcg": float(ndcg(self.watched, self.watched.scores).mean()),
        }

    def outputs(self, network: CrossEncoder, candidates: Candidates) -> RowOutputs:
        """The network's scores of all found documents of some queries."""
        there = candidates.documents != NONE
        queries = np.repeat(candidates.queries, there.sum(axis=1))
        columns = {
            "question": Lookup(self.questions, queries),
            "context": Lookup(self.contexts, candidates.documents[there]),
        }
        buckets = EVALUATION_BUCKETS
        return RowOutputs(network, score_batch, columns, num_buckets=buckets, xla=self.cfg.xla)

    def scores(self, network: CrossEncoder, candidates: Candidates) -> np.ndarray:
        """[Q, depth] scores of the network; 0 where there is no document."""
        return pair_scores(self.outputs(network, candidates), candidates)

    def choose_weight(self, network: CrossEncoder) -> Weight:
        """The weight beside the first search, by dev queries that did not pick the network."""
        candidates = self.choosing
        scores, start = self.scores(network, candidates), ndcg(candidates, candidates.scores)
        gains = np.array(
            [
                ndcg(candidates, mixed_scores(candidates.scores, scores, one)) - start
                for one in WEIGHTS
            ]
        )
        best, chance = best_row(gains, CHANCE, self.cfg.seed)
        if best is None:
            return Weight(0.0, chance, len(start), 0.0)
        return Weight(WEIGHTS[best], chance, len(start), float(gains[best].mean()))


class _RankerFile(TypedDict):
    weight: Annotated[float, Meta(ge=-1e30, le=1e30)]
    collection: str
    search_identity: str


class Ranker:
    """A trained re-ranker.

    Args:
        network: A `CrossEncoder`.
        vocabulary: What the network was trained with.
        weight: Of the network beside the first search.
        cfg: What it was trained with.
        collection: Where its documents are; None: nowhere.
        search_identity: The first search that the weight was chosen for, as `FirstSearch` has it.
        documents: Those that it was trained with; None: unknown.
    """

    def __init__(
        self,
        network: CrossEncoder,
        vocabulary: Vocabulary,
        weight: float,
        cfg: RankerConfig,
        collection: str | None = None,
        search_identity: str = "",
        documents: TrainedDocuments | None = None,
    ):
        self.network, self.vocabulary, self.weight, self.cfg = network, vocabulary, weight, cfg
        self.collection, self.search_identity = collection, search_identity
        self.documents = documents

        def scores(question: tf.Tensor, context: tf.Tensor) -> tf.Tensor:
            return network({"question": question, "context": context})

        tokens = tf.TensorSpec([None, None], tf.int32)
        self._scores = tf.function(scores, input_signature=[tokens, tokens], autograph=False)

    @classmethod
    def load(cls, run_dir: str | Path) -> Ranker:
        """The best network of a run, with the weight that was chosen.

        Raises:
            ValueError: The folder is no run of a re-ranker, or its files do not fit.
        """
        run = SavedRun.existing(run_dir)
        folder = run.path
        advice = "expected a run of `kytolly train ranker`: give the folder that it printed"
        saved = read_json(folder / RANKER_FILE, _RankerFile, advice)
        cfg = from_mapping(RankerConfig, run.read_config().settings)
        vocabulary = read_vocabulary(folder / VOCABULARY_FILE)
        network = load_network_of(CrossEncoder, folder / BEST)
        check_positions(network, cfg, folder)
        require_tokens(network.settings["vocabulary"], vocabulary, folder / BEST)
        origin = saved["collection"], saved["search_identity"]
        documents = TrainedDocuments.read(folder)
        return cls(network, vocabulary, saved["weight"], cfg, *origin, documents)

    def save(self, folder: Path) -> None:
        """Write what a run needs beside its network and its config."""
        names = ("weight", "collection", "search_identity")
        saved = {name: getattr(self, name) for name in names}
        write_text(folder / RANKER_FILE, json.dumps(saved, indent=2) + "\n")
        write_vocabulary(self.vocabulary, folder / VOCABULARY_FILE)
        if self.documents is not None:
            self.documents.save(folder)

    def network_scores(self, query: str, documents: Sequence[str]) -> np.ndarray:
        """[n] the network's score of each document."""
        question = text_tokens(self.vocabulary, [query], self.cfg.max_question_length).tokens
        contexts = text_tokens(self.vocabulary, documents, self.cfg.context_length)
        scores = np.zeros(len(documents), np.float32)
        for rows, length in length_batches(contexts.lengths):
            asked = np.tile(question, (len(rows), 1))
            scores[rows] = self._scores(asked, contexts.matrix(rows, length)).numpy()
        return scores

    def rank(
        self, query: str, documents: Sequence[str], scores: Sequence[float] | None = None
    ) -> list[RankedDocument]:
        """Documents that a search has found, in their new order, best first.

        Args:
            query: The question.
            documents: [n] texts.
            scores: [n] of the first search for the documents; None: the network alone decides.

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


def check_positions(network: CrossEncoder, cfg: RankerConfig, folder: Path) -> None:
    """Refuse a config by which a network reads more tokens than it has positions for.

    It may read fewer: where memory did not suffice, training went on with shorter texts.
    """
    positions = network.settings["max_length"]
    if network.blocks and cfg.max_length > positions:
        raise ValueError(
            f"{folder} has a network with {positions:,} positions, and max_length is "
            f"{cfg.max_length:,} in its config.yaml; expected as many at most: all tokens behind "
            "the last one would count as one place. Restore the file that training wrote."
        )


def rarity(texts: Ragged, vocabulary: int) -> np.ndarray:
    """[vocabulary] how rare a token is: from 0, in each text, to 1, in none of them."""
    count = len(texts.lengths)
    rows = np.repeat(np.arange(count, dtype=np.int64), texts.lengths)
    pairs = np.unique(rows * vocabulary + texts.tokens)
    frequency = np.bincount(pairs % vocabulary, minlength=vocabulary)
    return (1.0 - np.log1p(frequency) / np.log1p(count)).astype(np.float32)


def shared_features(network: CrossEncoder, batch: Mapping[str, tf.Tensor]) -> tf.Tensor:
    """[B, PAIR_FEATURES] what the texts of a batch of pairs have in common."""
    *_, shared = network.matches(batch["question"], batch["context"])
    return tf.convert_to_tensor(shared)


def score_batch(network: CrossEncoder, batch: Mapping[str, tf.Tensor]) -> tf.Tensor:
    """[B] scores of a batch of pairs."""
    return network(dict(batch))


def pair_scores(outputs: RowOutputs, candidates: Candidates) -> np.ndarray:
    """[Q, depth] scores from those of the documents that were found."""
    scores = np.zeros(candidates.documents.shape, np.float32)
    scores[candidates.documents != NONE] = outputs()
    return scores
