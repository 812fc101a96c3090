"""CartPole, Pendulum and MountainCarContinuous without velocities, which memory must replace."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from kytolly.environment.spec import StepOutcome
from kytolly.environment.tensor.cartpole import CartPole
from kytolly.environment.tensor.mountain_car import MountainCarContinuous
from kytolly.environment.tensor.pendulum import Pendulum


class CartPoleNoVel(CartPole):
    """CartPole-v1 that shows 0 in place of both velocities: [E, 4].

    Source: MaskVelocityWrapper of RL Baselines3 Zoo, which has the same id.
    """

    spec = CartPole.spec._replace(name="CartPoleNoVel-v1")

    def observe(self, state: tf.Tensor) -> tf.Tensor:
        """Observations [E, 4]: position, 0, angle, 0."""
        return state * tf.constant([1.0, 0.0, 1.0, 0.0])


class PendulumNoVel(Pendulum):
    """Pendulum-v1 that shows 0 in place of the angular velocity: [E, 3].

    Source: MaskVelocityWrapper of RL Baselines3 Zoo, which has the same id.
    """

    spec = Pendulum.spec._replace(name="PendulumNoVel-v1")

    def observe(self, state: tf.Tensor) -> tf.Tensor:
        """Observations [E, 3]: cosine and sine of the angle, 0."""
        return super().observe(state) * tf.constant([1.0, 1.0, 0.0])


class MountainCarContinuousNoVel(MountainCarContinuous):
    """MountainCarContinuous-v0 that shows 0 in place of the velocity: [E, 2].

    Source: MaskVelocityWrapper of RL Baselines3 Zoo, which has the same id.
    """

    spec = MountainCarContinuous.spec._replace(name="MountainCarContinuousNoVel-v0")

    def observe(self, state: tf.Tensor) -> tf.Tensor:
        """Observations [E, 2]: position, 0."""
        return state * tf.constant([1.0, 0.0])


class PositionOnlyCartPole(CartPole):
    """CartPole that shows position and angle, [E, 2], and pays 1 for a whole episode.

    The paper calls it Stateless CartPole. Reward: 1 / (the longest episode) for every step, the
    last included.

    Source: Morad et al. 2023, "POPGym: Benchmarking Partially Observable Reinforcement Learning",
    arXiv:2303.01859, with the constants of the package `popgym`.
    """

    def __init__(self, level: str):
        """Make the environment: `Easy`, `Medium` and `Hard` last 200, 400 and 600 env steps."""
        self.steps = {"Easy": 200, "Medium": 400, "Hard": 600}[level]
        self.spec: Any = CartPole.spec._replace(
            name=f"popgym-PositionOnlyCartPole{level}-v0",
            obs=tf.TensorSpec([2], tf.float32),
            max_episode_steps=self.steps,
            reward_threshold=None,
        )

    @classmethod
    def easy(cls) -> PositionOnlyCartPole:
        """The level of 200 env steps."""
        return cls("Easy")

    @classmethod
    def medium(cls) -> PositionOnlyCartPole:
        """The level of 400 env steps."""
        return cls("Medium")

    @classmethod
    def hard(cls) -> PositionOnlyCartPole:
        """The level of 600 env steps."""
        return cls("Hard")

    def observe(self, state: tf.Tensor) -> tf.Tensor:
        """Observations [E, 2]: position and angle."""
        return state[:, ::2]

    def step(self, state: tf.Tensor, action: tf.Tensor, uniform: tf.Tensor) -> StepOutcome:
        """Next state [E, 4], reward [E] and terminated [E] after a push of 20 ms."""
        state, reward, fallen = super().step(state, action, uniform)
        return state, reward / self.steps, fallen
