"""The environments that exist as tensor code, by name."""

from __future__ import annotations

from collections.abc import Callable

from kytolly.environment.probe.on_policy import PPO_PROBES
from kytolly.environment.probe.q_learning import PROBES
from kytolly.environment.spec import TensorEnvironment
from kytolly.environment.tensor.acrobot import Acrobot
from kytolly.environment.tensor.cartpole import CartPole
from kytolly.environment.tensor.mountain_car import MountainCar
from kytolly.environment.tensor.mountain_car_continuous import MountainCarContinuous
from kytolly.environment.tensor.pendulum import Pendulum

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
