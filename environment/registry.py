"""The environments that exist as tensor code, by name; each is imported when it is asked for."""

from __future__ import annotations

import inspect
import pkgutil
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # it loads TensorFlow, which the processes of environments do without
    from kytolly.environment.spec import TensorEnvironment

TENSOR_ENVIRONMENTS = {  # name: module of this room, what makes it
    "CartPole-v1": "tensor.cartpole:CartPole",
    "Acrobot-v1": "tensor.acrobot:Acrobot",
    "MountainCar-v0": "tensor.mountain_car:MountainCar",
    "MountainCarContinuous-v0": "tensor.mountain_car:MountainCarContinuous",
    "Pendulum-v1": "tensor.pendulum:Pendulum",
    "MinAtar/Asterix-v0": "tensor.minatar.asterix:Asterix",
    "MinAtar/Asterix-v1": "tensor.minatar.asterix:Asterix.minimal",
    "MinAtar/Breakout-v0": "tensor.minatar.breakout:Breakout",
    "MinAtar/Breakout-v1": "tensor.minatar.breakout:Breakout.minimal",
    "MinAtar/Freeway-v0": "tensor.minatar.freeway:Freeway",
    "MinAtar/Freeway-v1": "tensor.minatar.freeway:Freeway.minimal",
    "MinAtar/Seaquest-v0": "tensor.minatar.seaquest:Seaquest",
    "MinAtar/Seaquest-v1": "tensor.minatar.seaquest:Seaquest.minimal",
    "MinAtar/SpaceInvaders-v0": "tensor.minatar.space_invaders:SpaceInvaders",
    "MinAtar/SpaceInvaders-v1": "tensor.minatar.space_invaders:SpaceInvaders.minimal",
    "CartPoleNoVel-v1": "tensor.no_velocity:CartPoleNoVel",
    "MountainCarContinuousNoVel-v0": "tensor.no_velocity:MountainCarContinuousNoVel",
    "PendulumNoVel-v1": "tensor.no_velocity:PendulumNoVel",
    "kytolly/TMaze-v0": "tensor.t_maze:TMaze",
    "kytolly/PassiveTMaze-v0": "tensor.t_maze:PassiveTMaze",
}
TENSOR_ENVIRONMENTS |= {
    f"popgym-{title}{level}-v0": f"tensor.{module}:{title}.{level.lower()}"
    for module, title in (
        ("no_velocity", "PositionOnlyCartPole"),
        ("popgym", "Autoencode"),
        ("popgym", "CountRecall"),
        ("popgym", "HigherLower"),
        ("popgym", "RepeatPrevious"),
    )
    for level in ("Easy", "Medium", "Hard")
}


def tensor_environment(name: str, **arguments: object) -> TensorEnvironment | None:
    """The environment of that id in tensor code; None where it does not exist as such.

    Args:
        name: Of `TENSOR_ENVIRONMENTS`.
        **arguments: Of the environment, such as `sticky_actions` of MinAtar's games.

    Raises:
        ValueError: The environment has no such argument.
    """
    if name not in TENSOR_ENVIRONMENTS:
        return None
    make = pkgutil.resolve_name(f"kytolly.environment.{TENSOR_ENVIRONMENTS[name]}")
    if arguments:
        accepted = inspect.signature(make).parameters
        unknown = [argument for argument in arguments if argument not in accepted]
        if unknown:
            raise ValueError(
                f"{name} has no argument {', '.join(unknown)}, expected some of "
                f"{', '.join(accepted) or 'none'}."
            )
    return make(**arguments)
