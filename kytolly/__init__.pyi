from kytolly.callback.base import Callback as Callback
from kytolly.callback.base import TrainState as TrainState
from kytolly.config.c51 import C51Config as C51Config
from kytolly.config.dqn import DQNConfig as DQNConfig
from kytolly.config.iqn import IQNConfig as IQNConfig
from kytolly.config.munchausen import MunchausenConfig as MunchausenConfig
from kytolly.config.ppo import PPOConfig as PPOConfig
from kytolly.config.ppo_kl import PPOKLConfig as PPOKLConfig
from kytolly.config.pqn import PQNConfig as PQNConfig
from kytolly.config.qr_dqn import QRDQNConfig as QRDQNConfig
from kytolly.config.rainbow import RainbowConfig as RainbowConfig
from kytolly.config.supervised import SupervisedConfig as SupervisedConfig
from kytolly.config.tuned import tuned_settings as tuned_settings
from kytolly.deployment.export import export as export
from kytolly.deployment.loaded_agent import LoadedAgent as LoadedAgent
from kytolly.deployment.loaded_agent import load as load
from kytolly.environment.spec import EnvSpec as EnvSpec
from kytolly.environment.spec import TensorEnvironment as TensorEnvironment
from kytolly.machine.configure import configure_gpu_optimization as configure_gpu_optimization
from kytolly.record.learning_curve import plot_learning_curve as plot_learning_curve
from kytolly.record.pictures import plot_over_states as plot_over_states
from kytolly.record.pictures import plot_q_values as plot_q_values
from kytolly.record.version import __version__ as __version__
from kytolly.trainer import Trainer as Trainer

__all__ = [
    "C51Config",
    "Callback",
    "DQNConfig",
    "EnvSpec",
    "IQNConfig",
    "LoadedAgent",
    "MunchausenConfig",
    "PPOConfig",
    "PPOKLConfig",
    "PQNConfig",
    "QRDQNConfig",
    "RainbowConfig",
    "SupervisedConfig",
    "TensorEnvironment",
    "TrainState",
    "Trainer",
    "configure_gpu_optimization",
    "export",
    "load",
    "plot_learning_curve",
    "plot_over_states",
    "plot_q_values",
    "tuned_settings",
]
