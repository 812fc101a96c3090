"""Pendulum-v1 in tensor code."""

from __future__ import annotations

import math

import tensorflow as tf

from kytolly.environment.spec import Box, EnvSpec, StepOutcome

GRAVITY = 10.0  # m/s^2
MASS = 1.0  # kg
LENGTH = 1.0  # m, of a rod whose mass is spread evenly
MAX_TORQUE = 2.0  # N m
MAX_VELOCITY = 8.0  # rad/s
MAX_RESET_VELOCITY = 1.0  # rad/s
STEP_SECONDS = 0.05


class Pendulum:
    """A rod to swing up and to hold upright with a motor too weak to lift it at once.

    The state is [E, 2] angle from upright (rad, within [-pi, pi]) and angular velocity (rad/s).
    Observations [E, 3]: cosine and sine of the angle, the velocity. The action [E, 1] is a torque
    (N m), clipped to [-2, 2]. Reward: -(angle^2 + 0.1 velocity^2 + 0.001 torque^2), from the state
    before the step. Nothing terminates it.

    Gymnasium lets the angle grow without limit; here every step wraps it, which keeps float32
    exact and changes nothing else.

    Source: Gymnasium's Pendulum-v1.
    """

    spec = EnvSpec(
        name="Pendulum-v1",
        obs=tf.TensorSpec([3], tf.float32),
        action=Box((-MAX_TORQUE,), (MAX_TORQUE,)),
        max_episode_steps=200,
    )
    reset_uniforms = 2
    step_uniforms = 0

    def reset(self, uniform: tf.Tensor) -> tf.Tensor:
        """States [E, 2], angle uniform in [-pi, pi) and velocity in [-1, 1)."""
        return (uniform * 2.0 - 1.0) * tf.constant([math.pi, MAX_RESET_VELOCITY])

    def observe(self, state: tf.Tensor) -> tf.Tensor:
        """Observations [E, 3]."""
        angle, velocity = tf.unstack(state, axis=-1)
        return tf.stack([tf.cos(angle), tf.sin(angle), velocity], axis=-1)

    def step(self, state: tf.Tensor, action: tf.Tensor, uniform: tf.Tensor) -> StepOutcome:
        """Next state [E, 2], reward [E] and terminated [E] after 50 ms of constant torque."""
        angle, velocity = tf.unstack(state, axis=-1)
        torque = tf.clip_by_value(action[:, 0], -MAX_TORQUE, MAX_TORQUE)
        cost = angle * angle + 0.1 * velocity * velocity + 0.001 * torque * torque
        fall = 3.0 * GRAVITY / (2.0 * LENGTH) * tf.sin(angle)
        acceleration = fall + 3.0 / (MASS * LENGTH**2) * torque
        velocity = tf.clip_by_value(
            velocity + acceleration * STEP_SECONDS, -MAX_VELOCITY, MAX_VELOCITY
        )
        angle = _wrap(angle + velocity * STEP_SECONDS)
        return tf.stack([angle, velocity], axis=-1), -cost, tf.zeros_like(cost, tf.bool)


def _wrap(angle: tf.Tensor) -> tf.Tensor:
    """The same angle within [-pi, pi]."""
    return angle - 2.0 * math.pi * tf.round(angle * (0.5 / math.pi))
