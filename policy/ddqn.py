"""The first D is *double*: who picks, who evaluates (model/ddqn_mlp.py is *dueling*)."""

from __future__ import annotations

import tensorflow as tf

from kytolly.policy import targets
from kytolly.policy.batch import Transition
from kytolly.policy.dqn import DQNPolicy


class DoubleDQNPolicy(DQNPolicy):
    """DQN whose next action is picked by the online network.

    Source: van Hasselt, Guez & Silver 2016, arXiv:1509.06461.
    """

    def bootstrap(self, batch: Transition, weights: list[tf.Tensor]) -> tf.Tensor:
        """[B] targets: the online network picks the action, the target network evaluates it."""
        online = self.q_values(batch.next_obs, weights)
        target = self.target_q(batch.next_obs)
        return targets.double_q_target(batch.reward, batch.discount, online, target)
