"""Wrappers in evaluations: rewards that they change, statistics that they keep."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator
from typing import TypeAlias, cast

import gymnasium
from gymnasium.vector import SyncVectorEnv, VectorRewardWrapper, VectorWrapper
from gymnasium.wrappers import NormalizeObservation, NormalizeReward
from gymnasium.wrappers import vector as vectors

from kytolly.environment.gym.restarts import Replaceable
from kytolly.environment.gym.step import GymEnv

Layer: TypeAlias = GymEnv | Replaceable
NORMALIZERS = (NormalizeObservation, vectors.NormalizeObservation)
WRAPPERS = gymnasium.Wrapper, VectorWrapper, Replaceable
REWARD_WRAPPERS = (
    gymnasium.RewardWrapper,
    VectorRewardWrapper,
    NormalizeReward,
    vectors.NormalizeReward,
)


def layers(env: Layer | None) -> Iterator[Layer]:
    """The environment, then what it wraps; of a `SyncVectorEnv` the first of its environments."""
    while env is not None:
        yield env
        inner = env.envs[0] if isinstance(env, SyncVectorEnv) else None
        env = env.env if isinstance(env, WRAPPERS) else inner


def is_left_out(layer: Layer) -> bool:
    """True for a wrapper that evaluations do without: Gymnasium's own that change a reward.

    One that a user wrote may be the task itself.
    """
    return isinstance(layer, REWARD_WRAPPERS) and type(layer).__module__.startswith("gymnasium.")


def without_reward_wrappers(env: GymEnv) -> GymEnv:
    """A new environment without the wrappers that `is_left_out` names."""
    if isinstance(env, gymnasium.Wrapper | VectorWrapper):
        inner = without_reward_wrappers(env.env)
        if is_left_out(env):
            return inner
        cast(gymnasium.Wrapper, env).env = cast(gymnasium.Env, inner)
    elif isinstance(env, SyncVectorEnv):
        env.envs = [cast(gymnasium.Env, without_reward_wrappers(one)) for one in env.envs]
    return env


def changes_rewards(env: Layer) -> bool:
    """True where evaluations do without some of the environment's wrappers."""
    return any(map(is_left_out, layers(env)))


def copy_statistics(trained: Layer | None, fresh: Layer) -> None:
    """Give a `NormalizeObservation` that plays the statistics of the one that trains."""
    source, targets = (
        [layer for layer in layers(env) if isinstance(layer, NORMALIZERS)]
        for env in (trained, fresh)
    )
    for one, other in zip(source, targets, strict=False):
        if one.obs_rms.count >= 1.0:  # it has seen something
            other.obs_rms, other.update_running_mean = copy.deepcopy(one.obs_rms), False


def warn_of_wrappers(env: Layer, name: str) -> None:
    """Say what evaluations, and those who load the agent, see of an environment's wrappers."""
    rewards = [layer for layer in layers(env) if isinstance(layer, REWARD_WRAPPERS)]
    remaining = [type(layer).__name__ for layer in rewards if not is_left_out(layer)]
    left_out = [type(layer).__name__ for layer in rewards if is_left_out(layer)]
    if left_out:
        of = f" (as {', '.join(remaining)} gives them)" if remaining else ""
        warnings.warn(
            f"{name}: evaluations leave {', '.join(left_out)} out, so their returns are sums of "
            f"the environment's own rewards{of}. Those of training are not.",
            stacklevel=3,
        )
    elif remaining:
        warnings.warn(
            f"{name}: the returns of evaluations are sums of the rewards that "
            f"{', '.join(remaining)} gives, as in training.",
            stacklevel=3,
        )
    if any(isinstance(layer, NORMALIZERS) for layer in layers(env)):
        warnings.warn(
            f"{name}: NormalizeObservation keeps its statistics in the environment. Evaluations "
            "while training get a copy; best.keras has none, so `kytolly evaluate` and whoever "
            "loads the agent begin without any. Leave the wrapper out and set "
            "normalize_observations=True: then the network keeps the statistics.",
            stacklevel=3,
        )
