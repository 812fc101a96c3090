"""One adapter for all that Gymnasium calls an environment."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec as RegisteredSpec
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv

from kytolly.environment.faults import EnvironmentFault
from kytolly.environment.gym.actions import ActionForm
from kytolly.environment.gym.make import found_spec, made
from kytolly.environment.gym.masks import (
    MaskedObservation,
    MaskedVector,
    mask_source,
    vector_mask_source,
)
from kytolly.environment.gym.separate import HostCopies
from kytolly.environment.gym.step import HostEnv, HostStep
from kytolly.environment.gym.vector import HostVector, autoreset_mode
from kytolly.environment.spec import Box, TensorEnvironment, num_choices

__all__ = ["EnvironmentFault", "HostEnv", "HostStep", "make_host_env", "make_host_groups"]

_WANTED = (
    "a Gymnasium id, a gymnasium.Env, a gymnasium.vector.VectorEnv or a function without "
    "arguments that makes one of the two"
)


class _Wanted(NamedTuple):
    """What the caller asked for, beside the environment."""

    num_envs: int | None
    groups: int
    seed: int
    async_envs: bool
    masks: bool


def make_host_env(
    env: str | gymnasium.Env | VectorEnv | Callable[[], Any],
    num_envs: int | None = None,
    *,
    seed: int = 0,
    async_envs: bool = False,
    masks: bool = False,
) -> HostEnv:
    """Environment copies on the host, whatever they are made from.

    Args:
        env: A Gymnasium id, an environment, a vector environment, or a function without
            arguments that makes one of the two.
        num_envs: Copies; None takes those of a vector environment, and otherwise one.
        seed: Each copy's own seed follows from this one.
        async_envs: Step every copy in a process of its own, which pays for slow environments. The
            processes are not forked: a script needs `if __name__ == "__main__":`.
        masks: Look for the environment's word on which actions are allowed, in a method
            `action_masks()` or else in `info["action_mask"]`, and make it the entry `action_mask`
            of the observations. To see the info, one copy is reset once more than otherwise. An
            `action_mask` that is in a Dict observation already is taken in any case.

    Returns:
        The copies; `close()` ends those that were made here.

    Raises:
        ValueError: The arguments do not fit, or a space is not supported.
        EnvironmentFault: The environment cannot be made.
    """
    return make_host_groups(env, num_envs, 1, seed=seed, async_envs=async_envs, masks=masks)[0]


def make_host_groups(
    env: str | gymnasium.Env | VectorEnv | Callable[[], Any],
    num_envs: int | None = None,
    groups: int = 2,
    *,
    seed: int = 0,
    async_envs: bool = False,
    masks: bool = False,
) -> list[HostEnv]:
    """The copies of `make_host_env` in groups, of which one can step while another is acted for.

    A copy has the same seed as in one group. Only copies in processes of their own gain by being
    stepped apart, so without `async_envs`, and of a vector environment, there is one group.

    Args:
        env: As for `make_host_env`.
        num_envs: Copies in all groups together.
        groups: Most groups to make; there are fewer where the copies could not be shared out
            equally among so many.
        seed: Each copy's own seed follows from this one.
        async_envs: Whether every copy has a process of its own.
        masks: Whether to look for action masks.

    Returns:
        The groups, each of equally many copies, in the order of the copies.
    """
    for setting, value in (("num_envs", num_envs), ("groups", groups)):
        if value is not None and (not isinstance(value, int) or value < 1):
            raise ValueError(f"{setting} is {value!r}, expected an integer of at least 1.")
    wanted = _Wanted(num_envs, groups, seed, async_envs, masks)
    if isinstance(env, str):
        return _from_id(env, wanted)
    if isinstance(env, VectorEnv | gymnasium.Env):
        return [_from_instance(env, wanted)]
    if callable(env):
        return _from_factory(env, wanted)
    if isinstance(env, TensorEnvironment):
        raise ValueError(
            f"{env.spec.name} is written in tensor code, and so runs in the device loop only; "
            f"on the host works {_WANTED}."
        )
    raise ValueError(f"env is {env!r}, a {type(env).__name__}; expected {_WANTED}.")


def _from_id(name: str, wanted: _Wanted) -> list[HostEnv]:
    spec = found_spec(name)
    if wanted.async_envs:
        first = made(spec)  # says what is missing in words of its own
        make = functools.partial(gymnasium.make, spec, disable_env_checker=True)
        return _in_processes(make, first, spec.id, wanted)
    envs, limit = [], None
    for _ in range(wanted.num_envs or 1):
        env, limit = _without_time_limit(made(spec))
        envs.append(env)
    return [_of_copies(envs, spec.id, spec, wanted, time_limit=limit)]


def _from_instance(env: gymnasium.Env | VectorEnv, wanted: _Wanted) -> HostEnv:
    name = _name(env)
    if wanted.async_envs:
        raise ValueError(
            f"async_envs needs to make {name} in other processes, which the one that was given "
            "cannot move to. What works: a function that makes it, as in env=lambda: MyEnv()."
        )
    if isinstance(env, VectorEnv):
        return _of_vector(env, name, wanted, owned=False)
    if wanted.num_envs not in (None, 1):
        raise ValueError(
            f"num_envs is {wanted.num_envs}, but {name} is one environment, which cannot be "
            "multiplied. What works: a function that makes it, as in env=lambda: MyEnv(), or "
            "num_envs=1."
        )
    return _of_copies([env], name, env.spec, wanted, owned=False)


def _from_factory(make: Callable[[], Any], wanted: _Wanted) -> list[HostEnv]:
    first = _called(make)
    name = _name(first)
    if isinstance(first, VectorEnv):
        return [_of_vector(first, name, wanted, owned=True)]
    if wanted.async_envs:
        return _in_processes(make, first, name, wanted)
    envs = [first, *(_called(make) for _ in range((wanted.num_envs or 1) - 1))]
    if len({id(env) for env in envs}) < len(envs):
        raise ValueError(
            f"the function given as env returned the same {name} twice; for "
            f"num_envs={wanted.num_envs} it must make a new one at every call."
        )
    return [_of_copies(envs, name, first.spec, wanted)]


def _called(make: Callable[[], Any]) -> Any:
    try:
        env = make()
    except Exception as error:
        raise EnvironmentFault(
            f"the function given as env raised {type(error).__name__}: {error}"
        ) from error
    if not isinstance(env, VectorEnv | gymnasium.Env):
        raise ValueError(
            f"the function given as env returned {env!r}, a {type(env).__name__}; expected a "
            "gymnasium.Env or a gymnasium.vector.VectorEnv."
        )
    return env


def _of_copies(
    envs: list[gymnasium.Env],
    name: str,
    registered: RegisteredSpec | None,
    wanted: _Wanted,
    *,
    time_limit: int | None = None,
    owned: bool = True,
) -> HostCopies:
    seeds = _seeds(wanted.seed, len(envs))
    mask = _mask_of(envs[0], name) if wanted.masks else None
    if mask is not None:
        envs = [MaskedObservation(env, *mask, name) for env in envs]
    return HostCopies(envs, name, registered, seeds, time_limit=time_limit, owned=owned)


def _of_vector(env: VectorEnv, name: str, wanted: _Wanted, *, owned: bool) -> HostVector:
    if wanted.num_envs not in (None, env.num_envs):
        raise ValueError(
            f"num_envs is {wanted.num_envs}, but the vector environment {name} has {env.num_envs} "
            f"copies. What works: num_envs={env.num_envs}, or a vector environment of "
            f"{wanted.num_envs}."
        )
    registered = _registered(env)
    mask = _mask_of(env, name) if wanted.masks else None
    if mask is not None:
        env = MaskedVector(env, autoreset_mode(env, name), *mask, name)
    return HostVector(env, name, registered, _seeds(wanted.seed, env.num_envs), owned=owned)


def _in_processes(
    make: Callable[[], gymnasium.Env], first: gymnasium.Env, name: str, wanted: _Wanted
) -> list[HostEnv]:
    """Groups of copies with a process each; `first` only shows what they will be like."""
    registered = first.spec
    try:
        mask = _mask_of(first, name) if wanted.masks else None
    finally:
        first.close()
    seeds = _seeds(wanted.seed, wanted.num_envs or 1)
    groups = next(count for count in range(wanted.groups, 0, -1) if len(seeds) % count == 0)
    size, envs = len(seeds) // groups, []
    try:
        for _ in range(groups):
            envs.append(_processes(make, name, size, mask))
        shares = [seeds[start : start + size] for start in range(0, len(seeds), size)]
        return [
            HostVector(env, name, registered, share)
            for env, share in zip(envs, shares, strict=True)
        ]
    except BaseException:
        for env in envs:
            env.close()
        raise


def _processes(
    make: Callable[[], gymnasium.Env], name: str, count: int, mask: tuple[str, int] | None
) -> AsyncVectorEnv:
    """One process per copy; not forked, because TensorFlow's threads do not survive a fork."""

    def make_copying(index: int) -> gymnasium.Env:
        # Gymnasium resets before it copies: of an environment that overwrites one array, the last
        # observation would be lost. A local function, so that the process loads no TensorFlow.
        env = make()
        if mask is not None:
            env = MaskedObservation(env, *mask, name, f" for copy {index} of {count}")
        return gymnasium.wrappers.TransformObservation(env, copy.deepcopy, None)

    try:
        return AsyncVectorEnv(
            [functools.partial(make_copying, index) for index in range(count)],
            context="forkserver",
            autoreset_mode=AutoresetMode.SAME_STEP,
        )
    except Exception as error:
        raise EnvironmentFault(
            f"{name} cannot run in processes of its own, {type(error).__name__}: {error}"
        ) from error


