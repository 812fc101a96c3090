"""Two tensor environments whose every number can be told in advance."""

from typing import NamedTuple

import tensorflow as tf

from kytolly.environment.spec import ACTION_MASK, Discrete, EnvSpec


class Count(NamedTuple):
    start: tf.Tensor
    grid: tf.Tensor


class Counter:
    """Counts up from 100 u by the action + 10 v; terminates above `goal`; reward is the action.

    `u` is the draw of the reset and `v` that of the step. The state holds a matrix per environment;
    the observation is [E, 1, 2]: where the episode started, and the count.
    """

    reset_uniforms, step_uniforms = 1, 1

    def __init__(self, max_episode_steps=None, goal=1e9):
        obs = tf.TensorSpec([1, 2], tf.float32)
        self.spec = EnvSpec("counter", obs, Discrete(3), max_episode_steps)
        self.goal = goal

    def reset(self, uniform):
        start = 100.0 * uniform[:, 0]
        return Count(start, start[:, None, None] * tf.ones([1, 2, 2]))

    def observe(self, state):
        return tf.stack([state.start, state.grid[:, 1, 1]], axis=-1)[:, None, :]

    def step(self, state, action, uniform):
        reward = tf.cast(action, tf.float32)
        grid = state.grid + (reward + 10.0 * uniform[:, 0])[:, None, None]
        return Count(state.start, grid), reward, grid[:, 0, 0] > self.goal


class Lock(NamedTuple):
    code: tf.Tensor
    seen: tf.Tensor


class Keypad:
    """Takes any action space, and shows a dict with or without a mask.

    The code counts the steps from where the reset draw puts it; the reward is the sum of the
    action's numbers; the episode ends above code 2. `taken` collects the actions.
    """

    reset_uniforms, step_uniforms = 1, 0

    def __init__(self, action, mask=None, obs=None):
        entries = {"code": tf.TensorSpec([1], tf.float32), "image": tf.TensorSpec([2, 2], tf.uint8)}
        if mask is not None:
            entries[ACTION_MASK] = tf.TensorSpec([len(mask)], tf.bool)
        self.spec = EnvSpec("keypad", entries if obs is None else obs, action, 4)
        self.mask, self.taken = mask, []

    def reset(self, uniform):
        code = tf.round(uniform)
        return Lock(code, tf.zeros([*code.shape[:1], 2, 2], tf.uint8))

    def observe(self, state):
        obs = {"image": state.seen, "code": state.code}
        if self.mask is not None:
            obs[ACTION_MASK] = tf.tile(tf.constant([self.mask]) > 0, [state.code.shape[0], 1])
        return obs

    def step(self, state, action, uniform):
        self.taken.append(action)
        reward = tf.cast(tf.reshape(action, [action.shape[0], -1]), tf.float32)
        code = state.code + 1.0
        return Lock(code, state.seen + 1), tf.reduce_sum(reward, axis=-1), code[:, 0] > 2.0
