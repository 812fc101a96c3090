"""An environment that draws 16 x 15 pixels, whose color says which step of which episode it is."""

import types

import gymnasium
import numpy as np
import tensorflow as tf
from gymnasium import spaces

from kytolly.environment.spec import Discrete, EnvSpec


class Pixels(gymnasium.Env):
    """Episodes of 3, 4, 5, ... steps; the reward of step `t` is `t + action`.

    `drawn` replaces the frames.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 25}  # noqa: RUF012 - as Gymnasium's
    observation_space = spaces.Box(0, 100, (1,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, render_mode=None, drawn=None):
        self.render_mode, self.drawn, self.episode = render_mode, drawn, 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.episode, self.steps = self.episode + 1, 0
        return np.array([0.0], np.float32), {}

    def step(self, action):
        self.steps += 1
        ended = self.steps == 2 + self.episode
        return np.array([self.steps], np.float32), self.steps + int(action), ended, False, {}

    def render(self):
        frame = np.zeros((15, 16, 3), np.uint8)
        frame[...] = (40 * self.episode, 20 * self.steps, 100)
        return frame if self.drawn is None else self.drawn(frame, self.steps)


def pixel_agent(action=1):
    """What plays as a `LoadedAgent` of `Pixels` does, always the same."""
    spec = EnvSpec("Pixels", tf.TensorSpec([1], tf.float32), Discrete(2))
    return types.SimpleNamespace(
        host_action=lambda obs: np.full(len(obs), action),
        obs_spec=spec.obs,
        env_spec=spec,
        env_name="P",
    )
