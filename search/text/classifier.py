"""A text classifier: its task for the trainer, and its use afterwards."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypedDict

import keras
import numpy as np
import tensorflow as tf
from msgspec import Meta

from kytolly.config.files import read_json
from kytolly.policy.supervised import balanced_class_weights, cross_entropy
from kytolly.record.checkpoint import BEST
from kytolly.record.files import write_text
from kytolly.record.network_file import load_network_of
from kytolly.record.saved_run import SavedRun
from kytolly.search.config.classifier import ClassifierConfig
from kytolly.search.model.text_classifier import TextClassifierNetwork, TokenBag
from kytolly.search.text.classification_report import (
    ClassificationReport,
    classification_report,
    macro_f1,
    sklearn_metrics,
)
from kytolly.search.text.labeled_texts import LabeledSplits
from kytolly.search.text.outputs import length_batches
from kytolly.search.text.rows import PADDING, Ragged, Rows, make_rows
from kytolly.search.text.vocabulary import (
    BytePairs,
    Vocabulary,
    read_vocabulary,
    text_tokens,
    write_vocabulary,
)

CLASSES_FILE, VOCABULARY_FILE = "classifier.json", "vocabulary.json"
TRAINING_TEXTS = 1_000  # that evaluations compare with the dev split


class Prediction(NamedTuple):
    """The most probable class of a text.

    Attributes:
        label: Its name.
        probability: What the network gives it.
    """

    label: str
    probability: float


class ClassificationTask:
    """Labeled texts, a network and a loss, as `Trainer.train_supervised` asks for them.

    Args:
        name: Name of the data.
        data: Labeled texts in splits.
        cfg: How texts are read, and the sizes of the network.
    """

    metric_names = ("accuracy",)
    best_metric = "macro_f1"

    def __init__(self, name: str, data: LabeledSplits, cfg: ClassifierConfig):
        sklearn_metrics()  # what is missing is said before training
        self.name, self.data = name, data
        whole = BytePairs()
        tokens = {
            split: text_tokens(whole, part.texts, cfg.max_length)
            for split, part in data.splits.items()
        }
        self.vocabulary, self.seen, _ = BytePairs.seen_first(tokens["train"])
        self.tokens = {split: self.vocabulary.new_numbers(part) for split, part in tokens.items()}
        self.labels = {
            split: np.array(data.class_indices(split), np.int32) for split in self.tokens
        }
        self.weights = None
        if cfg.class_weights == "auto":
            self.weights = balanced_class_weights(self.labels["train"], len(data.classes))
        drawn = np.random.default_rng(cfg.seed).permutation(len(self.labels["train"]))
        self.watched = np.sort(drawn[:TRAINING_TEXTS])
        self.watched_tokens = self.tokens["train"].part(self.watched)

    def make_rows(self, cfg: ClassifierConfig) -> Rows:
        """Tokens and labels of the training texts."""
        return make_rows(cfg, {"tokens": self.tokens["train"], "label": self.labels["train"]})

    def make_network(self, cfg: ClassifierConfig) -> TextClassifierNetwork:
        """The network, with wordllama's token vectors to begin with."""
        table = self.vocabulary.first_vectors()
        network = TextClassifierNetwork(
            *(len(table), len(self.data.classes), table.shape[1]),
            filters=cfg.filters,
            kernel_size=cfg.kernel_size,
            dropout=cfg.dropout,
            train_embedding=cfg.train_embedding,
            pair_buckets=cfg.pair_buckets,
            seen=self.seen,
        )
        network.build((None, None))
        network.embedding.assign(table)
        if network.bag is not None:
            network.bag.idf.assign(inverse_document_frequencies(network.bag, self.tokens["train"]))
        return network

    def loss(
        self, network: Any, batch: Mapping[str, tf.Tensor], cfg: ClassifierConfig
    ) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
        """Cross-entropy of a batch, and the share of right predictions."""
        label, shape = batch["label"], [batch["label"].shape[0], network.num_features]
        noise = tf.random.stateless_uniform(shape, batch["seed"][0])
        logits = network(batch["tokens"], training=True, noise=noise)
        loss = cross_entropy(logits, label, cfg.label_smoothing, self.weights)
        right = tf.argmax(logits, axis=-1, output_type=tf.int32) == label
        return loss, {"accuracy": tf.reduce_mean(tf.cast(right, tf.float32))}

    def evaluate(self, network: Any) -> dict[str, float]:
        """Macro F1 on the dev split, and on as many training texts without dropout."""
        predicted = self.predict(network, "dev")
        learned = class_probabilities(network, self.watched_tokens).argmax(axis=1)
        return {
            "macro_f1": macro_f1(self.labels["dev"], predicted),
            "accuracy": float((predicted == self.labels["dev"]).mean()),
            "training_macro_f1": macro_f1(self.labels["train"][self.watched], learned),
        }

    def predict(self, network: TextClassifierNetwork, split: str) -> np.ndarray:
        """[n] index of the predicted class of each text in a split."""
        return class_probabilities(network, self.tokens[split]).argmax(axis=1)

    def report(self, network: TextClassifierNetwork, split: str) -> ClassificationReport:
        """Metrics of a split's predictions."""
        predicted = self.predict(network, split)
        return classification_report(self.data.classes, self.labels[split], predicted)


