"""A query rewriter: its task for the trainer, and its use afterwards."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import numpy as np
import tensorflow as tf
from msgspec import Meta

from kytolly.config.files import read_json
from kytolly.machine.facts import xla_enabled
from kytolly.policy.supervised import cross_entropy
from kytolly.record.checkpoint import BEST
from kytolly.record.files import write_text
from kytolly.record.network_file import load_network_of
from kytolly.record.saved_run import SavedRun
from kytolly.search.config.rewriter import RewriterConfig
from kytolly.search.index.bm25 import BM25Index
from kytolly.search.index.collection import Collection
from kytolly.search.index.tokens import EnglishTokenizer
from kytolly.search.model.sequence_to_sequence import SequenceToSequence
from kytolly.search.model.token_actor_critic import TokenActorCritic
from kytolly.search.text.outputs import RowOutputs
from kytolly.search.text.rewriting_pairs import (
    JudgedQuery,
    document_queries,
    judged_queries,
    share_of_best,
)
from kytolly.search.text.rewriting_words import (
    DIMENSION,
    Term,
    index_terms,
    make_vocabulary,
    source_tokens,
    word_vectors,
)
from kytolly.search.text.rows import Ragged, Rows, make_rows
from kytolly.search.text.teacher_forcing import (
    decoder_inputs,
    most_draws,
    right_tokens,
    sampled_inputs,
)
from kytolly.search.text.vocabulary import (
    END,
    PADDING,
    UNKNOWN,
    Words,
    read_vocabulary,
    require_tokens,
    write_vocabulary,
)
from kytolly.search.text.writing import written_tokens

REWRITER_FILE, VOCABULARY_FILE = "rewriter.json", "vocabulary.json"
EVALUATED = 1_000  # most queries and pairs of an evaluation
TOGETHER = 64  # queries that are rewritten at once
DROPOUT_SEEDS, SAMPLING_SEED = (1, 2), 3  # keep the draws of an update apart


class RewriterTask:
    """Queries and what they become, a network and a loss, as `Trainer.train_supervised` asks.

    Args:
        collection: With the judgments of train and dev.
        cfg: What a query becomes, and the sizes of the network.
    """

    metric_names = ("token_accuracy",)

    def __init__(self, collection: Collection, cfg: RewriterConfig):
        self.name, self.cfg, self.index = collection.name, cfg, BM25Index(collection.texts)
        self.collection = collection
        self.writes_terms = cfg.target == "terms"
        self.terms_tokenizer = self.index.tokenizer if self.writes_terms else None
        self.best_metric = "term_share" if self.writes_terms else "token_accuracy"
        self.queries = {
            split: self.learnable_queries(collection, split) for split in collection.judgments
        }
        texts = [*collection.texts, *(query.text for query in self.queries["train"])]
        self.vocabulary = make_vocabulary(texts, self.terms_tokenizer, cfg.vocabulary_size)
        self.pairs = {split: self.columns(split) for split in self.queries}
        self._outputs: dict[str, tuple[Any, RowOutputs, RowOutputs]] = {}

    def learnable_queries(self, collection: Collection, split: str) -> list[JudgedQuery]:
        """The queries of a split that something can be learned of."""
        queries = judged_queries(collection, self.index, split, self.cfg.max_target_length)
        if not queries:
            raise ValueError(
                f"no query of the split {split} of {collection.name} has a relevant document with "
                "a term that the query lacks and a second document has. Give another collection."
            )
        return queries

    def without(self, rows: np.ndarray) -> RewriterTask:
        """The task without some of the training queries, which are told by their numbers."""
        left = np.setdiff1d(np.arange(len(self.queries["train"])), rows)
        other = copy.copy(self)
        other.queries = self.queries | {"train": [self.queries["train"][row] for row in left]}
        other.pairs, other._outputs = {**self.pairs, "train": other.columns("train")}, {}
        return other

    def columns(self, split: str) -> dict[str, Ragged]:
        """Sources and targets: a row for each query or, of texts, for each relevant document.

        Those of train end with documents, if any are learned from.
        """
        longest, texts, cfg = self.cfg.max_target_length, self.collection.texts, self.cfg
        queries, documents = self.queries[split], []
        if split == "train" and cfg.documents:
            documents = document_queries(
                self.collection, self.index, cfg.documents, longest, cfg.seed
            )
        if self.writes_terms:
            queries = [*queries, *(query for query, _ in documents)]
            sources = [query.text for query in queries]
            targets = self.vocabulary.encode(" ".join(query.best) for query in queries)
            targets = [row[row != UNKNOWN] for row in targets]  # as many as are asked for: no end
        else:
            pairs = [(query.text, texts[doc]) for query in queries for doc in query.relevant]
            pairs += [(query.text, rest) for query, rest in documents]
            sources, written = zip(*pairs, strict=True)
            targets = [np.append(row[:longest], END) for row in self.vocabulary.encode(written)]
        return {"source": self._source(sources), "target": Ragged.of(targets)}

    def make_rows(self, cfg: RewriterConfig) -> Rows:
        """Sources and targets of the training queries."""
        return make_rows(cfg, self.pairs["train"])

    def make_network(self, cfg: RewriterConfig) -> SequenceToSequence:
        """The network, with wordllama's vectors of the words to begin with, if so configured."""
        network = SequenceToSequence(
            self.vocabulary.size,
            DIMENSION,
            cfg.units,
            attention=cfg.attention,
            dropout=cfg.dropout,
        )
        network.build()
        if cfg.pretrained:
            network.embedding.set_weights([word_vectors(self.vocabulary)])
        return network

    def loss(
        self, network: Any, batch: Mapping[str, tf.Tensor], cfg: RewriterConfig
    ) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
        """Cross-entropy of a batch, and the share of right tokens.

        With scheduled sampling the decoder runs twice: the second time, a share of the tokens
        before are what the first run thought most probable, drawn for the whole batch at once.

        Source: Bengio et al. 2015, arXiv:1506.03099; Mihaylova & Martins 2019, arXiv:1906.07651
        (two runs). Unlike there, the share stays the same for the whole run.
        """
        source, target, seed = batch["source"], batch["target"], batch["seed"][0]
        noises = [None, None]
        if cfg.dropout:
            shape = [source.shape[0], 1, network.dimension]
            noises = [
                tf.random.stateless_uniform(shape, seed + [0, number]) for number in DROPOUT_SEEDS
            ]
        memory, inputs = network.encode(source, noises[0]), decoder_inputs(target)
        if cfg.scheduled_sampling:
            hidden, share = network.output_vectors(inputs, memory), cfg.scheduled_sampling
            draws = tf.random.stateless_uniform(target.shape, seed + [SAMPLING_SEED, 0])
            most = most_draws(target.shape.num_elements(), share)
            inputs = sampled_inputs(target, hidden, draws < share, most, network.logits)
        logits = network.decode(inputs, memory, noises[1])
        loss = cross_entropy(logits, target, cfg.label_smoothing, mask=target != PADDING)
        right, count = tf.unstack(tf.reduce_sum(right_tokens(logits, target), axis=0))
        return loss, {"token_accuracy": right / tf.maximum(count, 1.0)}

    def evaluate(self, network: Any) -> dict[str, float]:
        """Token accuracy, and the share of the best terms that are written, of dev queries."""
        return self.metrics(network, "dev")

    def metrics(self, network: SequenceToSequence, split: str) -> dict[str, float]:
        """Metrics of a split, of at most `EVALUATED` queries and pairs."""
        if split not in self._outputs or self._outputs[split][0] is not network:
            self._outputs[split] = (network, *self._row_outputs(network, split))
        _, accuracy, written = self._outputs[split]
        right, count = accuracy().sum(axis=0)
        queries = self.query_sample(split)
        terms = self.proposals(queries, written())
        return {
            "token_accuracy": float(right / max(count, 1.0)),
            "term_share": share_of_best(queries, [[one.term for one in row] for row in terms]),
        }

    def query_sample(self, split: str) -> list[JudgedQuery]:
        """The queries that stand for a split."""
        queries = self.queries[split]
        return [queries[row] for row in some_rows(len(queries), self.cfg.seed)]

    def proposals(self, queries: Sequence[JudgedQuery], written: np.ndarray) -> list[list[Term]]:
        """The terms in what was written for queries: [Q, T, 2] tokens and log-probabilities."""
        return [
            index_terms(self.vocabulary, self.index.tokenizer, query.text, row, self.writes_terms)
            for query, row in zip(queries, written, strict=True)
        ]

    def _source(self, texts: Sequence[str]) -> Ragged:
        longest = self.cfg.max_source_length
        return source_tokens(self.vocabulary, texts, self.terms_tokenizer, longest)

    def _row_outputs(
        self, network: SequenceToSequence, split: str
    ) -> tuple[RowOutputs, RowOutputs]:
        count = len(self.pairs[split]["source"].lengths)
        chosen = some_rows(count, self.cfg.seed)
        pairs = {name: column.part(chosen) for name, column in self.pairs[split].items()}
        texts = [query.text for query in self.query_sample(split)]
        sources = self._source(texts)

        def accuracy(network: SequenceToSequence, batch: Mapping[str, tf.Tensor]) -> tf.Tensor:
            target = batch["target"]
            logits = network.decode(decoder_inputs(target), network.encode(batch["source"]))
            return right_tokens(logits, target)

        def tokens(network: SequenceToSequence, batch: Mapping[str, tf.Tensor]) -> tf.Tensor:
            return written_tokens(
                network, batch["source"], self.cfg.max_target_length, self.writes_terms
            )

        return (
            RowOutputs(network, accuracy, pairs, num_buckets=2, xla=self.cfg.xla),
            RowOutputs(network, tokens, {"source": sources}, num_buckets=1, xla=self.cfg.xla),
        )


