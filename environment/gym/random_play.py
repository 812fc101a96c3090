"""Random play of an environment, and whether two of them played the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium import spaces

from kytolly.environment.faults import EnvironmentFault
from kytolly.environment.gym.masks import mask_source
from kytolly.environment.mask import ACTION_MASK


class Subject(NamedTuple):
    """An environment to check, and how: `steps` env steps with random actions from `seed`.

    `factory` is the function that was given; what `make` makes is closed after the check.
    """

    factory: Callable[[], Any]
    make: Callable[[], Any]
    name: str
    steps: int
    seed: int


class Outcome(NamedTuple):
    """What one call of `reset` or `step` returned, and the action that was given."""

    action: Any
    obs: Any
    reward: Any = 0.0
    terminated: Any = False
    truncated: Any = False
    info: Any = None


def play(
    env: gymnasium.Env, subject: Subject, *, actions: int | None = None, begin: bool = True
) -> list[Outcome]:
    """Outcomes of random actions, resets included.

    Args:
        env: The environment.
        subject: How many steps, and the seed.
        actions: Seed of the actions; None takes that of the environment.
        begin: Whether to reset first; else the environment goes on as it is.
    """
    outcomes: list[Outcome] = []
    env.action_space.seed(subject.seed if actions is None else actions)
    source = None
    if begin:
        source = mask_source(env)
        obs, info = env.reset(seed=subject.seed)
        outcomes.append(Outcome(None, obs, info=info))
    for _ in range(subject.steps):
        mask = mask_of(env, outcomes[-1], source) if outcomes else None
        action = env.action_space.sample(mask) if mask is not None else env.action_space.sample()
        outcome = env.step(action)
        if not isinstance(outcome, tuple) or len(outcome) != 5:
            raise EnvironmentFault(
                f"step() returned {str(outcome)[:100]}, expected (observation, reward, terminated, "
                "truncated, info)."
            )
        outcomes.append(Outcome(action, *outcome))
        if outcome[2] or outcome[3]:
            obs, info = env.reset()
            outcomes.append(Outcome(None, obs, info=info))
    return outcomes


def mask_of(env: Any, outcome: Outcome, source: str | None) -> Any:
    """The mask of the allowed actions for `Discrete.sample`; None where there is none."""
    if not isinstance(env.action_space, spaces.Discrete):
        return None
    mask = None
    if isinstance(outcome.obs, dict) and ACTION_MASK in outcome.obs:
        mask = outcome.obs[ACTION_MASK]
    elif source == ACTION_MASK:
        mask = (outcome.info or {}).get(ACTION_MASK)
    elif source is not None:
        mask = env.get_wrapper_attr(source)()
    return None if mask is None else np.asarray(mask, np.int8)


def difference(one: list[Outcome], two: list[Outcome]) -> int | None:
    """The first index at which two lists of outcomes differ; None where they are equal."""
    for index, (left, right) in enumerate(zip(one, two, strict=False)):
        for a, b in zip(left[1:5], right[1:5], strict=True):
            if not equal(a, b):
                return index
    return None if len(one) == len(two) else min(len(one), len(two))


def equal(a: Any, b: Any) -> bool:
    """Whether two observations (or numbers) are the same, bit for bit."""
    if isinstance(a, dict):
        return isinstance(b, dict) and a.keys() == b.keys() and all(equal(a[k], b[k]) for k in a)
    if isinstance(a, tuple):
        return len(a) == len(b) and all(map(equal, a, b))
    return np.array_equal(np.asarray(a), np.asarray(b))
