"""What a task of supervised learning is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import keras
import tensorflow as tf

from kytolly.config.supervised import SupervisedConfig
from kytolly.search.text.rows import Rows


class Task(Protocol):
    """Data, a network and a loss: what `Trainer.train_supervised` asks for.

    Attributes:
        name: Name of the data, for the run's folder and the progress line.
        metric_names: The metrics that `loss` gives beside the loss.
        best_metric: The metric of `evaluate` that picks the best weights; more is better.
    """

    name: str
    metric_names: tuple[str, ...]
    best_metric: str

    def make_rows(self, cfg: SupervisedConfig) -> Rows:
        """The training data: `search.text.tables.make_rows(cfg, columns)`."""
        ...

    def make_network(self, cfg: SupervisedConfig) -> keras.Model:
        """The network, which is built, or builds when it is called."""
        ...

    def loss(
        self, network: keras.Model, batch: Mapping[str, tf.Tensor], cfg: SupervisedConfig
    ) -> tuple[tf.Tensor, Mapping[str, tf.Tensor]]:
        """The loss [] of a batch, and the metrics [] of `metric_names`; part of the program.

        Args:
            network: To be called with `training=True`, or part by part.
            batch: The columns of `make_rows`: [B, L] int32 tokens with zeros at the end, where L is
                the bucket's length, or [B, ...] arrays; and `seed` [1, 2] int32, another one for
                each update, for stateless draws.
            cfg: The run's configuration.
        """
        ...

    def evaluate(self, network: keras.Model) -> Mapping[str, float]:
        """Metrics on held-out data, by name, `best_metric` among them."""
        ...
