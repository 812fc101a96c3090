"""Wrappers of Gymnasium that show earlier observations beside the newest.

Nothing here may load TensorFlow: the processes of environments import this file.
"""

from __future__ import annotations

import sys

from gymnasium.envs.registration import WrapperSpec
from gymnasium.wrappers import FrameStackObservation

STACK = WrapperSpec("FrameStackObservation", "gymnasium.wrappers:FrameStackObservation", None)


def is_stack(wrapper: WrapperSpec) -> bool:
    """True for Gymnasium's stack of observations, and for a class that was made from it."""
    module, _, name = wrapper.entry_point.partition(":")
    known = getattr(sys.modules.get(module), name, None)
    return isinstance(known, type) and issubclass(known, FrameStackObservation)
