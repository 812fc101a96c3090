"""How an agent acts while it learns: epsilon-greedy, by noise in the weights, or by sampling.

Each has its counterpart in NumPy for acting on the host.
"""

from __future__ import annotations

import copy
import functools
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import keras
import numpy as np
import tensorflow as tf

from kytolly.agent.acting import HostActor, HostObs
from kytolly.agent.randomness import randint, uniform
from kytolly.agent.schedules import Schedule, linear_schedule
from kytolly.model.numpy_forward import NumpyForward, ordered_weights
from kytolly.policy.action_values import ActionValues

if TYPE_CHECKING:  # what an algorithm does not need is not loaded for it
    from kytolly.config.dqn import DQNConfig
    from kytolly.config.ppo import PPOConfig
    from kytolly.config.pqn import PQNConfig
    from kytolly.policy.distributions import Distribution

HostParams = Callable[..., np.ndarray]  # [E, *obs] -> [E, P], of a noisy network with its noise
Noise = TypeVar("Noise", tf.Tensor, np.ndarray)


class Exploration(Protocol):
    """What stands between the params of a distribution and the actions of `E` environments.

    Its noise is drawn for a whole rollout, and then taken step by step.
    """

    num_random_words: int  # uint32 words for an action
    gives_log_prob: bool  # `action` says how probable its actions were
    metric_names: tuple[str, ...]
    final_state: np.ndarray  # as `state` when exploration has fallen

    def state(self, env_steps: tf.Tensor) -> tf.Tensor:
        """[L] float32 what exploration depends on after so many env steps: its metrics."""
        ...

    def noise(self, random_bits: tf.Tensor, env_steps: tf.Tensor) -> Any:
        """A structure of [T, E, ...] tensors, from [T, E, num_random_words] words."""
        ...

    def action(self, params: tf.Tensor, noise: Any) -> tuple[tf.Tensor, Any]:
        """[E, ...] raw actions, and their [E] log-probabilities or (), from [E, P] and a step."""
        ...

    def host_noise(
        self, rng: np.random.Generator, shape: tuple[int, int], state: np.ndarray
    ) -> Sequence[Any]:
        """What `host_action` needs for each of the `T` steps of a `shape` (T, E)."""
        ...

    def host_action(self, params: HostParams, obs: HostObs, noise: Any) -> np.ndarray:
        """[E, ...] raw actions for [E, *obs]; `params` gives [E, P] where they are needed."""
        ...


