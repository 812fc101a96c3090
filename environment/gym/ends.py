"""Whether an episode is over must be said by a bool: "False" is true.

Nothing here may load TensorFlow: the processes of environments import this file.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np

from kytolly.environment.faults import EnvironmentFault, display_text

_BOOLS = (bool, np.bool_)


def end_flags(terminated: Any, truncated: Any, name: str) -> tuple[bool, bool]:
    """The two as bools, where an environment says that its episode is over.

    Raises:
        EnvironmentFault: One is neither a bool nor a number 0 or 1.
    """
    if type(terminated) in _BOOLS and type(truncated) in _BOOLS:
        return bool(terminated), bool(truncated)
    for which, value in (("terminated", terminated), ("truncated", truncated)):
        array = np.asarray(value)
        usable = array.size == 1 and array.dtype.kind in "biuf"
        if not usable or array.item() != bool(value):  # [False] is true
            raise EnvironmentFault(
                f"{name} returned {which}={display_text(value)}, expected a bool."
            )
    return bool(terminated), bool(truncated)


class CheckedEnds(gymnasium.Wrapper):
    """Refuses what is no bool before a vector environment of Gymnasium makes it one.

    Args:
        env: One of its environments.
        name: What to call it in messages.
    """

    def __init__(self, env: gymnasium.Env, name: str):
        super().__init__(env)
        self.name = name

    def step(self, action: Any) -> Any:
        """What the environment returned."""
        outcome = self.env.step(action)
        _, _, terminated, truncated, _ = outcome
        if terminated is not False or truncated is not False:
            end_flags(terminated, truncated, self.name)
        return outcome
