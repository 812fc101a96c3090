"""Reinforcement learning for TensorFlow and Keras 3 in which training is one XLA program.

The public names are loaded when they are used, so that `import kytolly` takes no time.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from kytolly.keras_classes import register_with_keras

if TYPE_CHECKING:
    from kytolly.config.dqn import DQNConfig as DQNConfig
    from kytolly.config.ppo import PPOConfig as PPOConfig
    from kytolly.deployment.loaded_agent import load as load
    from kytolly.machine.configure import configure_gpu_optimization as configure_gpu_optimization
    from kytolly.record.version import __version__ as __version__
    from kytolly.trainer import Trainer as Trainer

_HOMES = {
    "DQNConfig": "config.dqn",
    "PPOConfig": "config.ppo",
    "Trainer": "trainer",
    "configure_gpu_optimization": "machine.configure",
    "load": "deployment.loaded_agent",
    "__version__": "record.version",
}
__all__ = ["DQNConfig", "PPOConfig", "Trainer", "configure_gpu_optimization", "load"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"kytolly.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


register_with_keras()
