"""One adapter for all that Gymnasium calls an environment."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec as RegisteredSpec
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv

from environment.copies import HostCopies
from environment.faults import EnvironmentFault
from environment.gymnasium_id import found_spec, made
from environment.host_step import HostEnv, HostStep
from environment.spec import TensorEnvironment
from environment.vectors import HostVector

__all__ = ["EnvironmentFault", "HostEnv", "HostStep", "make_host_env"]

_WANTED = (
    "a Gymnasium id, a gymnasium.Env, a gymnasium.vector.VectorEnv or a function without "
    "arguments that makes one of the two"
)


def make_host_env(
    env: str | gymnasium.Env | VectorEnv | Callable[[], Any],
    num_envs: int | None = None,
    *,
    seed: int = 0,
    async_envs: bool = False,
) -> HostEnv:
    """Environment copies on the host, whatever they are made from.

    Args:
        env: A Gymnasium id, an environment, a vector environment, or a function without
            arguments that makes one of the two.
        num_envs: Copies; None takes those of a vector environment, and otherwise one.
        seed: Each copy's own seed follows from this one.
        async_envs: Step every copy in a process of its own, which pays for slow environments. The
            processes are not forked: a script needs `if __name__ == "__main__":`.

    Returns:
        The copies; `close()` ends those that were made here.

    Raises:
        ValueError: The arguments do not fit, or a space is not supported.
        EnvironmentFault: The environment cannot be made.
    """
    if num_envs is not None and (not isinstance(num_envs, int) or num_envs < 1):
        raise ValueError(f"num_envs is {num_envs!r}, expected an integer of at least 1.")
    if isinstance(env, str):
        return _from_id(env, num_envs or 1, seed, async_envs)
    if isinstance(env, VectorEnv | gymnasium.Env):
        return _from_instance(env, num_envs, seed, async_envs)
    if callable(env):
        return _from_factory(env, num_envs, seed, async_envs)
    if isinstance(env, TensorEnvironment):
        raise ValueError(
            f"{env.spec.name} is written in tensor code, and so runs in the device loop only; "
            f"on the host works {_WANTED}."
        )
    raise ValueError(f"env is {env!r}, a {type(env).__name__}; expected {_WANTED}.")


def _from_id(name: str, num_envs: int, seed: int, async_envs: bool) -> HostEnv:
    spec = found_spec(name)
    if async_envs:
        made(spec).close()  # says what is missing in words of its own
        make = functools.partial(gymnasium.make, spec, disable_env_checker=True)
        return _in_processes(make, spec.id, spec, num_envs, seed)
    envs, limit = [], None
    for _ in range(num_envs):
        env, limit = _without_time_limit(made(spec))
        envs.append(env)
    return HostCopies(envs, spec.id, spec, _seeds(seed, num_envs), time_limit=limit)


def _from_instance(
    env: gymnasium.Env | VectorEnv, num_envs: int | None, seed: int, async_envs: bool
) -> HostEnv:
    name = _name(env)
    if async_envs:
        raise ValueError(
            f"async_envs needs to make {name} in other processes, which the one that was given "
            "cannot move to. What works: a function that makes it, as in env=lambda: MyEnv()."
        )
    if isinstance(env, VectorEnv):
        return _of_vector(env, name, num_envs, seed, owned=False)
    if num_envs not in (None, 1):
        raise ValueError(
            f"num_envs is {num_envs}, but {name} is one environment, which cannot be multiplied. "
            "What works: a function that makes it, as in env=lambda: MyEnv(), or num_envs=1."
        )
    return _of_copies([env], name, seed, owned=False)


def _from_factory(
    make: Callable[[], Any], num_envs: int | None, seed: int, async_envs: bool
) -> HostEnv:
    first = _called(make)
    name = _name(first)
    if isinstance(first, VectorEnv):
        return _of_vector(first, name, num_envs, seed, owned=True)
    if async_envs:
        first.close()
        return _in_processes(make, name, first.spec, num_envs or 1, seed)
    envs = [first, *(_called(make) for _ in range((num_envs or 1) - 1))]
    if len({id(env) for env in envs}) < len(envs):
        raise ValueError(
            f"the function given as env returned the same {name} twice; for num_envs={num_envs} "
            "it must make a new one at every call."
        )
    return _of_copies(envs, name, seed, owned=True)


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


def _of_copies(envs: list[gymnasium.Env], name: str, seed: int, *, owned: bool) -> HostCopies:
    return HostCopies(envs, name, envs[0].spec, _seeds(seed, len(envs)), owned=owned)


def _of_vector(
    env: VectorEnv, name: str, num_envs: int | None, seed: int, *, owned: bool
) -> HostVector:
    if num_envs not in (None, env.num_envs):
        raise ValueError(
            f"num_envs is {num_envs}, but the vector environment {name} has {env.num_envs} "
            f"copies. What works: num_envs={env.num_envs}, or a vector environment of {num_envs}."
        )
    return HostVector(env, name, _registered(env), _seeds(seed, env.num_envs), owned=owned)


def _in_processes(
    make: Callable[[], gymnasium.Env],
    name: str,
    registered: RegisteredSpec | None,
    num_envs: int,
    seed: int,
) -> HostVector:
    """One process per copy; not forked, because TensorFlow's threads do not survive a fork."""

    def make_copying() -> gymnasium.Env:
        # Gymnasium resets before it copies: of an environment that overwrites one array, the last
        # observation would be lost. A local function, so that the process loads no TensorFlow.
        return gymnasium.wrappers.TransformObservation(make(), np.copy, None)

    try:
        env = AsyncVectorEnv(
            [make_copying] * num_envs, context="forkserver", autoreset_mode=AutoresetMode.SAME_STEP
        )
    except Exception as error:
        raise EnvironmentFault(
            f"{name} cannot run in processes of its own, {type(error).__name__}: {error}"
        ) from error
    return HostVector(env, name, registered, _seeds(seed, num_envs))


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
