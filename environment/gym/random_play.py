"""Random play of an environment, and a comparison of two of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium import spaces

from kytolly.environment.faults import EnvironmentFault
from kytolly.environment.gym.actions import ActionForm
from kytolly.environment.gym.masks import mask_row, mask_source
from kytolly.environment.gym.step import EnvFactory
from kytolly.environment.mask import ACTION_MASK
from kytolly.environment.spec import Box, Discrete


class Subject(NamedTuple):
    """An environment to check, and how: `steps` env steps with random actions from `seed`.

    `factory` is the function that was given; what `make` makes is closed after the check. Who calls
    the environment calls `begin_call` before it: so long a call may last.
    """

    factory: EnvFactory
    make: Callable[[], Any]  # a vector environment in the checks of those
    name: str
    steps: int
    seed: int
    begin_call: Callable[[], object] = lambda: None


class Outcome(NamedTuple):
    """The action that was given, and what `reset` or `step` returned."""

    action: Any
    obs: Any
    reward: Any = 0.0
    terminated: Any = False
    truncated: Any = False
    info: Any = None


class RandomActions:
    """Random actions of a space, of which masks allow each.

    Args:
        space: The action space of one environment.
        name: The environment's name, for messages.
        seed: Of the actions.
    """

    def __init__(self, space: spaces.Space, name: str, seed: int):
        self.space, self.name, self.form = space, name, ActionForm(space, name)
        action, self.counts = self.form.space, ()  # no mask is for continuous actions
        if not isinstance(action, Box):
            self.counts = (action.count,) if isinstance(action, Discrete) else action.counts
        space.seed(seed)

    def one(self, mask: object) -> Any:
        """One action; a mask of None allows all."""
        if mask is None or not self.counts:
            return self.space.sample()
        return self.form.separate(self._choices(mask)[np.newaxis])[0]

    def batch(self, masks: np.ndarray) -> np.ndarray:
        """[E, ...] actions of a vector environment for masks [E, A]."""
        return self.form.batch(np.stack([self._choices(mask) for mask in masks]))

    def _choices(self, mask: object) -> np.ndarray:
        """[] or [D] actions as agents number them; 0 where the mask allows nothing."""
        allowed = np.asarray(mask_row(mask, sum(self.counts), self.name, ""), np.bool_)
        parts = np.split(allowed, np.cumsum(self.counts)[:-1])
        chosen = [
            self.space.np_random.choice(np.flatnonzero(part)) if part.any() else 0 for part in parts
        ]
        return np.array(chosen[0] if isinstance(self.form.space, Discrete) else chosen)


def play(
    env: gymnasium.Env,
    subject: Subject,
    *,
    actions: int | None = None,
    after: Outcome | None = None,
    source: str | None = None,
) -> list[Outcome]:
    """Outcomes of random actions that masks allow, resets included.

    Args:
        env: The environment.
        subject: How many steps, and the seed.
        actions: Seed of the actions; None takes that of the environment.
        after: The environment goes on after this outcome; None: it is reset first.
        source: Where it has its masks, as `mask_source` says; found where it is reset first.
    """
    outcomes: list[Outcome] = []
    seed = subject.seed if actions is None else actions
    chooser = RandomActions(env.action_space, subject.name, seed)
    subject.begin_call()
    if after is None:
        source = mask_source(env)
        obs, info = env.reset(seed=subject.seed)
        after = Outcome(None, obs, info=info)
        outcomes.append(after)
    for _ in range(subject.steps):
        action = chooser.one(mask_of(env, after, source))
        subject.begin_call()
        outcome = env.step(action)
        if not isinstance(outcome, tuple) or len(outcome) != 5:
            raise EnvironmentFault(
                f"step() returned {str(outcome)[:100]}, expected (observation, reward, terminated, "
                "truncated, info)."
            )
        after = Outcome(action, *outcome)
        outcomes.append(after)
        if outcome[2] or outcome[3]:
            subject.begin_call()
            obs, info = env.reset()
            after = Outcome(None, obs, info=info)
            outcomes.append(after)
    return outcomes


def mask_of(env: gymnasium.Env, outcome: Outcome, source: str | None) -> Any:
    """The mask of the allowed actions after an outcome; None where there is none."""
    if isinstance(outcome.obs, dict) and ACTION_MASK in outcome.obs:
        return outcome.obs[ACTION_MASK]
    if source == ACTION_MASK:
        return (outcome.info or {}).get(ACTION_MASK)
    return None if source is None else env.get_wrapper_attr(source)()


def difference(one: list[Outcome], two: list[Outcome]) -> int | None:
    """The first index at which two lists of outcomes differ; None where they are equal."""
    for index, (left, right) in enumerate(zip(one, two, strict=False)):
        for a, b in zip(left[1:5], right[1:5], strict=True):
            if not equal(a, b):
                return index
    return None if len(one) == len(two) else min(len(one), len(two))


def equal(a: object, b: object) -> bool:
    """True where two observations (or numbers) are the same; one NaN is as another."""
    if isinstance(a, dict):
        return isinstance(b, dict) and a.keys() == b.keys() and all(equal(a[k], b[k]) for k in a)
    if isinstance(a, tuple):
        return isinstance(b, tuple) and len(a) == len(b) and all(map(equal, a, b))
    left, right = np.asarray(a), np.asarray(b)
    has_nan = left.dtype.kind in "fc" and right.dtype.kind in "fc"
    return np.array_equal(left, right, equal_nan=has_nan)
