"""Gymnasium's own environments without velocities, registered under the ids of RL Baselines3 Zoo.

Importing it registers them. They are what `environment.tensor.no_velocity` has in tensor code, and
can be drawn.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np

SHOWN = {  # by the id with velocities: 1 for a number that stays, 0 for one that is hidden
    "CartPole-v1": (1, 0, 1, 0),
    "Pendulum-v1": (1, 1, 0),
    "MountainCarContinuous-v0": (1, 0),
}


class HiddenVelocity(gymnasium.ObservationWrapper):
    """Shows 0 in place of velocities.

    Args:
        name: Id of the environment with velocities.
        arguments: Of that environment, such as `render_mode`.

    Source: MaskVelocityWrapper of RL Baselines3 Zoo.
    """

    def __init__(self, name: str, **arguments: Any):
        # The time limit is that of the id without velocities.
        super().__init__(gymnasium.make(name, disable_env_checker=True, **arguments).unwrapped)
        self._shown = np.array(SHOWN[name], bool)

    def observation(self, observation: np.ndarray) -> np.ndarray:
        """The observation with its velocities 0."""
        return np.where(self._shown, observation, np.float32(0.0))


def without_velocity(name: str) -> str:
    """The id of an environment without velocities."""
    return name.replace("-v", "NoVel-v")


for _name in SHOWN:
    if without_velocity(_name) not in gymnasium.registry:
        _spec = gymnasium.spec(_name)
        gymnasium.register(
            without_velocity(_name),
            f"{__name__}:HiddenVelocity",
            reward_threshold=_spec.reward_threshold,
            max_episode_steps=_spec.max_episode_steps,
            kwargs={"name": _name},
        )
