"""Greedy episodes in fresh environments."""

from __future__ import annotations

from collections.abc import Callable

import keras
import numpy as np
import tensorflow as tf

from kytolly.agent.randomness import RandomStream, uniforms
from kytolly.callback.base import Evaluation
from kytolly.environment.spec import TensorEnvironment
from kytolly.environment.tensor.stepping import reset_all, step_and_reset, uniforms_per_step
from kytolly.loop.program import Program
from kytolly.policy.base import greedy_action
from kytolly.policy.distributions import Distribution

STEP_LIMIT = 20_000  # env steps; ends an evaluation episode where the environment never does


class DeviceEvaluator(tf.Module):
    """Plays one episode in each of `episodes` environments at once, inside one program.

    Args:
        network: Keras model whose output, or first output, is [B, P].
        distribution: Reads the params.
        env: Environment in tensor code.
        episodes: Environments, and so episodes.
        seed: Seed of the episodes; every call continues its random stream.
        xla, device: As for `Program`.
    """

    def __init__(
        self,
        network: keras.Model,
        distribution: Distribution,
        env: TensorEnvironment,
        episodes: int,
        seed: int,
        *,
        xla: bool,
        device: str | None = None,
    ):
        super().__init__(name="device_evaluator")
        self.network, self.distribution = network, distribution
        self.env, self.episodes = env, episodes
        self.random_stream = RandomStream(seed, purpose=2)
        self.program = Program(self._play, [], xla, device)

    def evaluate(self) -> Evaluation:
        """The returns and lengths of `episodes` new episodes."""
        returns, lengths = self.program()
        return summarize(returns.numpy(), lengths.numpy())

    def _draws(self, count: int) -> tf.Tensor:
        bits = self.random_stream.bits(self.episodes * count)
        return tf.reshape(uniforms(bits), [self.episodes, count])

    def _play(self) -> tuple[tf.Tensor, tf.Tensor]:
        limit = self.env.spec.max_episode_steps or STEP_LIMIT
        state, obs = reset_all(self.env, self._draws(self.env.reset_uniforms))
        zeros = tf.zeros([self.episodes])

        def step(time, state, obs, ended, returns, lengths):
            action = greedy_action(self.network, self.distribution, obs)
            draws = self._draws(uniforms_per_step(self.env))
            state, outcome, end = step_and_reset(self.env, state, action, draws)
            first = tf.logical_and(end.ended, tf.logical_not(ended))
            returns = tf.where(first, end.episode_return, returns)
            lengths = tf.where(first, end.episode_length, lengths)
            return time + 1, state, outcome.obs, ended | end.ended, returns, lengths

        def unfinished(time, state, obs, ended, returns, lengths):
            return (time < limit) & tf.logical_not(tf.reduce_all(ended))

        *_, state, _, ended, returns, lengths = tf.while_loop(
            unfinished,
            step,
            (tf.constant(0), state, obs, zeros > 0, zeros, tf.cast(zeros, tf.int32)),
        )
        return (
            tf.where(ended, returns, state.episode_return),
            tf.where(ended, lengths, state.elapsed),
        )


class HostEvaluator:
    """Plays episodes in Gymnasium environments, each environment its share of them.

    Args:
        act: Function from observations [E, *obs] to actions [E].
        make_env: Function that makes the adapter from a seed.
        episodes: Episodes in all.
        seed: Seed of the first call; every later call takes the next.
    """

    def __init__(self, act: Callable, make_env: Callable[[int], object], episodes: int, seed: int):
        self.act, self.make_env, self.episodes, self.seed = act, make_env, episodes, seed

    def evaluate(self) -> Evaluation:
        """The returns and lengths of `episodes` new episodes."""
        self.seed += 1
        env = self.make_env(self.seed)
        try:
            return self._play(env)
        finally:
            env.close()

    def _play(self, env) -> Evaluation:
        rest = np.arange(env.num_envs) < self.episodes % env.num_envs
        quota = self.episodes // env.num_envs + rest
        obs, returns, lengths = env.reset(), [], []
        while quota.any():
            step = env.step(self.act(obs))
            obs = step.obs
            for index in np.flatnonzero(step.ended & (quota > 0)):
                quota[index] -= 1
                returns.append(float(step.episode_return[index]))
                lengths.append(int(step.episode_length[index]))
        return summarize(np.array(returns), np.array(lengths))


def summarize(returns: np.ndarray, lengths: np.ndarray) -> Evaluation:
    """Mean and spread of [N] returns and lengths."""
    return Evaluation(
        episodes=len(returns),
        return_mean=float(np.mean(returns)),
        return_std=float(np.std(returns)),
        length_mean=float(np.mean(lengths)),
        returns=tuple(float(value) for value in returns),
    )
