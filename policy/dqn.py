"""Deep Q-learning with a target network."""

from __future__ import annotations

from kytolly.policy.heads import Scalar
from kytolly.policy.q_learning import QLearningPolicy


class DQNPolicy(QLearningPolicy):
    """Q-learning of one value for each action; with the config's `munchausen`, Munchausen-DQN."""

    head_type = Scalar
