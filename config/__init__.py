"""Every number and name that somebody may want to change between two runs.

Frozen dataclasses that refuse early, and YAML in and out. Nothing here imports TensorFlow, so that
`kytolly --help` answers at once. A configuration class is loaded when it is asked for.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kytolly.config.dqn import DQNConfig as DQNConfig
    from kytolly.config.ppo import PPOConfig as PPOConfig
    from kytolly.config.run import RunConfig as RunConfig

_HOMES = {"RunConfig": "run", "DQNConfig": "dqn", "PPOConfig": "ppo"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"kytolly.config.{_HOMES[name]}"), name)
