"""Weights for a set of candidates: the order of the candidates does not matter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import keras
import numpy as np
from keras import KerasTensor, ops

from kytolly.model.actor_critic_mlp import HIDDEN_GAIN, POLICY_GAIN, VALUE_GAIN, orthogonal_dense
from kytolly.model.normalization import RunningNormalization

NO_WEIGHT = -20.0  # mean of a candidate that only fills up: softplus of it is 0
FIRST_MEAN = -3.0  # softplus of it is 0.05: training begins near the query as it was typed
FIRST_LOG_STD = -1.2


@keras.saving.register_keras_serializable(package="kytolly")
class CandidateScorer(keras.Model):
    """A normal distribution for each of `N` candidates, and the expected gain.

    `candidates` [B, N, F] and `state` [B, G] -> ([B, 2 N], [B]) float32: means, then log standard
    deviations, of numbers whose softplus is a candidate's weight; and the gain of the means. One
    network looks at every candidate beside the state and the mean of all candidates, after Zaheer
    et al. 2017, arXiv:1703.06114, "Deep Sets".

    A candidate whose features are all 0 fills up a set that is too small. Its weight is 0.

    Args:
        hidden_units: Widths of the dense layers.
        dropout: Share of hidden units dropped while `training`.
    """

    def __init__(
        self, hidden_units: Sequence[int] = (32, 32), dropout: float = 0.0, **kwargs: object
    ):
        super().__init__(**kwargs)
        self.hidden_units, self.dropout = tuple(hidden_units), dropout
        self.normalize_candidates = RunningNormalization(5.0)
        self.normalize_state = RunningNormalization(5.0)
        first, *others = self.hidden_units
        # Two products in place of one with both inputs side by side: the state's is made once.
        self.own = orthogonal_dense(first, HIDDEN_GAIN)
        self.beside = orthogonal_dense(first, HIDDEN_GAIN)
        self.scorer = [orthogonal_dense(n, HIDDEN_GAIN, "silu") for n in others]
        self.mean_head = orthogonal_dense(1, POLICY_GAIN)
        self.critic = orthogonal_dense(first, HIDDEN_GAIN, "silu")
        self.gain_head = orthogonal_dense(1, VALUE_GAIN * 0.01)
        # One draw for all candidates of a query: a draw for each is 30 times as slow under XLA.
        self.drop = keras.layers.Dropout(dropout, noise_shape=(None, 1, None))

    def build(self, input_shape: Mapping[str, tuple[int | None, ...]]):
        features, state = input_shape["candidates"][-1], input_shape["state"][-1]
        self.normalize_candidates.build((None, features))
        self.normalize_state.build((None, state))
        self.own.build((None, features))
        self.beside.build((None, state + features))
        width = self.own.units
        for layer in self.scorer:
            layer.build((None, width))
            width = layer.units
        self.mean_head.build((None, width))
        self.critic.build((None, state + features + width + 1))
        self.gain_head.build((None, self.critic.units))
        first = keras.initializers.Constant(FIRST_LOG_STD)
        self.log_std = self.add_weight((), first, "float32", autocast=False, name="log_std")
        self.built = True

    def call(self, inputs: Mapping[str, KerasTensor], training: bool = False):
        given = ops.cast(inputs["candidates"], "float32")
        present = ops.any(given != 0.0, axis=-1)
        counted = ops.cast(present, "float32")[..., None]
        features = given.shape[-1]
        flat = self.normalize_candidates(ops.reshape(given, (-1, features)))
        candidates = ops.reshape(flat, (-1, *given.shape[1:])) * ops.cast(counted, flat.dtype)
        count = ops.maximum(ops.sum(counted, axis=1), 1.0)
        mean = ops.sum(ops.cast(candidates, "float32"), axis=1) / count
        state = ops.cast(self.normalize_state(inputs["state"]), "float32")
        around = ops.concatenate([state, mean], axis=-1)
        hidden = keras.activations.silu(self.own(candidates) + self.beside(around)[:, None])
        hidden = self.drop(hidden, training=training)
        for layer in self.scorer:
            hidden = self.drop(layer(hidden), training=training)
        means = ops.cast(self.mean_head(hidden)[..., 0], "float32") + FIRST_MEAN
        means = ops.where(present, means, NO_WEIGHT)
        # The critic looks at what is chosen, and does not change it.
        weights = ops.stop_gradient(ops.softplus(means))[..., None]
        chosen = ops.sum(ops.stop_gradient(ops.cast(hidden, "float32")) * weights, axis=1)
        total = ops.sum(weights, axis=1)
        looked = ops.concatenate([around, chosen / ops.maximum(total, 1e-3), total], axis=-1)
        gain = ops.cast(self.gain_head(self.critic(looked))[:, 0], "float32")
        log_std = ops.broadcast_to(self.log_std, ops.shape(means))
        return ops.concatenate([means, log_std], axis=-1), gain

    def adapt(self, candidates: np.ndarray, states: np.ndarray):
        """Take the statistics of [n, F] candidates and [m, G] states for normalization."""
        self.normalize_candidates.update(candidates)
        self.normalize_state.update(states)

    def get_config(self):
        arguments = {"hidden_units": self.hidden_units, "dropout": self.dropout}
        return {**super().get_config(), **arguments}
