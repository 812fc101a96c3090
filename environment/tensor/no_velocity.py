"""CartPole, Pendulum and MountainCarContinuous without velocities, which memory must replace."""

from __future__ import annotations

import tensorflow as tf

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
