"""An environment of which every observation, reward and end can be told in advance."""

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import SyncVectorEnv


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


def vector(mode, make=Predictable, num_envs=3, copy=True):
    """Gymnasium's vector of such environments; in this file, so that processes load no other."""
    return SyncVectorEnv([make] * num_envs, autoreset_mode=mode, copy=copy)


ENDS = [(True, False), (False, True), (True, True)]


class Recorded(gymnasium.Env):
    """Observes [id, episode, step, actions]: the actions since the reset, in digits of base 4.

    So two observations tell all that happened between them. The id is the seed of the first
    reset modulo a million. With `one_array` all observations are one array, overwritten at every
    step.
    """

    observation_space = spaces.Box(-np.inf, np.inf, (4,), np.float32)
    action_space = spaces.Discrete(4)

    def __init__(self, one_array=False):
        self.id, self.episode = None, -1
        self.array = np.empty(4, np.float32) if one_array else None

    @staticmethod
    def length(env_id, episode):
        """Steps of an episode, 1 to 7; one environment's are longer than another's."""
        return 1 + (7 * env_id + 11 * episode) % (2 + env_id % 6)

    @staticmethod
    def end(env_id, episode):
        """Whether an episode's last step terminates and whether it truncates: either, or both."""
        return ENDS[(env_id + episode) % 3]

    @staticmethod
    def reward(env_id, episode, step, action):
        """The reward of an action: no two are alike."""
        return np.sin(13.0 * env_id + 78.2 * episode + 37.7 * step + 4.58 * action)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        if seed is not None:
            self.id, self.episode = seed % 10**6, -1
        self.episode, self.steps, self.actions = self.episode + 1, 0, 0
        return self.observed(), {}

    def observed(self):
        array = np.empty(4, np.float32) if self.array is None else self.array
        array[:] = self.id, self.episode, self.steps, self.actions
        return array

    def step(self, action):
        reward = self.reward(self.id, self.episode, self.steps, action)
        self.steps, self.actions = self.steps + 1, 4 * self.actions + int(action)
        over = self.steps >= self.length(self.id, self.episode)
        terminated, truncated = self.end(self.id, self.episode) if over else (False, False)
        return self.observed(), reward, terminated, truncated, {}
