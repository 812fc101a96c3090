"""CartPole-v1 in tensor code."""

from __future__ import annotations

import math

import tensorflow as tf

from kytolly.environment.spec import Discrete, EnvSpec, StepOutcome

GRAVITY = 9.8  # m/s^2
POLE_MASS = 0.1  # kg
TOTAL_MASS = 1.1  # kg, cart and pole
HALF_LENGTH = 0.5  # m, from the pole's joint to its center of mass
FORCE = 10.0  # N
STEP_SECONDS = 0.02
MAX_POSITION = 2.4  # m
MAX_ANGLE = 12.0 * math.pi / 180.0  # rad
RESET_BOUND = 0.05


class CartPole:
    """A pole to balance on a cart; reward 1 for every step, the last included.

    The state is the observation: [E, 4] position (m), velocity (m/s), pole angle (rad) and
    angular velocity (rad/s). Action 0 pushes left, 1 pushes right.

    Source: Barto, Sutton & Anderson 1983, doi:10.1109/TSMC.1983.6313077, with the constants and
    the Euler integration of Gymnasium's CartPole-v1.
    """

    spec = EnvSpec(
        name="CartPole-v1",
        obs=tf.TensorSpec([4], tf.float32),
        action=Discrete(2),
        max_episode_steps=500,
        reward_threshold=475.0,
    )
    reset_uniforms = 4
    step_uniforms = 0

    def reset(self, uniform: tf.Tensor) -> tf.Tensor:
        """States [E, 4] of new episodes, every number uniform in [-0.05, 0.05)."""
        return uniform * (2.0 * RESET_BOUND) - RESET_BOUND

    def observe(self, state: tf.Tensor) -> tf.Tensor:
        """The state [E, 4] itself."""
        return state

    def step(self, state: tf.Tensor, action: tf.Tensor, uniform: tf.Tensor) -> StepOutcome:
        """Next state [E, 4], reward [E] and terminated [E] after a push of 20 ms."""
        position, velocity, angle, angular_velocity = tf.unstack(state, axis=-1)
        force = tf.cast(action, tf.float32) * (2.0 * FORCE) - FORCE
        acceleration, angular_acceleration = _accelerations(force, angle, angular_velocity)
        change = tf.stack([velocity, acceleration, angular_velocity, angular_acceleration], -1)
        # Taken from the parts, not from the stacked result: XLA fuses it into fewer operations.
        next_position = position + STEP_SECONDS * velocity
        next_angle = angle + STEP_SECONDS * angular_velocity
        fallen = (tf.abs(next_position) > MAX_POSITION) | (tf.abs(next_angle) > MAX_ANGLE)
        return state + STEP_SECONDS * change, tf.ones_like(position), fallen


def _accelerations(
    force: tf.Tensor, angle: tf.Tensor, angular_velocity: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Acceleration of the cart (m/s^2) and angular acceleration of the pole (rad/s^2), [E] each.

    Source: Florian 2007, "Correct equations for the dynamics of the cart-pole system",
    equations 23 and 24 without friction.
    """
    cos, sin = tf.cos(angle), tf.sin(angle)
    pole = POLE_MASS * HALF_LENGTH
    thrust = (force + pole * angular_velocity * angular_velocity * sin) / TOTAL_MASS
    inertia = HALF_LENGTH * (4.0 / 3.0 - POLE_MASS / TOTAL_MASS * cos * cos)
    angular_acceleration = (GRAVITY * sin - cos * thrust) / inertia
    return thrust - pole / TOTAL_MASS * angular_acceleration * cos, angular_acceleration
