"""The entries that an agent's memory adds to an observation.

Nothing here may load TensorFlow: the processes of environments import this file.
"""

from __future__ import annotations

from typing import Any

OBSERVATION = "observation"  # the environment's own, where it is no Dict
MEMORY = (
    "agent_memory"  # [S] what the agent remembers before it acts; zeros where an episode begins
)
FIRST = "agent_first"  # [] bool, the episode begins with this observation
PREVIOUS_ACTION = "agent_previous_action"  # [D] one-hot, or as the environment took it; or 0
PREVIOUS_REWARD = "agent_previous_reward"  # [1] of the previous step; 0 at first
STATE_ENTRIES = (MEMORY, FIRST)  # which no layer before the memory sees
ADDED = (*STATE_ENTRIES, PREVIOUS_ACTION, PREVIOUS_REWARD)


def has_memory(obs: Any) -> bool:
    """True for an observation, or its spec, of an agent with a memory."""
    return isinstance(obs, dict) and MEMORY in obs


def as_entries(obs: Any) -> dict[str, Any]:
    """The environment's own observation as a dict."""
    return dict(obs) if isinstance(obs, dict) else {OBSERVATION: obs}
