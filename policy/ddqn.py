"""The first D is *double*: who picks, who evaluates (model/ddqn_mlp.py is *dueling*)."""

from __future__ import annotations

import tensorflow as tf

from kytolly.policy.batch import Transition
from kytolly.policy.dqn import DQNPolicy


class DoubleDQNPolicy(DQNPolicy):
    """DQN whose next action is picked by the online network.

    Source: van Hasselt, Guez & Silver 2016, arXiv:1509.06461.
    """

    def bootstrap(self, batch: Transition, weights: list[tf.Tensor]) -> tf.Tensor:
        """[B] targets: the online network picks the action, the target network evaluates it."""
        next_q_online, _ = self.outputs(batch.next_obs, weights)
        next_q_target = self.target_q(batch.next_obs)
        return double_q_target(batch.reward, batch.discount, next_q_online, next_q_target)


def double_q_target(
    reward: tf.Tensor, discount: tf.Tensor, next_q_online: tf.Tensor, next_q_target: tf.Tensor
) -> tf.Tensor:
    """Target whose next action the online network picks and the target network evaluates.

    Args:
        reward: [B] sum of the n discounted rewards, in reward units.
        discount: [B] weight of what follows, as in `dqn.q_target`.
        next_q_online: [B, A] online network's action values at `next_obs`.
        next_q_target: [B, A] target network's action values at `next_obs`.

    Returns:
        [B] targets, in reward units. No gradient passes through them.

    Source: van Hasselt, Guez & Silver 2016, arXiv:1509.06461, section "Double DQN".
    """
    best_action = tf.argmax(next_q_online, axis=-1)
    next_value = tf.gather(next_q_target, best_action, batch_dims=1)
    return tf.stop_gradient(reward + discount * next_value)
