"""A predictable environment that forbids predictable actions, and says so in one of three ways."""

import numpy as np
from gymnasium import spaces

from tests.environment.predictable import Predictable

SOURCES = ["entry", "info", "method"]


def mask_at(place):
    """Of four actions the one of number (id + episode + step) % 4 is forbidden."""
    mask = np.ones(4, np.int8)
    mask[int(np.sum(place)) % 4] = 0
    return mask


class Masked(Predictable):
    """Predictable, with a mask in the observation, in the info, or to be asked for.

    At an episode's end, where no action follows, it forbids everything or has no mask. `wrong`
    replaces the mask from the third step of an episode on.
    """

    def __init__(self, source, length=None, one_array=False, wrong=None, space=None):
        super().__init__(length, one_array)
        self.source, self.wrong = source, wrong
        if space is not None:
            self.action_space = space
        if source == "method":
            self.action_masks = self.mask
        if source == "entry":
            mask_space = spaces.Box(0, 1, (4,), np.int8)
            self.observation_space = spaces.Dict(
                place=Predictable.observation_space, step=spaces.Discrete(9), action_mask=mask_space
            )

    def mask(self):
        if self.wrong is not None and self.steps >= 3:
            return self.wrong
        if self.steps >= self.episode_length():
            return np.zeros(4, np.int8)
        return mask_at([self.id or 0, self.episode, self.steps])

    def reset(self, **settings):
        obs, _ = super().reset(**settings)
        return self.shown(obs, over=False)

    def step(self, action):
        obs, reward, terminated, truncated, _ = super().step(np.sum(action))
        obs, info = self.shown(obs, terminated or truncated)
        return obs, reward, terminated, truncated, info

    def shown(self, obs, over):
        if self.source == "entry":
            obs = {"place": obs, "step": self.steps, "action_mask": self.mask()}
        return obs, {"action_mask": self.mask()} if self.source == "info" and not over else {}
