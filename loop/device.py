"""Environment, exploration, replay, learning and target sync as one XLA program."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from kytolly.agent.base import Agent
from kytolly.agent.kytolly import KytollyAgent
from kytolly.agent.randomness import RandomStream, uniforms
from kytolly.environment.spec import TensorEnvironment
from kytolly.environment.tensor.stepping import (
    DeviceState,
    reset_all,
    step_and_reset,
    uniforms_per_step,
)
from kytolly.loop.learn import learn_round
from kytolly.loop.metrics import LoopMetrics, episode_sums
from kytolly.loop.program import Program
from kytolly.policy.batch import Transition


class DeviceProgram(tf.Module):
    """Steps tensor environments and their learner together, many rounds for each call.

    A round collects `vector_steps_per_interval` steps of all copies and learns from them.
    Subclasses say how.

    Args:
        agent: The learner; its state changes in place.
        env: Environment in tensor code.
        device: Where the program runs, such as "/GPU:0"; None leaves it to TensorFlow.
    """

    agent: Any

    def __init__(self, agent: Agent, env: TensorEnvironment, device: str | None = None):
        super().__init__(name="device_loop")
        self.agent, self.env, cfg = agent, env, agent.cfg
        self.num_envs, self.vector_steps = cfg.num_envs, cfg.vector_steps_per_interval
        self.env_steps_per_round = self.num_envs * self.vector_steps
        bits = RandomStream(cfg.seed, purpose=1).bits(self.num_envs * env.reset_uniforms)
        start = reset_all(env, tf.reshape(uniforms(bits), [self.num_envs, env.reset_uniforms]))
        self.standing = tf.nest.map_structure(lambda t: tf.Variable(t, trainable=False), start)
        self.program = Program(self._run, [tf.TensorSpec([], tf.int32)], cfg.xla, device)

    def run(self, env_steps: int) -> LoopMetrics:
        """Train for at least `env_steps` env steps, in whole rounds; 0 only compiles."""
        return self.program(tf.constant(-(-env_steps // self.env_steps_per_round), tf.int32))

    @property
    def trackables(self) -> dict[str, tf.Module]:
        """What a checkpoint holds beside the agent: where the environments stand."""
        return {"loop": self}

    @property
    def xla(self) -> bool:
        """Whether the program is compiled with XLA; known after the first call."""
        return self.program.xla

    def close(self) -> None:
        """Nothing to release."""

    def _run(self, rounds: tf.Tensor) -> LoopMetrics:
        raise NotImplementedError


class DeviceLoop(DeviceProgram):
    """The loop of the DQN family.

    A round writes what it collected to the replay buffer at once, and makes `updates_per_round`
    updates.
    """

    agent: KytollyAgent

    def _run(self, rounds: tf.Tensor) -> LoopMetrics:
        standing = tf.nest.map_structure(lambda variable: variable.read_value(), self.standing)
        # Two loops, so that no round has to ask: to choose inside a loop copies the weights.
        carried = (tf.constant(0), standing, LoopMetrics.zeros(self.agent))
        warm = tf.minimum(rounds, self._warmup_rounds())
        carried = tf.while_loop(
            lambda done, *_: done < warm, lambda *now: self._round(*now, learns=False), carried
        )
        _, standing, metrics = tf.while_loop(
            lambda done, *_: done < rounds, lambda *now: self._round(*now, learns=True), carried
        )
        tf.nest.map_structure(lambda old, new: old.assign(new), self.standing, standing)
        self.agent.episodes.assign_add(tf.cast(metrics.episodes, tf.int64))
        return metrics._replace(latest=self.agent.latest())

    def _warmup_rounds(self) -> tf.Tensor:
        """[] int32 rounds after which there is still too little to learn from."""
        missing = self.agent.cfg.warmup_env_steps - 1 - self.agent.env_steps
        return tf.cast(tf.maximum(missing, 0) // self.env_steps_per_round, tf.int32)

    def _round(self, done: tf.Tensor, standing: Any, metrics: LoopMetrics, learns: bool) -> Any:
        # All of a round's random bits in one draw: a draw costs more than the numbers in it.
        agent, cfg = self.agent, self.agent.cfg
        per_copy = 2 + uniforms_per_step(self.env)
        acting = self.vector_steps * self.num_envs * per_copy
        bits = agent.random_stream.bits(acting + cfg.updates_per_round * cfg.batch_size)
        act_bits = tf.reshape(bits[:acting], [self.vector_steps, self.num_envs, per_copy])
        standing, rows, last, metrics = self._collect(standing, act_bits, metrics)
        agent.observe(rows, last)
        if learns:
            metrics = learn_round(agent, bits[acting:], metrics)
        return done + 1, standing, metrics

    def _collect(self, standing: tuple[DeviceState, tf.Tensor], bits: tf.Tensor, metrics) -> Any:
        """Step all copies; rows come back time-major and flat, [T * E, ...]."""
        epsilon = self.agent.epsilon()

        def step(time, state, obs, columns, episodes):
            draws = tf.gather(bits, time)  # a slice at a tensor's place would lose its shape
            action = self.agent.explore(obs, epsilon, draws[:, :2])
            draws = uniforms(draws[:, 2:])
            state, outcome, end = step_and_reset(self.env, state, action, draws)
            rows = (*self.agent.transition(obs, action, outcome), end.ended)
            columns = [c.write(time, row) for c, row in zip(columns, rows, strict=True)]
            return time + 1, state, outcome.obs, columns, episodes + episode_sums(end)

        unroll = 2 if self.vector_steps % 2 == 0 else 1  # 2 % faster; more is no gain

        def steps(*carried):
            for _ in range(unroll):
                carried = step(*carried)
            return carried

        _, state, obs, columns, episodes = tf.while_loop(
            lambda time, *_: time < self.vector_steps,
            steps,
            (tf.constant(0), *standing, self._empty_columns(), tf.zeros([3])),
        )
        *rows, last = [self._flat(column) for column in columns]
        return (state, obs), Transition(*rows), last, metrics.with_episodes(episodes)

    def _empty_columns(self) -> list[tf.TensorArray]:
        obs = self.env.spec.obs
        scalars = [([], tf.int32), ([], tf.float32), ([], tf.float32)]
        columns = [(obs.shape, obs.dtype), *scalars, (obs.shape, obs.dtype), ([], tf.bool)]
        return [
            tf.TensorArray(dtype, self.vector_steps, element_shape=[self.num_envs, *shape])
            for shape, dtype in columns
        ]

    def _flat(self, column: tf.TensorArray) -> tf.Tensor:
        rows = column.stack()
        return tf.reshape(rows, [self.env_steps_per_round, *rows.shape[2:]])
