"""The agent: everything that happens between two batches of one learner."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
import tensorflow as tf

from kytolly.agent.randomness import RandomStream
from kytolly.agent.schedule import linear_schedule
from kytolly.environment.mask import without_mask
from kytolly.environment.spec import EnvSpec
from kytolly.policy.base import Policy
from kytolly.policy.batch import Rollout, merge_time


class KytollyAgent(tf.Module):
    """Acts, remembers and learns: owns the policy, the memory, the random stream and the counters.

    `observe` and `finish_iteration` are plain functions of tensors, compiled by the loop that calls
    them. `act` and `q_values` are for everybody else. The parts are those of `agent.algorithms`.
    """

    def __init__(self, policy: Policy, memory: Any, exploration: Any, cfg: Any, env_spec: EnvSpec):
        super().__init__(name="kytolly_agent")
        self.policy, self.memory, self.exploration = policy, memory, exploration
        self.cfg, self.env_spec = cfg, env_spec
        self.random_stream = RandomStream(cfg.seed)
        self.env_steps = tf.Variable(0, dtype=tf.int64, trainable=False, name="env_steps")
        self.episodes = tf.Variable(0, dtype=tf.int64, trainable=False, name="episodes")
        self.latest_names: tuple[str, ...] = (*exploration.metric_names, *memory.metric_names)

    def discount(self, terminated: Any) -> Any:
        """Weight of what follows a step: gamma, or 0 where the episode terminated.

        Made here and nowhere else, of tensors and arrays. A time limit is not a termination.
        """
        where = tf.where if tf.is_tensor(terminated) else np.where
        return where(terminated, np.float32(0.0), np.float32(self.cfg.gamma))

    def observe(self, rollout: Rollout) -> tuple[Any, tf.Tensor]:
        """Count the env steps of a rollout and open it in the memory.

        Args:
            rollout: [T, E] env steps, collected with the present weights or a little older ones.

        Returns:
            What `memory.batch` takes, and [L] the `latest_names` now.
        """
        cfg = self.cfg
        # A schedule over updates is the optimizer's own.
        if cfg.learning_rate_final is not None and cfg.learning_rate_decay_updates is None:
            rate = linear_schedule(
                cfg.learning_rate, cfg.learning_rate_final, cfg.total_env_steps, self.env_steps
            )
            self.policy.optimizer.learning_rate.assign(rate)
        opened = self.memory.open(rollout, self.policy)
        self.env_steps.assign_add(rollout.reward.shape.num_elements())
        explored = self.exploration.state(self.env_steps)
        return opened, tf.concat([explored, self.memory.latest(opened)], axis=0)

    def updates_due(self) -> Any:
        """Updates after the rollout that `observe` counted: a number, or [] int32 where it varies.

        After n env steps there were floor(n * ratio): no iteration's fraction is lost.
        """
        steps, ratio = self.cfg.env_steps_per_iteration, self.cfg.updates_per_env_step
        if (ratio * steps).denominator == 1:
            return self.memory.updates
        ends = tf.stack([self.env_steps - steps, self.env_steps])
        before, after = tf.unstack(ends * ratio.numerator // ratio.denominator)
        return tf.cast(after - before, tf.int32)

    def finish_iteration(self, rollout: Rollout) -> None:
        """Count observations into the network's statistics, once nobody needs the old ones."""
        if getattr(self.cfg, "normalize_observations", False):
            self.policy.network.update_statistics(merge_time(without_mask(rollout.obs)))

    def act(self, observation: Any) -> Any:
        """Greedy action for one observation, or for a batch of them.

        Args:
            observation: [*obs] or [B, *obs]; for Dict observations a dict of such arrays.

        Returns:
            For one observation what an environment's `step` takes: an int, or an array [D]. For a
            batch an array with `B` rows.
        """
        return self._player.act(observation)

    def q_values(self, observation: Any) -> np.ndarray:
        """[B, A] action values of a batch of observations, where the policy learns action values.

        Of other policies these are the params of the action distribution.
        """
        return self._player.params(observation)

    @cached_property
    def _player(self) -> Any:
        from kytolly.agent.playing import Player

        return Player(self.policy.network, self.policy.distribution, self.env_spec.obs)
