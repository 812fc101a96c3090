"""The memories of `model.recurrent` in NumPy: a step from features and a state."""

from __future__ import annotations

from typing import Any

import numpy as np

from kytolly.model.numpy_operations import Bind, Function, Places, Weights

HALF = np.float32(0.5)


def gru(layer: Any, places: Places) -> Bind:
    """`GRUMemory`: all products are one, and each sigmoid is a hyperbolic tangent."""
    names = ("kernel", "recurrent_kernel", "bias", "reset_bias")
    found, units = [places[id(getattr(layer, name))] for name in names], layer.units

    def bind(weights: Weights) -> Function:
        kernel, recurrent, bias, reset_bias = (weights[place] for place in found)
        gates = 2 * units
        none = [np.zeros([len(part), units], np.float32) for part in (kernel, recurrent)]
        above = np.concatenate([HALF * kernel[:, :gates], kernel[:, gates:], none[0]], axis=1)
        below = np.concatenate([HALF * recurrent[:, :gates], none[1], recurrent[:, gates:]], axis=1)
        whole = np.concatenate([above, below])
        offset = np.concatenate([HALF * bias[:gates], bias[gates:], reset_bias])

        def step(features: np.ndarray, state: np.ndarray) -> np.ndarray:
            summed = np.concatenate([features, state], axis=1) @ whole
            summed += offset
            open_ = np.tanh(summed[:, :gates])
            open_ += 1.0
            open_ *= HALF
            update, reset = open_[:, :units], open_[:, units:]
            proposed = reset * summed[:, gates + units :]
            proposed += summed[:, gates : gates + units]
            proposed = np.tanh(proposed, out=proposed)
            return proposed + update * (state - proposed)

        return step

    return bind


def lstm(layer: Any, places: Places) -> Bind:
    """`LSTMMemory`."""
    names = ("kernel", "recurrent_kernel", "bias")
    found, units = [places[id(getattr(layer, name))] for name in names], layer.units

    def bind(weights: Weights) -> Function:
        kernel, recurrent, bias = (weights[place] for place in found)
        scale = np.full(4 * units, HALF)
        scale[3 * units :] = 1.0
        whole, offset = np.concatenate([kernel, recurrent]) * scale, bias * scale

        def step(features: np.ndarray, state: np.ndarray) -> np.ndarray:
            summed = np.concatenate([features, state[:, :units]], axis=1) @ whole
            summed += offset
            summed = np.tanh(summed, out=summed)
            open_ = summed[:, : 3 * units]
            open_ += 1.0
            open_ *= HALF
            after = np.empty_like(state)
            cell = open_[:, units : 2 * units] * state[:, units:]
            cell += open_[:, :units] * summed[:, 3 * units :]
            after[:, units:] = cell
            np.multiply(open_[:, 2 * units :], np.tanh(cell, out=cell), out=after[:, :units])
            return after

        return step

    return bind


def lru(layer: Any, places: Places) -> Bind:
    """`LRUMemory`."""
    names = ("kernel", "log_decay", "log_phase")
    found, units = [places[id(getattr(layer, name))] for name in names], layer.units

    def bind(weights: Weights) -> Function:
        kernel, log_decay, log_phase = (weights[place] for place in found)
        decay = np.exp(log_decay)
        scale = np.sqrt(1.0 - np.exp(-2.0 * decay))
        scaled = kernel * np.concatenate([scale, scale])
        real, imaginary = (np.exp(-decay) * turn(np.exp(log_phase)) for turn in (np.cos, np.sin))
        both, crossed = np.concatenate([real, real]), np.concatenate([-imaginary, imaginary])

        def step(features: np.ndarray, state: np.ndarray) -> np.ndarray:
            after = features @ scaled
            after += both * state
            after += crossed * np.concatenate([state[:, units:], state[:, :units]], axis=1)
            return after

        return step

    return bind


MEMORIES = {"GRUMemory": gru, "LSTMMemory": lstm, "LRUMemory": lru}
