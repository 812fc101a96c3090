"""The environments that exist as tensor code, by name."""

from __future__ import annotations

from collections.abc import Callable

from environment.acrobot import Acrobot
from environment.cartpole import CartPole
from environment.mountain_car import MountainCar
from environment.mountain_car_continuous import MountainCarContinuous
from environment.pendulum import Pendulum
from environment.ppo_probe import PPO_PROBES
from environment.probe import PROBES
from environment.spec import TensorEnvironment

_CLASSES: tuple[Callable[[], TensorEnvironment], ...] = (
    CartPole,
    Acrobot,
    MountainCar,
    MountainCarContinuous,
    Pendulum,
    *PROBES,
    *PPO_PROBES,
)

TENSOR_ENVIRONMENTS: dict[str, Callable[[], TensorEnvironment]] = {
    make().spec.name: make for make in _CLASSES
}


def tensor_environment(name: str) -> TensorEnvironment | None:
    """The environment of that id in tensor code; None where it does not exist as such."""
    make = TENSOR_ENVIRONMENTS.get(name)
    return None if make is None else make()
