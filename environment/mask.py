"""Action masks within observations. Free of TensorFlow: worker processes import this file."""

from __future__ import annotations

from typing import Any

ACTION_MASK = "action_mask"  # the entry of a Dict observation that says what is allowed


def without_mask(obs: Any) -> Any:
    """What a network sees of an observation: a Dict without its action mask."""
    if not isinstance(obs, dict):
        return obs
    return {name: part for name, part in obs.items() if name != ACTION_MASK}
