"""The agent of the DQN family: everything that happens between two batches of one learner."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from kytolly.agent.acting import HostActor
from kytolly.agent.base import Agent
from kytolly.agent.exploration import epsilon_greedy, linear_schedule
from kytolly.agent.replay_buffer import ReplayBuffer
from kytolly.config.dqn import DQNConfig
from kytolly.environment.spec import EnvSpec, TimeStep
from kytolly.policy.batch import Transition
from kytolly.policy.dqn import DQNPolicy


class KytollyAgent(Agent):
    """Acts, remembers and learns. Owns buffer, exploration, random stream and counters.

    `explore`, `observe` and `learn` are plain functions of tensors, compiled by the loop that
    calls them. `act` is for everybody else.
    """

    latest_names = ("epsilon",)

    def __init__(
        self,
        policy: DQNPolicy,
        replay: ReplayBuffer,
        cfg: DQNConfig,
        env_spec: EnvSpec,
        actor: HostActor,
    ):
        super().__init__(policy, cfg, env_spec, actor)
        self.replay = replay

    def latest(self) -> tf.Tensor:
        """[1] the `latest_names` now."""
        return self.epsilon()[tf.newaxis]

    def epsilon(self) -> tf.Tensor:
        """[] share of random actions now: 1 in warm-up, then the schedule."""
        cfg, since_warmup = self.cfg, self.env_steps - self.cfg.warmup_env_steps
        scheduled = linear_schedule(
            cfg.epsilon_start, cfg.epsilon_final, cfg.exploration_env_steps, since_warmup
        )
        return tf.where(since_warmup < 0, 1.0, scheduled)

    def explore(self, obs: tf.Tensor, epsilon: tf.Tensor, bits: tf.Tensor) -> tf.Tensor:
        """[E] int32 epsilon-greedy actions for [E, *obs], from [E, 2] uint32 draws."""
        return epsilon_greedy(self.policy.online(obs), epsilon, bits)

    def transition(self, obs: tf.Tensor, action: tf.Tensor, step: TimeStep) -> Transition:
        """One-step rows: gamma as the discount, 0 where the episode terminated."""
        discount = tf.where(step.terminated, 0.0, self.cfg.gamma)
        return Transition(obs, action, step.reward, discount, step.next_obs)

    def observe(self, rows: Transition, last: tf.Tensor) -> None:
        """Remember rows in the order of time, and count their env steps."""
        self.replay.add(rows, last)
        self.env_steps.assign_add(rows.reward.shape[0])

    def learn(self, bits: tf.Tensor) -> tf.Tensor:
        """One update from a batch drawn with [B] uint32 draws; its figures [F]."""
        return self.policy.update(self.replay.sample(bits), tf.ones(bits.shape)).figures

    def q_values(self, observation) -> np.ndarray:
        """[B, A] action values of a batch of observations."""
        return self._actor.network_outputs(observation)