class _RewriterFile(msgspec.Struct, omit_defaults=True):
    target: Literal["terms", "texts"]
    max_source_length: Annotated[int, Meta(ge=1, le=2**12)]
    max_target_length: Annotated[int, Meta(ge=1, le=2**10)]
    may_end: bool = False


class Rewriter:
    """A trained rewriter.

    Args:
        network: A `SequenceToSequence`.
        vocabulary: What it was trained with.
        settings: `target`, `max_source_length` and `max_target_length` of its config; `may_end`,
            if it learned to write fewer terms than it may.
    """

    def __init__(
        self,
        network: SequenceToSequence | TokenActorCritic,
        vocabulary: Words,
        settings: Mapping[str, Any],
    ):
        self.network, self.vocabulary, self.tokenizer = network, vocabulary, EnglishTokenizer()
        self.settings, self.writes_terms = dict(settings), settings["target"] == "terms"
        self._source_length = int(settings["max_source_length"])
        steps, may_end = int(settings["max_target_length"]), bool(settings.get("may_end"))

        def tokens(source: tf.Tensor) -> tf.Tensor:
            return written_tokens(network, source, steps, self.writes_terms, may_end)

        signature = [tf.TensorSpec([None, self._source_length], tf.int32)]
        self._written = tf.function(
            tokens, signature, autograph=False, jit_compile=xla_enabled() or None
        )

    @classmethod
    def load(cls, run_dir: str | Path) -> Rewriter:
        """The best network of a run.

        Raises:
            ValueError: The folder is no run of a rewriter, or its files do not fit.
        """
        return cls.read(SavedRun.existing(run_dir).path)

    @classmethod
    def read(cls, folder: Path) -> Rewriter:
        """The rewriter that `save` wrote, with the network beside it.

        Raises:
            ValueError: The files are not there, or do not fit.
        """
        advice = "expected a run of `kytolly train rewriter`: give the folder that it printed"
        settings = read_json(folder / REWRITER_FILE, _RewriterFile, advice)
        vocabulary: Any = read_vocabulary(folder / VOCABULARY_FILE)
        network = load_network_of(SequenceToSequence, folder / BEST)
        require_tokens(network.vocabulary, vocabulary, folder / BEST)
        return cls(network, vocabulary, msgspec.to_builtins(settings))

    def save(self, folder: Path) -> None:
        """Write what a run needs beside its network."""
        write_text(folder / REWRITER_FILE, json.dumps(self.settings, indent=2) + "\n")
        write_vocabulary(self.vocabulary, folder / VOCABULARY_FILE)

    def terms(self, query: str) -> list[Term]:
        """Terms that relevant documents may have and the query lacks, in the order of writing."""
        return self.terms_of([query])[0]

    def terms_of(self, queries: Sequence[str]) -> list[list[Term]]:
        """`terms` of each query."""
        return [
            index_terms(self.vocabulary, self.tokenizer, query, row, self.writes_terms)
            for query, row in zip(queries, self.rows(queries), strict=True)
        ]

    def texts(self, queries: Sequence[str]) -> list[str]:
        """The text that is written for each query."""
        return [self.vocabulary.decode(row[:, 0].astype(int)) for row in self.rows(queries)]

    def rows(self, queries: Sequence[str]) -> np.ndarray:
        """[Q, T, 2] tokens and log-probabilities."""
        tokenizer = self.tokenizer if self.writes_terms else None
        source = source_tokens(self.vocabulary, queries, tokenizer, self._source_length)
        matrix, size = source.matrix(np.arange(len(queries)), self._source_length), 1
        if len(queries) > 1:
            size = TOGETHER
        written = [
            self._written(tf.constant(np.resize(part, (size, part.shape[1]))))[: len(part)]
            for part in (matrix[at : at + size] for at in range(0, len(matrix), size))
        ]
        return np.concatenate(written) if written else np.zeros((0, 0, 2))


def some_rows(count: int, seed: int) -> np.ndarray:
    """At most `EVALUATED` numbers of `count` rows, ascending, by a draw from the seed."""
    return np.sort(np.random.default_rng(seed).permutation(count)[:EVALUATED])