def _mask_of(env: gymnasium.Env | VectorEnv, name: str) -> tuple[str, int] | None:
    """Where to look for the masks, and their length; None where there are none beside `obs`."""
    is_vector = isinstance(env, VectorEnv)
    try:
        source = vector_mask_source(env) if is_vector else mask_source(env)
    except Exception as error:
        raise EnvironmentFault(
            f"{name} raised {type(error).__name__} in a first reset(), which was to show whether "
            f"its info has an action mask: {error}"
        ) from error
    if source is None:
        return None
    action = ActionForm(env.single_action_space if is_vector else env.action_space, name).space
    if isinstance(action, Box):
        raise ValueError(
            f"{name} gives action masks ({source}), but its actions are the numbers of a Box, of "
            "which a mask cannot forbid any. What works: choose among a grid of actions with "
            "gymnasium.wrappers.DiscretizeAction, or give no mask."
        )
    return source, num_choices(action)


def _seeds(seed: int, count: int) -> list[int]:
    """One seed for each copy; the first ones stay the same when copies are added."""
    return np.random.SeedSequence(seed).generate_state(count).tolist()


def _name(env: gymnasium.Env | VectorEnv) -> str:
    spec = _registered(env)
    return spec.id if spec is not None else type(env.unwrapped).__name__


def _registered(env: gymnasium.Env | VectorEnv) -> RegisteredSpec | None:
    if env.spec is None and isinstance(env.unwrapped, SyncVectorEnv):
        return env.unwrapped.envs[0].spec
    return env.spec


def _without_time_limit(env: gymnasium.Env) -> tuple[gymnasium.Env, int | None]:
    """The environment without the outermost wrappers that `HostCopies` does the work of.

    Only of environments made here: nobody else holds the wrapper that then counts no steps.
    """
    limit = None
    if type(env) is gymnasium.wrappers.TimeLimit and env.spec is not None:
        limit, env = env.spec.max_episode_steps, env.env
        if type(env) is gymnasium.wrappers.OrderEnforcing:
            env = env.env
    return env, limit
