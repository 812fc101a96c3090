"""The first D is *double*: who picks, who evaluates (model/ddqn_mlp.py is *dueling*)."""

from __future__ import annotations

import tensorflow as tf

from kytolly.policy.batch import Transition
from kytolly.policy.dqn import DQNPolicy
from kytolly.policy.targets import double_q_target


class DoubleDQNPolicy(DQNPolicy):
    """DQN whose next action is picked by the online network, whatever the config's `double` says.

    Source: van Hasselt, Guez & Silver 2016, arXiv:1509.06461.
    """

    @property
    def noise_draws(self) -> int:
        """As for `double`."""
        return 3

    def bootstrap(self, batch: Transition, weights: list[tf.Tensor]) -> tf.Tensor:
        """[B] targets: the online network picks the action, the target network evaluates it."""
        next_q_online = self.picks(batch, weights)
        next_q_target = self.target_q(batch.next_obs, batch)
        return double_q_target(batch.reward, batch.discount, next_q_online, next_q_target)
