"""Actions outside a compiled program: in NumPy where the network allows it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

import keras
import numpy as np
import tensorflow as tf

from kytolly.environment.mask import ACTION_MASK, MASKED_LOGIT, without_mask
from kytolly.environment.memory import MEMORY
from kytolly.model.numpy_inference import numpy_network, ordered_weights
from kytolly.policy.base import ActionReader, Policy
from kytolly.policy.batch import Obs
from kytolly.policy.weights import FlatWeights, Noise, concatenate

if TYPE_CHECKING:
    from kytolly.policy.noisy_weights import NoisyWeights

HostObs = np.ndarray | Mapping[str, np.ndarray]  # [E, *obs]
ObsSpec = tf.TensorSpec | Mapping[str, tf.TensorSpec]  # of one observation


class Forward(Protocol):
    """A network in tensor code."""

    def __call__(self, obs: Obs, noise: Noise | None = None) -> tf.Tensor:
        """[B, P] params of [B, *obs]; of a noisy network with the noise of each row."""
        ...


class WeightNoise(Protocol):
    """Noise of a noisy network's weights, as `agent.noisy_greedy.HostNoise` draws it."""

    def params(self, actor: HostActor, obs: HostObs) -> np.ndarray:
        """[E, P] params of observations [E, *obs]."""
        ...


class HostActor:
    """The params of a network for observations on the host, and the most likely actions.

    NumPy computes them with a copy of the weights, which `refresh` or `take` bring up to date.
    Where it cannot, every call goes through TensorFlow.

    Args:
        network: Built Keras model whose output, or first output, is [B, P].
        distribution: Reads the params.
        obs_spec: Shape and dtype of one observation, or a dict of them.
        forward: [B, *obs] without a mask -> [B, P] in tensor code, in place of the network's own:
            while a policy learns, the network's weights are older than the policy's.
    """

    def __init__(
        self,
        network: keras.Model,
        distribution: ActionReader,
        obs_spec: ObsSpec,
        forward: Forward | None = None,
    ):
        self.network, self.distribution, self.obs_spec = network, distribution, obs_spec
        entries = obs_spec if isinstance(obs_spec, Mapping) else {}
        self.memory_units = int(entries[MEMORY].shape[0]) if MEMORY in entries else 0
        self._remembered: tuple[HostObs | None, np.ndarray] = None, np.zeros(0)
        visible_spec = without_mask(obs_spec)
        self.numpy_network = numpy_network(network, visible_spec)
        batch = tf.nest.map_structure(
            lambda s: tf.TensorSpec([None, *s.shape], s.dtype), visible_spec
        )
        self.forward = forward or self._network_forward
        self._forward = tf.function(
            lambda obs: tf.cast(self.forward(obs), tf.float32),
            autograph=False,
            input_signature=[batch],
        )

    def params(self, obs: HostObs, noise: WeightNoise | None = None) -> np.ndarray:
        """[E, P] params, in which no action that a mask forbids is likely.

        `noise` is a `noisy_greedy.HostNoise` for a noisy network, None for none.
        """
        if noise is not None:
            return mask_params(noise.params(self, obs), obs)
        if self.numpy_network is None:
            outputs = self.network_outputs(obs)
        else:
            outputs = self.numpy_network(without_mask(obs))
        if self.memory_units:
            outputs, memory = np.split(outputs, [-self.memory_units], axis=-1)
            self._remembered = obs, memory
        return mask_params(outputs, obs)

    def greedy(self, obs: HostObs) -> Any:
        """The most likely actions for [E, *obs], as the environment takes them."""
        return self.to_env(self.distribution.host_mode(self.params(obs)), obs)

    def to_env(self, action: np.ndarray, obs: HostObs) -> Any:
        """What the environment takes for [E, ...] raw actions for [E, *obs].

        Of an agent with a memory that is a pair: the actions, and the memory [E, S] after them.
        """
        to_env = self.distribution.host_to_env(action)
        return (to_env, self.next_memory(obs)) if self.memory_units else to_env

    def next_memory(self, obs: HostObs) -> np.ndarray:
        """[E, S] what is remembered after [E, *obs]; computed once for the same observations."""
        if self._remembered[0] is not obs:
            self.params(obs)
        return self._remembered[1]

    def network_outputs(self, obs: HostObs, noise: np.ndarray | None = None) -> np.ndarray:
        """[E, P] params through TensorFlow, without a mask; [E, N] noise of a noisy network.

        Of a network with a memory the next memory [E, S] lies beside them.
        """
        typed = tf.nest.map_structure(
            lambda spec, part: np.asarray(part, spec.dtype.as_numpy_dtype),
            without_mask(self.obs_spec),
            without_mask(obs),
        )
        if noise is not None:
            return self._noisy_forward(typed, noise).numpy()
        return self._forward(typed).numpy()

    def _network_forward(self, obs: Obs, noise: Noise | None = None) -> tf.Tensor:
        if noise is None:
            if self.memory_units:
                return self.network.packed_outputs(obs)
            return tf.nest.flatten(self.network(obs))[0]
        weights = [weight.value for weight in self.network.trainable_variables]
        return tf.nest.flatten(self._noisy_weights.call(weights, obs, noise=noise))[0]

    @cached_property
    def _noisy_weights(self) -> NoisyWeights:
        from kytolly.policy.noisy_weights import NoisyWeights

        with tf.init_scope():
            return NoisyWeights(self.network)

    @cached_property
    def _noisy_forward(self) -> Callable[[Obs, np.ndarray], tf.Tensor]:
        from kytolly.model.noisy import noise_widths, noisy_layers

        widths = noise_widths(noisy_layers(self.network))

        def outputs(obs: Obs, noise: tf.Tensor) -> tf.Tensor:
            return tf.cast(self.forward(obs, tf.split(noise, widths, axis=-1)), tf.float32)

        return tf.function(outputs, autograph=False, reduce_retracing=True)

    def refresh(self) -> None:
        """Copy the network's weights for NumPy."""
        if self.numpy_network is not None:
            weights = ordered_weights(self.network)
            self.take(np.concatenate([np.ravel(weight) for weight in weights]))

    def take(self, packed: np.ndarray) -> None:
        """Use the network's weights, all end to end [W], in NumPy."""
        if self.numpy_network is not None:
            self.numpy_network.take(packed)


def packed_step(policy: Policy, obs: Obs, noise: Noise | None = None) -> tf.Tensor:
    """[B, P] params of a policy that learns, with the next memory beside them where it has one."""
    params, _, memory = policy.step(obs, policy.current_weights(), noise=noise)
    return params if memory is None else tf.concat([params, memory], axis=-1)


def packed_weights(weights: FlatWeights) -> tf.Tensor:
    """[V] all weights of a policy, end to end in the order of `ordered_weights`."""
    others = [weight.value for weight in weights.network.non_trainable_weights]
    return concatenate([weights.vector, *others])


def mask_params(params: np.ndarray, obs: HostObs) -> np.ndarray:
    """Params [E, P] with those of forbidden actions as low as a `Distribution` masks them."""
    if isinstance(obs, dict) and ACTION_MASK in obs:
        return np.where(obs[ACTION_MASK], params, np.float32(MASKED_LOGIT))
    return params