class EpsilonGreedy:
    """The best action, or with probability epsilon any one: epsilon is 1 until learning begins.

    The params of `distribution` are action values, one for each action. Whether to explore, and by
    which action, holds for `exploration_repeat` steps of a rollout.

    Source: Dabney, Ostrovski & Barreto 2020, arXiv:2006.01782, "Temporally-Extended epsilon-Greedy
    Exploration", with one length instead of random ones.
    """

    num_random_words = 2  # uint32 words for an action: whether to explore, and which action
    gives_log_prob = False
    metric_names = ("epsilon",)

    def __init__(
        self,
        cfg: DQNConfig | PQNConfig,
        distribution: ActionValues,
        schedule: Schedule | None = None,
    ):
        """Make the exploration that a config asks for.

        Args:
            cfg: Config.
            distribution: Reads the values.
            schedule: Of epsilon once learning has begun, in place of the config's linear fall.
        """
        self.cfg, self.distribution, self.schedule = cfg, distribution, schedule
        self.num_actions = distribution.num_params
        self.final_state = np.array([cfg.epsilon_final])  # as `state` when exploration has fallen

    def state(self, env_steps: tf.Tensor) -> tf.Tensor:
        """[1] epsilon after so many env steps; the values of `metric_names`."""
        cfg, learned = self.cfg, env_steps - self.cfg.first_update_env_steps
        if self.schedule is not None:
            scheduled = self.schedule(env_steps)
        else:
            scheduled = linear_schedule(
                cfg.epsilon_start, cfg.epsilon_final, cfg.exploration_env_steps, learned
            )
        return tf.where(learned < 0, 1.0, scheduled)[tf.newaxis]

    def noise(self, random_bits: tf.Tensor, env_steps: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """[T, E] bool whether to explore, and [T, E] int32 random actions, from [T, E, 2] words."""
        if self.cfg.exploration_repeat > 1:
            random_bits = tf.gather(random_bits, self._deciding_steps(random_bits.shape[0]))
        explores = uniform(random_bits[..., 0]) < self.state(env_steps)
        return explores, randint(random_bits[..., 1], tf.constant(self.num_actions))

    def action(
        self, params: tf.Tensor, noise: tuple[tf.Tensor, tf.Tensor]
    ) -> tuple[tf.Tensor, tuple[()]]:
        """[E] int32 actions from action values [E, A] and [E] noise; no log-probabilities."""
        explores, random_action = noise
        return tf.where(explores, random_action, self.distribution.mode(params)), ()

    def host_noise(
        self, rng: np.random.Generator, shape: tuple[int, int], state: np.ndarray
    ) -> list[Any]:
        """What `host_action` needs for each of the `T` steps of a `shape` (T, E)."""
        explores, actions = rng.random(shape) < state[0], rng.integers(self.num_actions, size=shape)
        if self.cfg.exploration_repeat > 1:
            deciding = self._deciding_steps(shape[0])
            explores, actions = explores[deciding], actions[deciding]
        return list(zip(explores, actions, strict=True))

    def _deciding_steps(self, steps: int) -> np.ndarray:
        """[T] the step of the rollout whose exploration each step has."""
        held = self.cfg.exploration_repeat
        return np.arange(steps) // held * held

    def host_action(
        self, params: HostParams, obs: HostObs, noise: tuple[np.ndarray, np.ndarray]
    ) -> np.ndarray:
        """[E] actions for [E, *obs]; `params` gives [E, A] values where they are needed."""
        explores, action = noise
        if explores.all():
            return action
        best = self.distribution.host_mode(params(obs))
        return np.where(explores, action, best) if explores.any() else best


class NoisyGreedy(EpsilonGreedy):
    """The best action by weights with noise; any action until learning begins.

    Each environment has its own noise, which stays for a rollout: the paper acts with one set of
    weights between two phases of learning.

    Source: Fortunato et al. 2018, arXiv:1706.10295, section 3.1, with epsilon 0.
    """

    def __init__(self, cfg: DQNConfig, distribution: ActionValues):
        super().__init__(cfg, distribution)
        self.final_state = np.zeros(1)

    def state(self, env_steps: tf.Tensor) -> tf.Tensor:
        """[1] share of random actions after so many env steps: 1 until learning begins, then 0."""
        return tf.where(env_steps < self.cfg.first_update_env_steps, [1.0], [0.0])

    def host_noise(
        self, rng: np.random.Generator, shape: tuple[int, int], state: np.ndarray
    ) -> list[Any]:
        """What `host_action` needs for each of the `T` steps of a `shape` (T, E)."""
        network = HostNoise(int(rng.integers(2**63)))
        return [(*noise, network) for noise in super().host_noise(rng, shape, state)]

    def host_action(
        self, params: HostParams, obs: HostObs, noise: tuple[np.ndarray, np.ndarray, HostNoise]
    ) -> np.ndarray:
        """[E] actions for [E, *obs]; `params` gives [E, A] values with noise."""
        explores, action, network = noise
        return super().host_action(
            functools.partial(params, noise=network), obs, (explores, action)
        )


class HostNoise:
    """The noise of a rollout's weights, for each environment, drawn when it is first needed."""

    def __init__(self, seed: int):
        self.seed, self._twin, self._numbers = seed, None, None

    def params(self, actor: HostActor, obs: HostObs) -> np.ndarray:
        """[E, P] params of observations [E, *obs], by the network of a `HostActor`."""
        rows = len(keras.tree.flatten(obs)[0])
        from kytolly.model.noisy import noise_widths, noisy_layers

        if actor.twin is None:
            if self._numbers is None:
                layers = noisy_layers(actor.network)
                self._numbers = np.concatenate(self.draw(rows, noise_widths(layers)), axis=-1)
            return actor.network_outputs(obs, self._numbers)
        if self._twin is None:
            self._twin = noisy_twin(actor.twin, actor.network, self.draw, rows)
        return self._twin(obs)

    def draw(self, rows: int, widths: list[int]) -> list[np.ndarray]:
        """[E, N] noise of each layer's inputs and outputs in turn."""
        numbers = np.random.default_rng(self.seed).standard_normal((rows, sum(widths)), np.float32)
        noise = np.sign(numbers) * np.sqrt(np.abs(numbers))
        return np.split(noise, np.cumsum(widths)[:-1], axis=-1)


def noisy_twin(
    twin: NumpyForward,
    network: keras.Model,
    draw: Callable[[int, list[int]], list[np.ndarray]],
    rows: int,
) -> NumpyForward:
    """A NumPy twin whose weights have noise, other noise for each of so many rows."""
    from kytolly.model.noisy import noise_widths, noisy_layers

    noisy, layers = copy.copy(twin), noisy_layers(network)
    index_of = {id(weight): index for index, weight in enumerate(ordered_weights(network))}
    noises, weights = draw(rows, noise_widths(layers)), list(twin.weights)
    for index, layer in enumerate(layers):
        noise_in, noise_out = noises[2 * index : 2 * index + 2]
        both = noise_in[:, :, np.newaxis] * noise_out[:, np.newaxis]
        kernel, bias = index_of[id(layer.kernel)], index_of[id(layer.bias)]
        deviations = index_of[id(layer.kernel_deviation)], index_of[id(layer.bias_deviation)]
        kernels = twin.weights[kernel] + twin.weights[deviations[0]] * both
        biases = twin.weights[bias] + twin.weights[deviations[1]] * noise_out
        # One row is a network like any other; several are products of stacks of matrices.
        weights[kernel], weights[bias] = (kernels[0], biases[0]) if rows == 1 else (kernels, biases)
    noisy.use(weights, rows)
    return noisy


class Sampling:
    """Draws from the policy's own distribution; noise of continuous actions may be correlated."""

    gives_log_prob = True
    metric_names = ()
    final_state = np.zeros(0)

    def __init__(self, cfg: PPOConfig, distribution: Distribution):
        self.distribution, self.num_random_words = distribution, distribution.num_uniforms
        self.correlation = cfg.noise_correlation if distribution.num_scales else 0.0

    def state(self, env_steps: tf.Tensor) -> tf.Tensor:
        """[0]: the distribution is all there is to know."""
        return tf.zeros([0])

    def noise(self, random_bits: tf.Tensor, env_steps: tf.Tensor) -> tf.Tensor:
        """[T, E, N] noise from as many words."""
        return self._correlate(self.distribution.noise(uniform(random_bits)))

    def action(self, params: tf.Tensor, noise: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """[E, ...] raw actions from params [E, P] and [E, N] noise; their [E] log-probabilities."""
        action = self.distribution.sample(params, noise)
        return action, self.distribution.log_prob(params, action)

    def host_noise(
        self, rng: np.random.Generator, shape: tuple[int, int], state: np.ndarray
    ) -> np.ndarray:
        """[T, E, N] noise for a `shape` (T, E)."""
        return self._correlate(self.distribution.host_noise(rng, shape))

    def host_action(self, params: HostParams, obs: HostObs, noise: np.ndarray) -> np.ndarray:
        """[E, ...] raw actions for [E, *obs]."""
        return self.distribution.host_sample(params(obs), noise)

    def _correlate(self, noise: Noise) -> Noise:
        return correlate(noise, self.correlation) if self.correlation else noise


def correlate(noise: Noise, correlation: float) -> Noise:
    """Noise whose every number leans on the previous: e[t] = c e[t-1] + sqrt(1 - c^2) noise[t].

    Each number stays standard normal, so probabilities are as without; only neighbors in time
    resemble each other, and exploration goes somewhere instead of trembling. Every rollout begins
    afresh.

    Args:
        noise: [T, ...] independent standard normal numbers, a tensor or an array.
        correlation: `c`, of neighbors in time, in (0, 1).

    Source: Hollenstein et al. 2024, arXiv:2312.11091, with first-order noise.
    """
    share = math.sqrt(1.0 - correlation**2)
    scale = np.full([noise.shape[0]] + [1] * (len(noise.shape) - 1), share, np.float32)
    scale[0] = 1.0
    result: Any = noise * scale
    weight, step = correlation, 1
    concat = tf.concat if tf.is_tensor(noise) else np.concatenate
    while step < noise.shape[0]:  # by doubling, as policy.returns.weighted_sums
        result = concat([result[:step], result[step:] + weight * result[:-step]], 0)
        weight, step = weight**2, 2 * step
    return result
