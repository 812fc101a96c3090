"""MountainCarContinuous-v0 in tensor code."""

from __future__ import annotations

import tensorflow as tf

from kytolly.environment.spec import Box, EnvSpec, StepOutcome
from kytolly.environment.tensor.mountain_car import MountainCar, car_step

GOAL_POSITION = 0.45  # MountainCar-v0 has its goal at 0.5
MAX_ACTION = 1.0
POWER = 0.0015  # velocity that an action of 1 adds in a step
GOAL_REWARD = 100.0
ACTION_COST = 0.1


class MountainCarContinuous(MountainCar):
    """MountainCar with continuous pushes, each of which costs.

    The state is the observation: [E, 2] position and velocity (per step). The action [E, 1] is
    the push, clipped to [-1, 1]. Reward: 100 for the step that arrives, minus 0.1 action^2. As in
    Gymnasium, the cost counts the action before clipping.

    An agent that never pushes earns 0, more than one that pushes and does not arrive.

    Source: Moore 1990, "Efficient memory-based learning for robot control", with the constants
    of Gymnasium's MountainCarContinuous-v0 (goal velocity 0).
    """

    spec = EnvSpec(
        name="MountainCarContinuous-v0",
        obs=tf.TensorSpec([2], tf.float32),
        action=Box((-MAX_ACTION,), (MAX_ACTION,)),
        max_episode_steps=999,
        reward_threshold=90.0,
    )

    def step(self, state: tf.Tensor, action: tf.Tensor, uniform: tf.Tensor) -> StepOutcome:
        """Next state [E, 2], reward [E] and terminated [E]; the left wall stops the car."""
        action = action[:, 0]
        push = tf.clip_by_value(action, -MAX_ACTION, MAX_ACTION) * POWER
        state, arrived = car_step(state, push, GOAL_POSITION)
        reward = tf.where(arrived, GOAL_REWARD, 0.0) - ACTION_COST * action * action
        return state, reward, arrived
