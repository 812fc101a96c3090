"""Epsilon-greedy exploration, with its twin in NumPy for acting on the host."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from kytolly.agent.randomness import uniforms, whole_numbers
from kytolly.policy.weights import linear_schedule


class EpsilonGreedy:
    """The best action, or with probability epsilon any one: epsilon is 1 until learning begins.

    The params of `distribution` are action values, one for each action. Whether to explore, and by
    which action, holds for `exploration_repeat` steps of a rollout.

    Source: Dabney, Ostrovski & Barreto 2020, arXiv:2006.01782, "Temporally-Extended epsilon-Greedy
    Exploration", with one length instead of random ones.
    """

    draws = 2  # uint32 words for an action: whether to explore, and which action
    gives_log_prob = False
    metric_names = ("epsilon",)

    def __init__(self, cfg: Any, distribution: Any):
        self.cfg, self.distribution = cfg, distribution
        self.num_actions = distribution.num_params
        self.final_state = np.array([cfg.epsilon_final])  # as `state` when exploration has fallen

    def state(self, env_steps: tf.Tensor) -> tf.Tensor:
        """[1] epsilon after so many env steps; the values of `metric_names`."""
        cfg, learned = self.cfg, env_steps - self.cfg.first_update_env_steps
        scheduled = linear_schedule(
            cfg.epsilon_start, cfg.epsilon_final, cfg.exploration_env_steps, learned
        )
        return tf.where(learned < 0, 1.0, scheduled)[tf.newaxis]

    def noise(self, bits: Any, env_steps: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """[T, E] bool whether to explore, and [T, E] int32 random actions, from [T, E, 2] words."""
        if self.cfg.exploration_repeat > 1:
            bits = tf.gather(bits, self._deciding_steps(bits.shape[0]))
        explores = uniforms(bits[..., 0]) < self.state(env_steps)
        return explores, whole_numbers(bits[..., 1], tf.constant(self.num_actions))

    def action(self, params: tf.Tensor, noise: Any) -> tuple[tf.Tensor, Any]:
        """[E] int32 actions from action values [E, A] and [E] noise; no log-probabilities."""
        explores, random_action = noise
        return tf.where(explores, random_action, self.distribution.mode(params)), ()

    def host_noise(self, rng: np.random.Generator, shape: Any, state: np.ndarray) -> list[Any]:
        """What `host_action` needs for each of the `T` steps of a `shape` (T, E)."""
        explores, actions = rng.random(shape) < state[0], rng.integers(self.num_actions, size=shape)
        if self.cfg.exploration_repeat > 1:
            deciding = self._deciding_steps(shape[0])
            explores, actions = explores[deciding], actions[deciding]
        return list(zip(explores, actions, strict=True))

    def _deciding_steps(self, steps: Any) -> np.ndarray:
        """[T] the step of the rollout whose exploration each step has."""
        held = self.cfg.exploration_repeat
        return np.arange(steps) // held * held

    def host_action(
        self, values: Callable[[Any], np.ndarray], obs: Any, noise: tuple[np.ndarray, np.ndarray]
    ) -> np.ndarray:
        """[E] actions for [E, *obs]; `values` gives [E, A] action values where they are needed."""
        explores, action = noise
        if explores.all():
            return action
        best = self.distribution.host_mode(values(obs))
        return np.where(explores, action, best) if explores.any() else best
