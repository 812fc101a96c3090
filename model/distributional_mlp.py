"""Distributions of the return of each action: by atoms, or by quantiles."""

from __future__ import annotations

from collections.abc import Sequence

import keras
import numpy as np
from keras import ops

from kytolly.model.dqn_mlp import QNetwork, learning_options, make_torso


class DistributionalMLP(QNetwork):
    """Action values that are means of distributions: [B, *obs] -> [B, A] float32.

    A subclass says by `mean` what of. With two streams each of the `Z` numbers of an action is its
    advantage, centered over the actions, plus that of the state.

    Args:
        num_actions, hidden_units, torso: As for `QNetwork`.
        num_outputs: `Z`, numbers for each action.
        dueling: Whether there are two streams.

    Source: for two streams with a distribution, Hessel et al. 2018, arXiv:1710.02298, section "The
    Integrated Agent".
    """

    def __init__(
        self,
        num_actions: int,
        hidden_units: Sequence[int],
        torso=None,
        num_outputs: int = 51,
        dueling: bool = False,
        **kwargs,
    ):
        super().__init__(num_actions, hidden_units, torso, **kwargs)
        self.num_outputs, self.dueling = num_outputs, dueling
        self.action_outputs = self.head(num_actions * num_outputs)
        self.state_outputs = self.head(num_outputs) if dueling else None

    def output_layers(self):
        """The layer of the actions' numbers, and the state's where there are two streams."""
        heads = (self.action_outputs, self.state_outputs)
        return heads if self.dueling else heads[:1]

    def action_distributions(self, obs, training: bool = False, noise=None, wide=None):
        """[B, A, Z] float32 numbers that describe the distribution of each action's return."""
        if self.noise_scale and self.dueling and noise is None and wide is None:
            features = self.features(obs, training)
            if not keras.utils.is_keras_tensor(features):  # see `model.numpy_inference`
                from kytolly.model.noisy import merged_streams

                outputs = merged_streams(features, self.state_outputs, self.action_outputs)
                return self.by_action(outputs)
        outputs, *state = self.head_outputs(obs, training, noise, wide)
        if wide is not None and state:
            # Action by action, which needs no reduction.
            starts = range(0, outputs.shape[-1], self.num_outputs)
            parts = [outputs[:, start : start + self.num_outputs] for start in starts]
            center = state[0] - sum(parts) / len(parts)
            return ops.stack([center + part for part in parts], axis=1)
        outputs = self.by_action(outputs)
        if not state:
            return outputs
        return ops.expand_dims(state[0], 1) + outputs - ops.mean(outputs, axis=1, keepdims=True)

    def by_action(self, outputs):
        """[B, A, Z] of [B, A Z]; the gradient of a reshape would divide for each of its numbers."""
        if keras.utils.is_keras_tensor(outputs):
            return ops.reshape(outputs, (-1, self.num_actions, self.num_outputs))
        return ops.stack(ops.split(outputs, self.num_actions, axis=-1), axis=1)

    def call(self, obs, training: bool = False, noise=None, wide=None):
        return self.mean(self.action_distributions(obs, training, noise, wide))

    def mean(self, outputs):
        """[B, A] means of distributions [B, A, Z]."""
        raise NotImplementedError

    def get_config(self):
        own = {"num_outputs": self.num_outputs, "dueling": self.dueling}
        return {**super().get_config(), **own}


@keras.saving.register_keras_serializable(package="kytolly")
class AtomMLP(DistributionalMLP):
    """Action values as means of probabilities of `Z` evenly spaced returns.

    Args:
        num_actions, hidden_units, torso, num_outputs, dueling: As for `DistributionalMLP`, whose
            numbers are logits here.
        value_min, value_max: The lowest and the highest of the returns.

    Source: Bellemare, Dabney & Munos 2017, arXiv:1707.06887.
    """

    def __init__(self, *args, value_min: float = -100.0, value_max: float = 100.0, **kwargs):
        super().__init__(*args, **kwargs)
        self.value_min, self.value_max = value_min, value_max

    def atom_logits(self, obs, training: bool = False, wide=None):
        """[B, A, Z] logits of the atoms: `action_distributions` by the name that C51 asks for."""
        return self.action_distributions(obs, training, wide=wide)

    def mean(self, outputs):
        """[B, A] means of the atoms under the softmax of logits [B, A, Z]."""
        weight = ops.exp(outputs - ops.max(outputs, axis=-1, keepdims=True))
        sums = np.stack([self.atoms(), np.ones(self.num_outputs, np.float32)], axis=-1)
        sums = ops.matmul(ops.reshape(weight, (-1, self.num_outputs)), sums)  # both by one product
        return ops.reshape(sums[:, 0] / sums[:, 1], (-1, self.num_actions))

    def atoms(self):
        """[Z] float32 returns, in reward units."""
        return np.linspace(self.value_min, self.value_max, self.num_outputs, dtype=np.float32)

    def get_config(self):
        own = {"value_min": self.value_min, "value_max": self.value_max}
        return {**super().get_config(), **own}


@keras.saving.register_keras_serializable(package="kytolly")
class QuantileMLP(DistributionalMLP):
    """Action values as means of `Z` quantiles.

    Source: Dabney et al. 2018, arXiv:1710.10044.
    """

    def middle_quantiles(self, obs, training: bool = False, wide=None):
        """[B, A, Z] quantiles: `action_distributions` by the name that QR-DQN asks for."""
        return self.action_distributions(obs, training, wide=wide)

    def mean(self, outputs):
        """[B, A] means of quantiles [B, A, Z]."""
        return ops.mean(outputs, axis=-1)


def make_atom_network(cfg, obs_spec, distribution):
    """The network that the config of C51 describes."""
    bounds = {"value_min": cfg.value_min, "value_max": cfg.value_max}
    shared = _arguments(cfg, obs_spec, distribution)
    return AtomMLP(*shared, cfg.num_atoms, is_dueling(cfg), **bounds, **learning_options(cfg))


def make_quantile_network(cfg, obs_spec, distribution):
    """The network that the config of QR-DQN describes."""
    shared = _arguments(cfg, obs_spec, distribution)
    return QuantileMLP(*shared, cfg.num_quantiles, is_dueling(cfg), **learning_options(cfg))


def quantile_midpoints(count: int):
    """[count] float32 levels in the middles of equal parts of [0, 1]."""
    return (np.arange(count, dtype=np.float32) + 0.5) / np.float32(count)


def is_dueling(cfg):
    """True where a config asks for two streams."""
    return cfg.network.startswith("dueling")


def _arguments(cfg, obs_spec, distribution):
    return distribution.num_params, cfg.hidden_units, make_torso(cfg, obs_spec)
