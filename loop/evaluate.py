"""Greedy episodes in fresh environments in tensor code."""

from __future__ import annotations

import keras
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
        return Evaluation.of_episodes(returns.numpy(), lengths.numpy())

    def get_state(self) -> dict[str, int]:
        """Where the random stream is."""
        return {"counter": int(self.random_stream.counter.numpy())}

    def set_state(self, saved: dict[str, int]) -> None:
        """Continue the random stream from there."""
        self.random_stream.counter.assign(saved["counter"])

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

        def goes_on(time, state, obs, ended, returns, lengths):
            return (time < limit) & tf.logical_not(tf.reduce_all(ended))

        *_, state, _, ended, returns, lengths = tf.while_loop(
            goes_on,
            step,
            (tf.constant(0), state, obs, zeros > 0, zeros, tf.cast(zeros, tf.int32)),
        )
        return (
            tf.where(ended, returns, state.episode_return),
            tf.where(ended, lengths, state.elapsed),
        )
