"""A task that a small network learns in a moment: does a text contain the word 1?"""

import keras
import numpy as np
import tensorflow as tf

from kytolly.config.supervised import SupervisedConfig
from kytolly.policy.supervised import cross_entropy
from kytolly.search.text.rows import Ragged, make_rows

WORDS, LONGEST = 12, 9


class ContainsWord:
    """Texts of 2 to 9 of 12 words, half of them with the word 1."""

    name, metric_names, best_metric = "contains-word", ("accuracy",), "accuracy"

    def __init__(self, count=64, dropout=0.2):
        random = np.random.default_rng(0)
        self.labels, self.dropout = np.arange(count, dtype=np.int32) % 2, dropout
        texts = [random.integers(2, WORDS, random.integers(2, LONGEST + 1)) for _ in range(count)]
        for text in texts[1::2]:
            text[random.integers(len(text))] = 1
        self.tokens = Ragged.of(texts)

    def make_rows(self, cfg):
        return make_rows(cfg, {"tokens": self.tokens, "label": self.labels})

    def make_network(self, cfg):
        layers = keras.layers
        return keras.Sequential(
            [
                layers.Embedding(WORDS, 8),
                layers.Dense(8, activation="relu"),
                layers.GlobalMaxPooling1D(),
                layers.Dropout(self.dropout),
                layers.Dense(2),
            ]
        )

    def loss(self, network, batch, cfg):
        logits = network(batch["tokens"], training=True)
        right = tf.argmax(logits, -1, output_type=tf.int32) == batch["label"]
        loss = cross_entropy(logits, batch["label"], cfg.label_smoothing)
        return loss, {"accuracy": tf.reduce_mean(tf.cast(right, tf.float32))}

    def evaluate(self, network):
        tokens = self.tokens.matrix(np.arange(len(self.labels)), LONGEST)
        found = np.asarray(network(tokens)).argmax(-1)
        return {"accuracy": float((found == self.labels).mean())}


def small_config(**changes):
    """Settings of a run that takes a moment."""
    settings = {
        "batch_size": 8,
        "total_updates": 40,
        "num_buckets": 2,
        "updates_per_call": 3,
        "learning_rate": 3e-2,
        "log_interval_updates": 10,
        "evaluation_interval_updates": 20,
        "checkpoint_interval_updates": 10,
        "xla": False,
    }
    return SupervisedConfig(**(settings | changes))
