"""The agent of on-policy learning: it samples actions and keeps running statistics."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from kytolly.agent.acting import HostActor
from kytolly.agent.base import Agent
from kytolly.agent.exploration import correlated, linear_schedule
from kytolly.agent.randomness import uniforms
from kytolly.config.ppo import PPOConfig
from kytolly.environment.spec import Box, EnvSpec, TimeStep
from kytolly.model.normalization import merged
from kytolly.policy.batch import PPOBatch, Rollout
from kytolly.policy.ppo import PPOPolicy, flat, without_mask


class PPOAgent(Agent):
    """Samples actions, turns env steps into rollouts and rollouts into rows to learn from.

    `explore`, `row` and `prepare` are plain functions of tensors, compiled by the loop that
    calls them. `act` is for everybody else.
    """

    latest_names = ("explained_variance",)

    def __init__(self, policy: PPOPolicy, cfg: PPOConfig, env_spec: EnvSpec, actor: HostActor):
        super().__init__(policy, cfg, env_spec, actor)
        self.returns = ReturnScale(cfg) if cfg.normalize_rewards else None

    def noise(self, bits: tf.Tensor) -> tf.Tensor:
        """[T, E, N] noise of a rollout's actions, from as many uint32 draws."""
        noise = self.policy.distribution.noise(uniforms(bits))
        if self.cfg.noise_correlation and isinstance(self.env_spec.action, Box):
            return correlated(noise, self.cfg.noise_correlation)
        return noise

    def explore(self, obs: Any, noise: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """[E, ...] raw actions for [E, *obs] and [E, N] noise, and their [E] log-probabilities."""
        distribution, (params, _) = self.policy.distribution, self.policy.outputs(obs)
        action = distribution.sample(params, noise)
        return action, distribution.log_prob(params, action)

    def row(
        self, obs: Any, action: tf.Tensor, log_prob: tf.Tensor, step: TimeStep, ended: tf.Tensor
    ) -> Rollout:
        """One env step of a rollout: gamma as the discount, 0 where the episode terminated."""
        discount = tf.where(step.terminated, 0.0, self.cfg.gamma)
        return Rollout(obs, action, step.reward, discount, step.next_obs, ended, log_prob)

    def prepare(self, rollout: Rollout, cut_once: bool) -> PPOBatch:
        """Count a rollout's env steps, set the learning rate, and make rows to learn from.

        Args:
            rollout: Collected with the present weights.
            cut_once: As for `PPOPolicy.batch`.
        """
        if self.cfg.learning_rate_final is not None:
            self.policy.optimizer.learning_rate.assign(
                linear_schedule(
                    self.cfg.learning_rate,
                    self.cfg.learning_rate_final,
                    self.cfg.total_env_steps,
                    self.env_steps,
                )
            )
        self.env_steps.assign_add(self.cfg.env_steps_per_rollout)
        if self.returns is not None:
            rollout = rollout._replace(reward=self.returns.scaled(rollout))
        return self.policy.batch(rollout, cut_once)

    def learnt(self, rollout: Rollout) -> None:
        """Count the rollout's observations into the statistics, once nobody needs the old ones."""
        if self.cfg.normalize_observations:
            seen = tf.nest.map_structure(flat, without_mask(rollout.obs))
            self.policy.network.update_statistics(seen)


class ReturnScale(tf.Module):
    """Divides rewards by the running deviation of the discounted return.

    Source: Engstrom et al. 2020, arXiv:2005.12729, section 3, "reward scaling".
    """

    def __init__(self, cfg: PPOConfig):
        super().__init__(name="return_scale")
        self.gamma, self.clip = cfg.gamma, cfg.normalized_clip
        self.discounted = tf.Variable(tf.zeros([cfg.num_envs]), trainable=False, name="discounted")
        self.mean, self.variance, self.count = (
            tf.Variable(begin, trainable=False, name=name)
            for begin, name in ((0.0, "mean"), (1.0, "variance"), (1e-4, "count"))
        )

    def scaled(self, rollout: Rollout) -> tf.Tensor:
        """[T, E] rewards in units of that deviation, this rollout's returns counted in."""
        discounted, returns = self._returns(rollout)
        self.discounted.assign(discounted)
        self._count_in(returns)
        scaled = rollout.reward * tf.math.rsqrt(self.variance + 1e-8)
        return tf.clip_by_value(scaled, -self.clip, self.clip)

    def _returns(self, rollout: Rollout) -> tuple[tf.Tensor, tf.Tensor]:
        """The discounted sums of past rewards, [E] now and [T, E] after every step."""
        steps = rollout.reward.shape[0]

        def step(time, discounted, sums):
            discounted = self.gamma * discounted + tf.gather(rollout.reward, time)
            sums = sums.write(time, discounted)
            return time + 1, tf.where(tf.gather(rollout.last, time), 0.0, discounted), sums

        sums = tf.TensorArray(tf.float32, steps, element_shape=self.discounted.shape)
        _, discounted, sums = tf.while_loop(
            lambda time, *_: time < steps,
            step,
            (tf.constant(0), self.discounted.read_value(), sums),
        )
        return discounted, sums.stack()

    def _count_in(self, values: tf.Tensor) -> None:
        count = float(values.shape[0] * values.shape[1])
        new = (tf.reduce_mean(values), tf.math.reduce_variance(values), count)
        before = (self.mean, self.variance, self.count)
        for statistic, value in zip(before, merged(*before, *new), strict=True):
            statistic.assign(value)
