"""The agent's network: made for the features of some queries, and read without TensorFlow."""

from __future__ import annotations

import json
from pathlib import Path
from typing import cast

from kytolly.machine.facts import require_tensorflow_backend

require_tensorflow_backend()

# ruff: noqa: E402  Keras reads its backend when it is imported
import keras
import numpy as np
from scipy import special

from kytolly.record.network_file import load_network
from kytolly.search.index.files import read_arrays, write_arrays
from kytolly.search.model.candidate_scorer import FIRST_MEAN, CandidateScorer
from kytolly.search.reformulate.device_env import MAX_LOWERED, is_query_term
from kytolly.search.reformulate.options import AgentOptions
from kytolly.search.reformulate.table import QueryTable

HALF = "mixed_float16"
PRETRAINED = Path(__file__).with_name("pretrained.keras")
ROWS = 4_096  # queries looked at together, at most
PARTS = ("candidates", "state", "own", "beside", "mean_head", "critic", "gain_head")


class NumpyScorer:
    """A `CandidateScorer` in NumPy: microseconds for one query.

    Args:
        network: The network, with its weights as they are now.
    """

    def __init__(self, network: CandidateScorer):
        def dense(layer: keras.layers.Dense) -> tuple[np.ndarray, np.ndarray]:
            kernel, bias = layer.get_weights()
            return kernel.astype(np.float32), bias.astype(np.float32)

        self.scales = [
            (np.asarray(part.mean), 1.0 / np.sqrt(np.asarray(part.variance) + part.epsilon))
            for part in (network.normalize_candidates, network.normalize_state)
        ]
        self.clip = float(network.normalize_state.clip)
        self.own, self.beside = dense(network.own), dense(network.beside)
        self.scorer = [dense(layer) for layer in network.scorer]
        self.mean_head = dense(network.mean_head)
        self.critic, self.gain_head = dense(network.critic), dense(network.gain_head)

    def save(self, path: Path) -> None:
        """Write the network for `read`."""
        arrays = {"clip": np.array(self.clip), "hidden": np.array(len(self.scorer))}
        for name, part in self._parts().items():
            arrays |= {f"{name} 0": part[0], f"{name} 1": part[1]}
        write_arrays(path, arrays)

    @classmethod
    def read(cls, path: Path) -> NumpyScorer | None:
        """The network that `save` wrote; None if there is none, or it is damaged."""
        try:
            clip, hidden = read_arrays(path, ("clip", "hidden"))
            names = [*PARTS, *(f"scorer {number}" for number in range(int(hidden)))]
            arrays = read_arrays(path, [f"{name} {half}" for name in names for half in (0, 1)])
        except Exception:  # zipfile, zlib and numpy each have their own
            return None
        if not all(np.isfinite(part).all() for part in arrays):
            return None
        scorer = cls.__new__(cls)
        pairs = list(zip(arrays[::2], arrays[1::2], strict=True))
        scorer.clip, scorer.scales, scorer.scorer = float(clip), pairs[:2], pairs[len(PARTS) :]
        scorer.own, scorer.beside, scorer.mean_head, scorer.critic, scorer.gain_head = pairs[2:7]
        return scorer

    def _parts(self) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        layers = (self.own, self.beside, self.mean_head, self.critic, self.gain_head)
        parts = dict(zip(PARTS, (*self.scales, *layers), strict=True))
        return parts | {f"scorer {number}": layer for number, layer in enumerate(self.scorer)}

    def __call__(self, candidates: np.ndarray, state: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Weights [B, N] and expected gains [B] from [B, N, F] candidates and [B, G] states."""
        parts = [
            self._outputs(candidates[first : first + ROWS], state[first : first + ROWS])
            for first in range(0, len(candidates), ROWS)
        ]
        weights, gains = zip(*parts, strict=True)
        return np.concatenate(weights), np.concatenate(gains)

    def _outputs(self, given: np.ndarray, state: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        present = np.any(given != 0.0, axis=-1)
        counted = present[..., np.newaxis].astype(np.float32)
        (mean, scale), (state_mean, state_scale) = self.scales
        candidates = np.clip((given - mean) * scale, -self.clip, self.clip) * counted
        average = candidates.sum(axis=1) / np.maximum(counted.sum(axis=1), 1.0)
        state = np.clip((state - state_mean) * state_scale, -self.clip, self.clip)
        around = np.concatenate([state, average], axis=-1)
        hidden = silu(_product(candidates, self.own) + _product(around, self.beside)[:, np.newaxis])
        for layer in self.scorer:
            hidden = silu(_product(hidden, layer))
        means = _product(hidden, self.mean_head)[..., 0] + np.float32(FIRST_MEAN)
        weights = np.where(present, np.logaddexp(means, np.float32(0.0)), np.float32(0.0))
        lowered = np.minimum(weights, np.float32(MAX_LOWERED))
        used = np.where(is_query_term(given), lowered, weights)
        total = weights.sum(axis=1, keepdims=True)
        chosen = np.einsum("bn,bnh->bh", weights, hidden) / np.maximum(total, 1e-3)
        looked = np.concatenate([around, chosen, total], axis=-1)
        return used, _product(silu(_product(looked, self.critic)), self.gain_head)[:, 0]


def make_scorer(table: QueryTable, agent: AgentOptions) -> CandidateScorer:
    """A network for the features of queries, which also give the statistics that it scales by.

    A feature that is the same everywhere, as those of a rewriter are without one, is not scaled,
    and its weights are 0: where it differs later, the network begins as if it did not.
    """
    network = CandidateScorer(agent.hidden_units, dropout=agent.dropout)
    features, state = table.candidate_features, table.state_features
    count, wide, number = features.shape
    network.build({"candidates": (None, wide, number), "state": (None, state.shape[1] + 1)})
    present = features.any(axis=-1)
    searched = np.concatenate([state, state], axis=0)
    fusion = np.repeat(np.array([[0.0], [1.0]], np.float32), count, axis=0)
    network.adapt(features[present], np.concatenate([searched, fusion], axis=1))
    ignore_features(network, np.ptp(features[present], axis=0) == 0.0)
    return network


def ignore_features(network: CandidateScorer, which: np.ndarray) -> None:
    """Set the weights of some of `F` features to 0, and let the features pass unscaled."""
    statistics, places = network.normalize_candidates, np.flatnonzero(which)
    variance = np.where(which, 1.0, np.asarray(statistics.variance))
    cast(keras.Variable, statistics.variance).assign(variance.astype(np.float32))
    state = network.normalize_state.mean.shape[0]  # features of candidates come after the state's
    for layer, first in ((network.own, 0), (network.beside, state), (network.critic, state)):
        kernel, bias = layer.get_weights()
        kernel[first + places] = 0.0
        layer.set_weights([kernel, bias])


def load_pretrained() -> CandidateScorer | None:
    """The network that comes with the package; None where it was left out."""
    return load_network(PRETRAINED) if PRETRAINED.is_file() else None


def pretrained_digests() -> set[str]:
    """Digests of the collections whose train queries the network of the package learned from."""
    path = PRETRAINED.with_suffix(".json")
    return set(json.loads(path.read_text("utf-8")).values()) if path.is_file() else set()


def copied_scorer(network: CandidateScorer, dropout: float, half: bool = False) -> CandidateScorer:
    """A network with the same weights, perhaps one that computes in half precision."""
    before = keras.mixed_precision.dtype_policy()
    if half:
        keras.mixed_precision.set_dtype_policy(HALF)
    try:
        copy = CandidateScorer(network.hidden_units, dropout=dropout)
        features, state = network.normalize_candidates.mean, network.normalize_state.mean
        copy.build({"candidates": (None, None, *features.shape), "state": (None, *state.shape)})
    finally:
        keras.mixed_precision.set_dtype_policy(before)
    copy.set_weights(network.get_weights())
    return copy


def silu(x: np.ndarray) -> np.ndarray:
    """X times its logistic function."""
    return x * special.expit(x)


def _product(x: np.ndarray, layer: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
    return x @ layer[0] + layer[1]
