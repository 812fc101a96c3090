"""When, and how, to act at random. Each exploration has a twin in NumPy for acting on the host."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from kytolly.agent.randomness import uniforms, whole_numbers
from kytolly.policy.distributions import Distribution


class EpsilonGreedy:
    """The best action, or with probability epsilon any one: epsilon is 1 until warm-up is over.

    Args:
        cfg: Configuration.
        distribution: Says how many actions there are; its params are action values.
    """

    draws = 2  # uint32 words for an action: whether to explore, and which action
    gives_log_prob = False
    metric_names = ("epsilon",)

    def __init__(self, cfg: Any, distribution: Distribution):
        self.cfg, self.num_actions = cfg, distribution.num_params

    def state(self, env_steps: tf.Tensor) -> tf.Tensor:
        """[1] epsilon after so many env steps; the values of `metric_names`."""
        cfg, since_warmup = self.cfg, env_steps - self.cfg.warmup_env_steps
        scheduled = linear_schedule(
            cfg.epsilon_start, cfg.epsilon_final, cfg.exploration_env_steps, since_warmup
        )
        return tf.where(since_warmup < 0, 1.0, scheduled)[tf.newaxis]

    def noise(self, bits: tf.Tensor, env_steps: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """[T, E] bool whether to explore, and [T, E] int32 random actions, from [T, E, 2] words."""
        explores = uniforms(bits[..., 0]) < self.state(env_steps)
        return explores, whole_numbers(bits[..., 1], tf.constant(self.num_actions))

    def action(
        self, params: tf.Tensor, noise: tuple[tf.Tensor, tf.Tensor]
    ) -> tuple[tf.Tensor, Any]:
        """[E] int32 actions from action values [E, A] and [E] noise; no log-probabilities."""
        explores, random_action = noise
        return tf.where(explores, random_action, best_action(params)), ()

    def host_noise(
        self, rng: np.random.Generator, shape: tuple[int, int], state: np.ndarray
    ) -> list[tuple[np.ndarray, np.ndarray]]:
        """What `host_action` needs for each of `T` steps of `E` environments."""
        explores = rng.random(shape) < state[0]
        return list(zip(explores, rng.integers(self.num_actions, size=shape), strict=True))

    def host_action(
        self, values: Callable[[Any], np.ndarray], obs: Any, noise: tuple[np.ndarray, np.ndarray]
    ) -> np.ndarray:
        """[E] actions for [E, *obs]; `values` gives [E, A] action values where they are needed."""
        explores, action = noise
        if explores.all():
            return action
        best = values(obs).argmax(axis=-1)
        return np.where(explores, action, best) if explores.any() else best


class Sampling:
    """Draws from the policy's own distribution.

    Args:
        cfg: Configuration.
        distribution: Of the policy.
    """

    gives_log_prob = True
    metric_names = ()

    def __init__(self, cfg: Any, distribution: Distribution):
        self.distribution, self.draws = distribution, distribution.num_uniforms
        # Only continuous actions have noise that can be correlated.
        self.correlation = cfg.noise_correlation if distribution.num_scales else 0.0

    def state(self, env_steps: tf.Tensor) -> tf.Tensor:
        """[0]: the distribution is all there is to know."""
        return tf.zeros([0])

    def noise(self, bits: tf.Tensor, env_steps: tf.Tensor) -> tf.Tensor:
        """[T, E, N] noise from as many words."""
        return correlate(self.distribution.noise(uniforms(bits)), self.correlation)

    def action(self, params: tf.Tensor, noise: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """[E, ...] raw actions from params [E, P] and [E, N] noise; their [E] log-probabilities."""
        action = self.distribution.sample(params, noise)
        return action, self.distribution.log_prob(params, action)

    def host_noise(
        self, rng: np.random.Generator, shape: tuple[int, int], state: np.ndarray
    ) -> np.ndarray:
        """[T, E, N] noise."""
        return correlate(self.distribution.host_noise(rng, shape), self.correlation)

    def host_action(
        self, params: Callable[[Any], np.ndarray], obs: Any, noise: np.ndarray
    ) -> np.ndarray:
        """[E, ...] raw actions for [E, *obs]."""
        return self.distribution.host_sample(params(obs), noise)


def linear_schedule(start: float, final: float, steps: int, done: tf.Tensor) -> tf.Tensor:
    """[] value that falls linearly from `start` to `final` over `steps` and stays there.

    Args:
        start: Value at 0.
        final: Value at `steps`.
        steps: Length of the fall, in the unit of `done`.
        done: [] number of steps done; negative counts as 0.
    """
    share = tf.clip_by_value(tf.cast(done, tf.float32) / steps, 0.0, 1.0)
    return start + share * (final - start)


def best_action(values: tf.Tensor) -> tf.Tensor:
    """[E] int32 action with the highest of [E, A] values."""
    return tf.argmax(values, axis=-1, output_type=tf.int32)


def correlate(noise: Any, correlation: float) -> Any:
    """Noise whose every number leans on the previous: e[t] = c e[t-1] + sqrt(1 - c^2) noise[t].

    Each number stays standard normal, so probabilities are as without; only neighbors in time
    resemble each other, and exploration goes somewhere instead of trembling. Every rollout begins
    afresh.

    Args:
        noise: [T, ...] independent standard normal numbers, a tensor or an array.
        correlation: `c`, of neighbors in time, in [0, 1).

    Source: Hollenstein et al. 2024, arXiv:2312.11091, with first-order noise.
    """
    if not correlation:
        return noise
    share = math.sqrt(1.0 - correlation**2)
    scale = np.full([noise.shape[0]] + [1] * (len(noise.shape) - 1), share, np.float32)
    scale[0] = 1.0
    result, weight, step = noise * scale, correlation, 1
    concat = tf.concat if tf.is_tensor(noise) else np.concatenate
    while step < noise.shape[0]:  # by doubling, as policy.targets.generalized_advantage
        result = concat([result[:step], result[step:] + weight * result[:-step]], 0)
        weight, step = weight**2, 2 * step
    return result
