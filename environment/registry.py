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
    "kytolly/TMaze-v0": "tensor.t_maze:TMaze",
    "kytolly/PassiveTMaze-v0": "tensor.t_maze:PassiveTMaze",
}
for _name in ("CartPoleNoVel-v1", "MountainCarContinuousNoVel-v0", "PendulumNoVel-v1"):
    TENSOR_ENVIRONMENTS[_name] = f"tensor.no_velocity:{_name[:-3]}"
for _module in ("asterix", "breakout", "freeway", "seaquest", "space_invaders"):
    _title = _module.title().replace("_", "")
    TENSOR_ENVIRONMENTS[f"MinAtar/{_title}-v0"] = f"tensor.minatar.{_module}:{_title}"
    TENSOR_ENVIRONMENTS[f"MinAtar/{_title}-v1"] = f"tensor.minatar.{_module}:{_title}.minimal"
for _game in "Autoencode", "CountRecall", "HigherLower", "PositionOnlyCartPole", "RepeatPrevious":
    for _at, _level in ("Easy", "easy"), ("Medium", "medium"), ("Hard", "hard"):
        TENSOR_ENVIRONMENTS[f"popgym-{_game}{_at}-v0"] = f"tensor.popgym:{_game}.{_level}"


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
        if unknown := [argument for argument in arguments if argument not in accepted]:
            raise ValueError(
                f"{name} has no argument {', '.join(unknown)}, expected some of "
                f"{', '.join(accepted) or 'none'}."
            )
    return make(**arguments)
