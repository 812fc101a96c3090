"""Which of a set of candidates to pick, or none: the order of the candidates does not matter."""

from __future__ import annotations

import keras
from keras import ops

from kytolly.model.actor_critic_mlp import HIDDEN_GAIN, POLICY_GAIN, VALUE_GAIN, orthogonal_dense
from kytolly.model.normalization import RunningNormalization


@keras.saving.register_keras_serializable(package="kytolly")
class CandidateScorer(keras.Model):
    """Logits of `N` candidates and STOP, and the state's value, from a dict of inputs.

    `candidates` [B, N, F] and `state` [B, G] -> ([B, N + 1], [B]) float32. One scorer looks at
    every candidate beside the state and the mean of all candidates; STOP and the value are read
    from the state and that mean, after Zaheer et al. 2017, arXiv:1703.06114, "Deep Sets".

    A candidate whose features are all 0 fills up a set that is too small: it is not counted in
    the mean.

    Args:
        hidden_units: Widths of the dense layers.
        activation: Of those layers.
        dropout: Share of hidden units dropped while `training`.
    """

    def __init__(self, hidden_units=(64, 64), activation="silu", dropout=0.0, **kwargs):
        super().__init__(**kwargs)
        self.hidden_units, self.activation, self.dropout = tuple(hidden_units), activation, dropout
        self.normalize_candidates = RunningNormalization(5.0)
        self.normalize_state = RunningNormalization(5.0)
        wide = self.hidden_units[0]
        self.embed = orthogonal_dense(wide, HIDDEN_GAIN, activation)
        # Two products in place of one with both inputs side by side: the state's is made once.
        self.beside = orthogonal_dense(wide, HIDDEN_GAIN)
        self.own = orthogonal_dense(wide, HIDDEN_GAIN)
        self.scorer = [orthogonal_dense(n, HIDDEN_GAIN, activation) for n in self.hidden_units[1:]]
        self.whole = [orthogonal_dense(n, HIDDEN_GAIN, activation) for n in self.hidden_units]
        self.score_head = orthogonal_dense(1, POLICY_GAIN)
        self.stop_head = orthogonal_dense(1, POLICY_GAIN)
        self.value_head = orthogonal_dense(1, VALUE_GAIN)
        self.drop = keras.layers.Dropout(dropout)
        # One draw for all candidates of a query: a draw for each is 30 times as slow under XLA.
        self.drop_together = keras.layers.Dropout(dropout, noise_shape=(None, 1, None))
        self.activate = keras.activations.get(activation)

    def build(self, input_shape):
        candidates, state = input_shape["candidates"], input_shape["state"]
        features, figures = candidates[-1], state[-1]
        self.normalize_candidates.build((None, features))
        self.normalize_state.build((None, figures))
        self.embed.build((None, features))
        both = self.embed.units + figures
        self.beside.build((None, both))
        self.own.build((None, features))
        for layers, begin in ((self.scorer, self.own.units), (self.whole, both)):
            width = begin
            for layer in layers:
                layer.build((None, width))
                width = layer.units
        for head in (self.score_head, self.stop_head, self.value_head):
            head.build((None, self.hidden_units[-1]))
        self.built = True

    def call(self, inputs, training=False):
        given = ops.cast(inputs["candidates"], "float32")
        present = ops.cast(ops.any(given != 0.0, axis=-1), "float32")[..., None]
        candidates = self._normalize(given)
        state = self.normalize_state(inputs["state"])
        mean = ops.sum(self.embed(candidates) * present, axis=1) / ops.maximum(
            ops.sum(present, axis=1), 1.0
        )
        around = ops.concatenate([mean, state], axis=-1)
        scored = self.activate(self.own(candidates) + self.beside(around)[:, None])
        for layer in self.scorer:
            scored = self.drop_together(layer(scored), training=training)
        whole = around
        for layer in self.whole:
            whole = self.drop(layer(whole), training=training)
        logits = ops.concatenate([self.score_head(scored)[..., 0], self.stop_head(whole)], axis=-1)
        value = self.value_head(whole)[:, 0]
        return ops.cast(logits, "float32"), ops.cast(value, "float32")

    def _normalize(self, candidates):
        features = candidates.shape[-1]
        flat = ops.reshape(candidates, (-1, features))
        return ops.reshape(self.normalize_candidates(flat), (-1, *candidates.shape[1:]))

    def adapt(self, candidates, states):
        """Take the statistics of [n, F] candidates and [m, G] states for normalisation."""
        self.normalize_candidates.update(candidates)
        self.normalize_state.update(states)

    def get_config(self):
        own = {
            "hidden_units": self.hidden_units,
            "activation": self.activation,
            "dropout": self.dropout,
        }
        return {**super().get_config(), **own}
