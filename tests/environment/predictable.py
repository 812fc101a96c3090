"""An environment of which every observation, reward and end can be told in advance."""

import gymnasium
import numpy as np
from gymnasium import spaces


class Predictable(gymnasium.Env):
    """Observes [id, episode, step]; the reward is 100 episode + 10 step + action.

    The id is the seed of the first reset modulo 1000. Episodes last 2 + (id + episode) % 3
    steps, or `length`; those of even number end by termination, the others by truncation. With
    `one_array` all observations are one array, overwritten at every step, as some environments
    do.
    """

    observation_space = spaces.Box(-np.inf, np.inf, (3,), np.float32)
    action_space = spaces.Discrete(4)

    def __init__(self, length=None, one_array=False):
        self.length, self.id, self.episode = length, None, -1
        self.array = np.empty(3, np.float32) if one_array else None

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        if seed is not None:
            self.id, self.episode = seed % 1000, -1
        self.episode, self.steps = self.episode + 1, 0
        return self.observed(), {}

    def observed(self):
        array = np.empty(3, np.float32) if self.array is None else self.array
        array[:] = self.id, self.episode, self.steps
        return array

    def episode_length(self):
        return self.length or 2 + (self.id + self.episode) % 3

    def step(self, action):
        reward = 100.0 * self.episode + 10.0 * self.steps + action
        self.steps += 1
        over = self.steps >= self.episode_length()
        even = self.episode % 2 == 0
        return self.observed(), reward, over and even, over and not even, {}