class _ClassesFile(TypedDict):
    classes: Annotated[list[str], Meta(min_length=1, max_length=2**20)]
    max_length: Annotated[int, Meta(ge=1, le=2**16)]


class TextClassifier:
    """A trained classifier.

    Args:
        network: A `TextClassifierNetwork`.
        classes: [C] names.
        max_length: Tokens of a text that are read.
        vocabulary: What the network was trained with.
    """

    def __init__(
        self,
        network: TextClassifierNetwork,
        classes: Sequence[str],
        max_length: int,
        vocabulary: Vocabulary,
    ):
        self.network, self.classes = network, tuple(classes)
        self.max_length, self.vocabulary = max_length, vocabulary

    @classmethod
    def load(cls, run_dir: str | Path) -> TextClassifier:
        """The best network of a run.

        Raises:
            ValueError: The folder is no run of a classifier, or its files do not fit.
        """
        folder = SavedRun.existing(run_dir).path
        advice = "expected a run of `kytolly train classifier`: give the folder that it printed"
        saved = read_json(folder / CLASSES_FILE, _ClassesFile, advice)
        vocabulary = read_vocabulary(folder / VOCABULARY_FILE)
        network = load_network_of(TextClassifierNetwork, folder / BEST)
        sizes = (network.num_classes, network.vocabulary)
        if sizes != (len(saved["classes"]), vocabulary.size):
            raise ValueError(
                f"{folder / BEST} tells {sizes[0]:,} classes apart by {sizes[1]:,} tokens, and "
                f"{CLASSES_FILE} and {VOCABULARY_FILE} have {len(saved['classes']):,} and "
                f"{vocabulary.size:,}, expected files of one run. Copy them back, or train again."
            )
        return cls(network, saved["classes"], saved["max_length"], vocabulary)

    def save(self, folder: Path) -> None:
        """Write what a run needs beside its network."""
        saved = {"classes": self.classes, "max_length": self.max_length}
        write_text(folder / CLASSES_FILE, json.dumps(saved, indent=2, ensure_ascii=False) + "\n")
        write_vocabulary(self.vocabulary, folder / VOCABULARY_FILE)

    def probabilities(self, texts: Sequence[str]) -> np.ndarray:
        """[n, C] probability of each class."""
        tokens = text_tokens(self.vocabulary, texts, self.max_length)
        return class_probabilities(self.network, tokens)

    def predict(self, texts: Sequence[str]) -> list[Prediction]:
        """The most probable class of each text."""
        probabilities = self.probabilities(texts)
        return [Prediction(self.classes[row.argmax()], float(row.max())) for row in probabilities]


def inverse_document_frequencies(bag: TokenBag, tokens: Ragged) -> np.ndarray:
    """[K] float32 1 + ln((1 + texts) / (1 + texts with the key)); 0 for a key in no text.

    Source: scikit-learn's `TfidfVectorizer`, with its smoothing.
    """
    counts = np.zeros(bag.num_keys, np.int64)
    for rows, length in length_batches(tokens.lengths):
        keys = np.asarray(bag.keys(tokens.matrix(rows, length)))
        counts += np.bincount(keys.ravel(), minlength=bag.num_keys)
    counts[PADDING] = 0
    idf = 1.0 + np.log((1.0 + len(tokens.lengths)) / (1.0 + counts))
    return (idf * (counts > 0)).astype(np.float32)


def class_probabilities(network: TextClassifierNetwork, tokens: Ragged) -> np.ndarray:
    """[n, C] probabilities; texts of similar length are computed at once."""
    probabilities = np.zeros((len(tokens.lengths), network.num_classes), np.float32)
    for rows, length in length_batches(tokens.lengths):
        logits = network(tokens.matrix(rows, length))
        probabilities[rows] = keras.ops.softmax(logits, axis=-1)
    return probabilities
