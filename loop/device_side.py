"""Environments in tensor code for training, and others like them for evaluation."""

from __future__ import annotations

import math
import time
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from kytolly.agent.algorithms import part
from kytolly.agent.kytolly import KytollyAgent
from kytolly.agent.randomness import RandomStream, uniforms
from kytolly.callback.base import Evaluation
from kytolly.config.run import RunConfig
from kytolly.environment.spec import EnvSpec, TensorEnvironment
from kytolly.environment.tensor.stepping import reset_all, step_and_reset, uniforms_per_step
from kytolly.loop.device import DeviceLoop
from kytolly.loop.program import Program
from kytolly.loop.protocols import STEP_LIMIT, warn_of_cut, warn_of_time
from kytolly.policy.base import greedy_action

CALL_STEPS = 200  # of each environment, between two looks at the clock where time is limited


class DeviceSide:
    """An environment in tensor code: training and evaluation are programs on the device."""

    loop_name = "device"

    def __init__(self, env: TensorEnvironment, cfg: RunConfig):
        self.env, self.cfg, self.num_envs = env, cfg, cfg.num_envs
        self.spec: EnvSpec = env.spec._replace(truncates_at_limit_only=True)

    def loop(self, agent: KytollyAgent, device: str | None) -> DeviceLoop:
        """The loop that trains."""
        return DeviceLoop(agent, self.env, device)

    def evaluator(
        self, network: keras.Model, episodes: int, seed: int, *, xla: bool, device: str | None
    ) -> DeviceEvaluator:
        """Plays one episode in each of `episodes` environments, all at once.

        Args:
            network: Keras model whose output, or first output, is [B, P].
            episodes: Environments, and so episodes.
            seed: Seed of the episodes.
            xla: Compile with XLA.
            device: Name of the device to play on, such as "/GPU:0".
        """
        return DeviceEvaluator(self, network, episodes, seed, xla, device)

    def close(self) -> None:
        """Nothing to release."""


class DeviceEvaluator:
    """Plays greedily inside one program."""

    def __init__(self, side: DeviceSide, network: Any, episodes: int, seed: int, *program: Any):
        self.env, self.network, self.episodes = side.env, network, episodes
        policy = part(side.cfg.algorithm, "policy")
        self.distribution = policy.distribution_for(side.cfg, side.spec)
        self.random_stream = RandomStream(seed, purpose=2)
        draws = tf.zeros([episodes, self.env.reset_uniforms])
        start = tf.nest.map_structure(tf.zeros_like, reset_all(self.env, draws))
        zeros = tf.zeros([episodes])
        counts = tf.constant(0), zeros > 0, zeros, tf.cast(zeros, tf.int32)
        self.start: Any = (counts, start)
        signature = [tf.TensorSpec([], tf.int32)]
        signature += map(tf.TensorSpec.from_tensor, tf.nest.flatten(self.start))
        self.program = Program(self._play, signature, *program)

    def evaluate(self, number: int = 0, deadline: float = math.inf) -> Evaluation:
        """The returns and lengths of `episodes` episodes, other ones for each `number`."""
        self.random_stream.counter.assign(number << 32)
        limit, name = self.env.spec.max_episode_steps or STEP_LIMIT, self.env.spec.name
        until, carried, ended = 0, self.start, np.zeros(1, bool)
        while until < limit and not ended.all():
            if until and time.perf_counter() > deadline:
                break
            until = min(limit, until + CALL_STEPS) if deadline < math.inf else limit
            carried = self.program(tf.constant(until), *tf.nest.flatten(carried))
            ended = carried[0][1].numpy()
        returns, lengths = (part.numpy() for part in carried[0][2:])
        late = until < limit and not ended.all()
        if late:
            warn_of_time(name, int(ended.sum()), self.episodes)
            counted = ended if ended.any() else ~ended
            returns, lengths = returns[counted], lengths[counted]
        elif not ended.all() and self.env.spec.max_episode_steps is None:
            warn_of_cut(name)
        return Evaluation.of_episodes(returns, lengths, late)

    def _draws(self, count: int) -> tf.Tensor:
        bits = self.random_stream.bits(self.episodes * count)
        return tf.reshape(uniforms(bits), [self.episodes, count])

    def _play(self, until: tf.Tensor, *leaves: tf.Tensor) -> Any:
        """Play up to a step: counts (time, ended, returns, lengths), and the environments."""
        env = self.env
        (time, *counts), state = tf.nest.pack_sequence_as(self.start, leaves)
        fresh = reset_all(env, self._draws(env.reset_uniforms))
        state, obs = tf.nest.map_structure(
            lambda new, old: tf.where(time == 0, new, old), fresh, state
        )

        def step(time, state, obs, ended, returns, lengths):
            action = greedy_action(self.network, self.distribution, obs)
            draws = self._draws(uniforms_per_step(env))
            state, after = step_and_reset(env, state, action, draws)
            returns = tf.where(ended, returns, after.episode_return)
            lengths = tf.where(ended, lengths, after.episode_length)
            return time + 1, state, after.obs, ended | after.ended, returns, lengths

        time, state, obs, *counts = tf.while_loop(
            lambda time, _, __, ended, *___: (time < until) & ~tf.reduce_all(ended),
            step,
            (time, state, obs, *counts),
        )
        return (time, *counts), (state, obs)
