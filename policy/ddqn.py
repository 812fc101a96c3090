"""The first D is *double*: who picks, who evaluates (model/ddqn_mlp.py is *dueling*)."""

from __future__ import annotations

from kytolly.policy.dqn import DQNPolicy


class DoubleDQNPolicy(DQNPolicy):
    """DQN whose next action is picked by the online network, whatever the config's `double` says.

    Source: van Hasselt, Guez & Silver 2016, arXiv:1509.06461.
    """

    @property
    def double(self) -> bool:
        """Yes."""
        return True
