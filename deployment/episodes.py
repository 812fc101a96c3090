"""Greedy episodes, one after the other, in an environment that shows them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import gymnasium

from kytolly.environment.gym.adapter import make_host_env
from kytolly.environment.spec import ACTION_MASK


class Episode(NamedTuple):
    """An episode that was played.

    Attributes:
        episode_return: Sum of its rewards.
        length: Its env steps.
    """

    episode_return: float
    length: int


class Shown(gymnasium.Wrapper):
    """An environment that calls `show` after each step, before anybody can reset it."""

    def __init__(self, env: gymnasium.Env, show: Callable[[], Any]):
        super().__init__(env)
        self._show = show

    def step(self, action: Any) -> Any:
        """Step, then show."""
        outcome = self.env.step(action)
        self._show()
        return outcome


def play_episodes(
    agent: Any, env: gymnasium.Env, episodes: int, seed: int, show: Callable[[], Any]
) -> Iterator[Episode]:
    """Play greedily; gives each episode when it has ended.

    Args:
        agent: A `LoadedAgent`.
        env: The environment; the caller closes it.
        episodes: How many.
        seed: Seed of the first reset; the following episodes go on with the same random stream.
        show: Called at the begin of each episode and after each of its steps.

    Raises:
        ValueError: The environment's observations or actions are not those of the agent.
    """
    masked = isinstance(agent.obs_spec, dict) and ACTION_MASK in agent.obs_spec
    host = make_host_env(Shown(env, show), seed=seed, masks=masked)
    shown, trained = (host.spec.obs, host.spec.action), (agent.obs_spec, agent.env_spec.action)
    if shown != trained:
        raise ValueError(
            f"{host.spec.name} has observations {shown[0]} and actions {shown[1]}, expected those "
            f"of {agent.env_name}, which trained this agent: {trained[0]} and {trained[1]}."
        )
    obs = host.reset(seed)
    for _ in range(episodes):
        show()
        ended = False
        while not ended:
            step = host.step(agent.act(obs))
            obs = step.obs
            ended = bool(step.ended[0])
        yield Episode(float(step.episode_return[0]), int(step.episode_length[0]))
