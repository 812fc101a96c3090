"""The entry of an observation that says which actions are allowed.

Nothing here may load TensorFlow: the processes of environments import this file.
"""

from __future__ import annotations

from typing import Any

ACTION_MASK = "action_mask"  # the entry's name; environments may use it as a key of their info, too
MASKED_LOGIT = -1e9  # of a forbidden action; its exponential is exactly 0 in float32


def without_mask(obs: Any) -> Any:
    """The observation (or its spec) that the network sees: a dict loses its `action_mask`."""
    if not isinstance(obs, dict):
        return obs
    return {name: part for name, part in obs.items() if name != ACTION_MASK}
