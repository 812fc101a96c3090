"""The environments that exist as tensor code, by name; each is imported when it is asked for."""

from __future__ import annotations

import pkgutil

from kytolly.environment.spec import TensorEnvironment

TENSOR_ENVIRONMENTS = {  # name: module of this room, class
    "CartPole-v1": "tensor.cartpole:CartPole",
    "Acrobot-v1": "tensor.acrobot:Acrobot",
    "MountainCar-v0": "tensor.mountain_car:MountainCar",
    "MountainCarContinuous-v0": "tensor.mountain_car_continuous:MountainCarContinuous",
    "Pendulum-v1": "tensor.pendulum:Pendulum",
}


def tensor_environment(name: str) -> TensorEnvironment | None:
    """The environment of that id in tensor code; None where it does not exist as such."""
    known = TENSOR_ENVIRONMENTS
    if name.startswith("probe/"):
        known = pkgutil.resolve_name("kytolly.environment.probe:PROBE_ENVIRONMENTS")
    return pkgutil.resolve_name(f"kytolly.environment.{known[name]}")() if name in known else None
