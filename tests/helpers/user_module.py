"""A module of a user's own, with an environment and a wrapper."""

MODULE = """
import gymnasium
import numpy as np

class Line(gymnasium.Env):
    action_space = gymnasium.spaces.Discrete(2)
    observation_space = gymnasium.spaces.Box(-1, 1, (1,))

    def __init__(self, length=3, pay=1.0):
        self.length, self.pay = length, pay

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.steps += 1
        obs = np.array([self.steps / 10], np.float32)
        return obs, self.pay, self.steps == self.length, False, {}

class Twice(gymnasium.RewardWrapper):
    def __init__(self, env, factor=2, *, added=0):
        super().__init__(env)
        self.factor, self.added = factor, added

    def reward(self, reward):
        return self.factor * reward + self.added

gymnasium.register("Line-v0", entry_point=Line)
"""
