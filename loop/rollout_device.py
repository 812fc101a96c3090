"""Environment, policy, advantages and every epoch of minibatches as one XLA program."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from kytolly.agent.ppo_agent import PPOAgent
from kytolly.agent.randomness import uniforms
from kytolly.agent.rollout_buffer import RolloutBuffer
from kytolly.environment.tensor.stepping import step_and_reset, uniforms_per_step
from kytolly.loop.device import DeviceProgram
from kytolly.loop.learn import learn_rollout, rollout_draws
from kytolly.loop.metrics import LoopMetrics, episode_sums
from kytolly.policy.batch import Rollout


class RolloutDeviceLoop(DeviceProgram):
    """The loop of on-policy agents: a round is a rollout and all that is learnt from it."""

    agent: PPOAgent

    def _run(self, rounds: tf.Tensor) -> LoopMetrics:
        standing = tf.nest.map_structure(lambda variable: variable.read_value(), self.standing)
        _, standing, metrics = tf.while_loop(
            lambda done, *_: done < rounds,
            self._round,
            (tf.constant(0), standing, LoopMetrics.zeros(self.agent)),
        )
        tf.nest.map_structure(lambda old, new: old.assign(new), self.standing, standing)
        self.agent.episodes.assign_add(tf.cast(metrics.episodes, tf.int64))
        return metrics

    def _round(self, done: tf.Tensor, standing: Any, metrics: LoopMetrics) -> Any:
        # All of a round's random bits in one draw: a draw costs more than the numbers in it.
        agent = self.agent
        per_copy = agent.policy.distribution.num_uniforms + uniforms_per_step(self.env)
        acting = self.vector_steps * self.num_envs * per_copy
        bits = agent.random_stream.bits(acting + rollout_draws(agent))
        act_bits = tf.reshape(bits[:acting], [self.vector_steps, self.num_envs, per_copy])
        standing, rollout, metrics = self._collect(standing, act_bits, metrics)
        limit = self.env.spec.max_episode_steps
        cut_once = limit is None or limit >= self.vector_steps
        metrics = learn_rollout(agent, rollout, bits[acting:], metrics, cut_once)
        return done + 1, standing, metrics

    def _collect(
        self, standing: Any, bits: tf.Tensor, metrics: LoopMetrics
    ) -> tuple[Any, Rollout, LoopMetrics]:
        """Step all copies with the agent's present weights."""
        agent, distribution = self.agent, self.agent.policy.distribution
        own = distribution.num_uniforms
        noise, draws = tf.split(bits, [own, bits.shape[-1] - own], axis=-1)
        noise, draws = agent.noise(noise), uniforms(draws)
        buffer = RolloutBuffer(self.env.spec, self.num_envs, self.vector_steps)

        def step(time, state, obs, columns, episodes):
            # Gathered, because a slice at a tensor's place would lose its shape.
            action, log_prob = agent.explore(obs, tf.gather(noise, time))
            state, outcome, end = step_and_reset(
                self.env, state, distribution.to_env(action), tf.gather(draws, time)
            )
            row = agent.row(obs, action, log_prob, outcome, end.ended)
            columns = buffer.written(columns, time, row)
            return time + 1, state, outcome.obs, columns, episodes + episode_sums(end)

        _, state, obs, columns, episodes = tf.while_loop(
            lambda time, *_: time < self.vector_steps,
            step,
            (tf.constant(0), *standing, buffer.empty(), tf.zeros([3])),
        )
        return (state, obs), buffer.rollout(columns), metrics.with_episodes(episodes)
