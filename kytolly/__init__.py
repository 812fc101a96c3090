"""Reinforcement learning for TensorFlow and Keras 3 in which training is one XLA program.

The public names are loaded when they are used, so that `import kytolly` takes no time.
"""

from __future__ import annotations

import importlib
from typing import Any

from kytolly.keras_classes import register_with_keras

# Public name -> the module that it is loaded from.
_HOMES = {
    "C51Config": "config.c51",
    "Callback": "callback.base",
    "configure_gpu_optimization": "machine.configure",
    "DQNConfig": "config.dqn",
    "EnvSpec": "environment.spec",
    "export": "deployment.export",
    "IQNConfig": "config.iqn",
    "load": "deployment.loaded_agent",
    "LoadedAgent": "deployment.loaded_agent",
    "MunchausenConfig": "config.munchausen",
    "plot_learning_curve": "record.learning_curve",
    "plot_over_states": "record.pictures",
    "plot_q_values": "record.pictures",
    "PPOConfig": "config.ppo",
    "PPOKLConfig": "config.ppo_kl",
    "PQNConfig": "config.pqn",
    "QRDQNConfig": "config.qr_dqn",
    "RainbowConfig": "config.rainbow",
    "SupervisedConfig": "config.supervised",
    "TensorEnvironment": "environment.spec",
    "Trainer": "trainer",
    "TrainState": "callback.base",
    "tuned_settings": "config.tuned",
    "__version__": "record.version",
}
__all__ = [name for name in _HOMES if not name.startswith("_")]  # pyright: ignore


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"kytolly.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


register_with_keras()
