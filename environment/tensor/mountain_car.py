"""MountainCar-v0 in tensor code."""

from __future__ import annotations

import tensorflow as tf

from kytolly.environment.spec import Discrete, EnvSpec, StepOutcome

MIN_POSITION, MAX_POSITION = -1.2, 0.6
GOAL_POSITION = 0.5
MAX_SPEED = 0.07
FORCE = 0.001
GRAVITY = 0.0025


class MountainCar:
    """A car too weak for the hill that it must climb; reward -1 for every step.

    The state is the observation: [E, 2] position and velocity (per step). Action 0 pushes left,
    1 does nothing, 2 pushes right.

    Source: Moore 1990, "Efficient memory-based learning for robot control", with the constants
    of Gymnasium's MountainCar-v0 (goal velocity 0).
    """

    spec = EnvSpec(
        name="MountainCar-v0",
        obs=tf.TensorSpec([2], tf.float32),
        action=Discrete(3),
        max_episode_steps=200,
        reward_threshold=-110.0,
    )
    reset_uniforms = 1
    step_uniforms = 0

    def reset(self, uniform: tf.Tensor) -> tf.Tensor:
        """States [E, 2] at rest, position uniform in [-0.6, -0.4)."""
        return tf.concat([uniform * 0.2 - 0.6, tf.zeros_like(uniform)], axis=-1)

    def observe(self, state: tf.Tensor) -> tf.Tensor:
        """The state [E, 2] itself."""
        return state

    def step(self, state: tf.Tensor, action: tf.Tensor, uniform: tf.Tensor) -> StepOutcome:
        """Next state [E, 2], reward [E] and terminated [E]; the left wall stops the car."""
        push = (tf.cast(action, tf.float32) - 1.0) * FORCE
        state, arrived = car_step(state, push, GOAL_POSITION)
        return state, -tf.ones_like(push), arrived


def car_step(state: tf.Tensor, push: tf.Tensor, goal: float) -> tuple[tf.Tensor, tf.Tensor]:
    """States [E, 2] one step on, and whether each is at the goal [E]; the left wall stops a car.

    Args:
        state: [E, 2] position and velocity (per step).
        push: [E] velocity that the action adds.
        goal: Position from which a car that does not roll back has arrived.
    """
    position, velocity = tf.unstack(state, axis=-1)
    velocity = velocity + push - GRAVITY * tf.cos(3.0 * position)
    velocity = tf.clip_by_value(velocity, -MAX_SPEED, MAX_SPEED)
    position = tf.clip_by_value(position + velocity, MIN_POSITION, MAX_POSITION)
    at_wall = (position <= MIN_POSITION) & (velocity < 0.0)
    velocity = tf.where(at_wall, 0.0, velocity)
    arrived = (position >= goal) & (velocity >= 0.0)
    return tf.stack([position, velocity], axis=-1), arrived
