"""The tasks of the table `defaults`, for this project and for Stable-Baselines3 alike.

Nothing here imports TensorFlow or PyTorch: programs of both libraries read it. The wrappers change
the units of a task and nothing else, so that a library's defaults must not care.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import gymnasium
import numpy as np

ALGORITHMS = ("dqn", "ppo")  # what Stable-Baselines3 has for these tasks
BOX2D = ("Box2D", 'pip install "kytolly[box2d]"')
MUJOCO = ("mujoco", 'pip install "kytolly[mujoco]"')


class LargeRewards(gymnasium.RewardWrapper):
    """Rewards x 1,000."""

    scale = 1e3

    def reward(self, reward: Any) -> float:
        """The reward in the other unit."""
        return float(reward) * self.scale


class SmallRewards(LargeRewards):
    """Rewards x 0.001."""

    scale = 1e-3


class LargeObservations(gymnasium.ObservationWrapper):
    """Observations x 100, as centimeters for meters."""

    scale = 100.0

    def __init__(self, env: gymnasium.Env):
        super().__init__(env)
        space = env.observation_space
        assert isinstance(space, gymnasium.spaces.Box), f"{space} has no unit."
        self.observation_space = gymnasium.spaces.Box(
            space.low * np.float32(self.scale),
            space.high * np.float32(self.scale),
            dtype=np.float32,
        )

    def observation(self, observation: Any) -> Any:
        """The observation in the other unit."""
        return observation * np.float32(self.scale)


class DistantActions(gymnasium.wrappers.RescaleAction):
    """Actions from 100 to 200 in place of the environment's own bounds."""

    def __init__(self, env: gymnasium.Env):
        super().__init__(env, np.float32(100.0), np.float32(200.0))


UNITS_OF_ALL = {
    "rewards x 1000": LargeRewards,
    "rewards x 0.001": SmallRewards,
    "observations x 100": LargeObservations,
}
UNITS_OF_ACTIONS = {"actions from 100 to 200": DistantActions}  # where they are real numbers
UNITS = UNITS_OF_ALL | UNITS_OF_ACTIONS


class Task(NamedTuple):
    """One environment, how long it may take, and what counts as solved.

    Attributes:
        env: Gymnasium id.
        goal: Return that counts as solved; with the return of random play it normalizes scores.
        env_steps: By algorithm. An algorithm of DQN's family takes those of dqn.
        kwargs: Arguments of the environment.
        units: A key of `UNITS`; none for the environment's own.
        needs: Package without which there is no environment, and the extra that brings it.
    """

    env: str
    goal: float
    env_steps: Mapping[str, int]
    kwargs: Mapping[str, Any] = {}
    units: str = ""
    needs: tuple[str, str] | None = None

    @property
    def name(self) -> str:
        """The environment, and in which way it differs from the one of that id."""
        changes = [f"{name} {value}" for name, value in self.kwargs.items()]
        return ", ".join([self.env, *changes, *filter(None, [self.units])])

    @property
    def reward_scale(self) -> float:
        """What the environment's own rewards are multiplied by."""
        return getattr(UNITS.get(self.units), "scale", 1.0) if "rewards" in self.units else 1.0


def both(dqn: int, ppo: int) -> dict[str, int]:
    """Env steps of DQN and of PPO."""
    return {"dqn": dqn, "ppo": ppo}


# Goals are Gymnasium's own thresholds where it has one. FrozenLake without slipping, CliffWalking:
# the shortest path. Taxi: what the best play gets, less the error of 100 episodes. Pendulum,
# BipedalWalker, HalfCheetah, MinAtar: what others reach with many more env steps, rounded.
# CliffWalking has no time limit of its own; without one an evaluation may never end.
CARTPOLE = Task("CartPole-v1", 475.0, both(50_000, 50_000))
LUNAR_LANDER = Task("LunarLander-v3", 200.0, both(100_000, 200_000), needs=BOX2D)
PENDULUM = Task("Pendulum-v1", -200.0, {"ppo": 100_000})
INVERTED_PENDULUM = Task("InvertedPendulum-v5", 950.0, {"ppo": 100_000}, needs=MUJOCO)
TASKS = (
    CARTPOLE,
    Task("Acrobot-v1", -100.0, both(50_000, 50_000)),
    Task("MountainCar-v0", -110.0, both(50_000, 100_000)),
    LUNAR_LANDER,
    PENDULUM,
    Task("MountainCarContinuous-v0", 90.0, {"ppo": 50_000}),
    Task("FrozenLake-v1", 0.7, both(50_000, 50_000)),
    Task("FrozenLake-v1", 1.0, both(50_000, 50_000), {"is_slippery": False}),
    Task("Taxi-v4", 7.0, both(100_000, 100_000)),
    Task("CliffWalking-v1", -13.0, both(50_000, 50_000), {"max_episode_steps": 1_000}),
    INVERTED_PENDULUM,
    Task("Reacher-v5", -3.75, {"ppo": 100_000}, needs=MUJOCO),
    Task("BipedalWalker-v3", 300.0, {"ppo": 200_000}, needs=BOX2D),
    Task("HalfCheetah-v5", 4800.0, {"ppo": 200_000}, needs=MUJOCO),
    Task("MinAtar/Breakout-v1", 10.0, both(100_000, 100_000)),
    Task("MinAtar/Freeway-v1", 50.0, both(100_000, 100_000)),
    Task("MinAtar/SpaceInvaders-v1", 50.0, both(100_000, 100_000)),
    *(task._replace(units=units) for task in (CARTPOLE, LUNAR_LANDER) for units in UNITS_OF_ALL),
    *(
        task._replace(units=units)
        for task in (PENDULUM, INVERTED_PENDULUM)
        for units in UNITS_OF_ACTIONS
    ),
)


def make_env(task: Task) -> gymnasium.Env:
    """The task as an environment of Gymnasium; MinAtar's games come from its authors' package."""
    if task.env.startswith("MinAtar/"):
        from minatar.gym import register_envs

        if task.env not in gymnasium.registry:
            register_envs()
    env = gymnasium.make(task.env, **task.kwargs)
    return UNITS[task.units](env) if task.units else env
