"""The first D is *double*: who selects, who evaluates (model/ddqn_mlp.py is *dueling*)."""

from __future__ import annotations

from kytolly.config.dqn import DQNConfig
from kytolly.policy.dqn import DQNPolicy
from kytolly.policy.selection import Greedy, Selection


class DoubleDQNPolicy(DQNPolicy):
    """DQN whose next action the online network selects, whatever the config's `double` says.

    Source: van Hasselt, Guez & Silver 2016, arXiv:1509.06461.
    """

    def make_selection(self, cfg: DQNConfig) -> Selection:
        """The best action by the online network."""
        return Greedy(double=True)
