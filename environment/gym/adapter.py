"""One adapter for all that Gymnasium calls an environment."""

from __future__ import annotations

import copy
import functools
import multiprocessing
import signal
from collections.abc import Callable
from typing import Any, NamedTuple

import gymnasium
from gymnasium.envs.registration import EnvSpec as RegisteredSpec
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv

from kytolly.environment.faults import EnvironmentFault, close_or_warn
from kytolly.environment.gym.actions import ActionForm
from kytolly.environment.gym.ends import CheckedEnds
from kytolly.environment.gym.make import make_env, registered_spec
from kytolly.environment.gym.masks import (
    MaskedObservation,
    MaskedVector,
    mask_source,
    vector_mask_source,
)
from kytolly.environment.gym.saved_state import SavableEnv
from kytolly.environment.gym.separate import SeparateEnvs, SingleEnv
from kytolly.environment.gym.step import HostEnv, HostStep, environment_seeds
from kytolly.environment.gym.vector import HostVector, autoreset_mode, end_processes
from kytolly.environment.signals import STOP_SIGNALS
from kytolly.environment.spec import Box, TensorEnvironment, num_choices

__all__ = ["EnvironmentFault", "HostEnv", "HostStep", "make_host_env", "make_host_groups"]

_ACCEPTED = (
    "a Gymnasium id, a gymnasium.Env, a gymnasium.vector.VectorEnv or a function without "
    "arguments that makes one of the two"
)


class _Request(NamedTuple):
    """What the caller asked for, besides the environment."""

    num_envs: int | None
    groups: int
    seed: int
    async_envs: bool
    masks: bool
    timeout_seconds: float


def make_host_env(
    env: str | gymnasium.Env | VectorEnv | Callable[[], Any],
    num_envs: int | None = None,
    *,
    seed: int = 0,
    async_envs: bool = False,
    masks: bool = False,
    timeout_seconds: float = 60.0,
) -> HostEnv:
    """Environments on the host, whatever they are made from.

    Args:
        env: A Gymnasium id, an environment, a vector environment, or a function without
            arguments that makes one of the two.
        num_envs: Environments; None takes those of a vector environment, and otherwise one.
        seed: Each environment's own seed follows from this one.
        async_envs: Step every environment in its own process, which pays for slow ones. The
            processes are not forked: a script needs `if __name__ == "__main__":`.
        masks: Look for the environment's word on which actions are allowed, in a method
            `action_masks()` or else in `info["action_mask"]`, and make it the entry `action_mask`
            of the observations. To see the info, one environment is reset one time more. An
            `action_mask` that is in a Dict observation already is taken in any case.
        timeout_seconds: Most that a reset or a step in processes may take.

    Returns:
        The environments; `close()` closes those that were made here.

    Raises:
        ValueError: The arguments do not fit, or a space is not supported.
        EnvironmentFault: The environment cannot be made.
    """
    return make_host_groups(
        env,
        num_envs,
        1,
        seed=seed,
        async_envs=async_envs,
        masks=masks,
        timeout_seconds=timeout_seconds,
    )[0]


def make_host_groups(
    env: str | gymnasium.Env | VectorEnv | Callable[[], Any],
    num_envs: int | None = None,
    groups: int = 2,
    *,
    seed: int = 0,
    async_envs: bool = False,
    masks: bool = False,
    timeout_seconds: float = 60.0,
) -> list[HostEnv]:
    """The environments of `make_host_env` in groups: one can step while the agent acts for another.

    An environment has the same seed as in one group. Only environments in their own processes
    gain from groups, so without `async_envs`, or for a vector environment, there is one.

    Args:
        env: As for `make_host_env`.
        num_envs: Environments in all groups together.
        groups: Most groups to make; there are fewer where so many could not be equally large.
        seed: Each environment's own seed follows from this one.
        async_envs: Whether every environment has its own process.
        masks: Whether to look for action masks.
        timeout_seconds: Most that a reset or a step in processes may take.

    Returns:
        The groups, equally large, in the order of their environments.
    """
    for setting, value in (("num_envs", num_envs), ("groups", groups)):
        if value is not None and (not isinstance(value, int) or value < 1):
            raise ValueError(f"{setting} is {value!r}, expected an integer of at least 1.")
    request = _Request(num_envs, groups, seed, async_envs, masks, timeout_seconds)
    if isinstance(env, str):
        return _make_from_id(env, request)
    if isinstance(env, VectorEnv | gymnasium.Env):
        return [_make_from_instance(env, request)]
    if callable(env):
        return _make_from_factory(env, request)
    if isinstance(env, TensorEnvironment):
        raise ValueError(
            f"{env.spec.name} is written in tensor code, and so runs in the device loop only; "
            f"on the host works {_ACCEPTED}."
        )
    raise ValueError(f"env is {env!r}, a {type(env).__name__}; expected {_ACCEPTED}.")


def _make_from_id(name: str, request: _Request) -> list[HostEnv]:
    spec = registered_spec(name)
    if request.async_envs:
        first = make_env(spec)  # its messages say what is missing
        make = functools.partial(gymnasium.make, spec, disable_env_checker=True)
        return _make_process_groups(make, first, spec.id, request)
    envs, limit = [], None
    for _ in range(request.num_envs or 1):
        env, limit = _without_time_limit(make_env(spec))
        envs.append(env)
    return [_make_separate(envs, spec.id, spec, request, time_limit=limit)]


def _make_from_instance(env: gymnasium.Env | VectorEnv, request: _Request) -> HostEnv:
    name = _name(env)
    if request.async_envs:
        raise ValueError(
            f"async_envs needs to make {name} in other processes, where an environment "
            "that exists cannot move. What works: a function, as in env=lambda: MyEnv()."
        )
    if isinstance(env, VectorEnv):
        return _make_vector(env, name, request, owned=False)
    if request.num_envs not in (None, 1):
        raise ValueError(
            f"num_envs is {request.num_envs}, but {name} is one environment. What works: a "
            "function that can make more, as in env=lambda: MyEnv(), or num_envs=1."
        )
    return _make_separate([env], name, env.spec, request, owned=False)


def _make_from_factory(make: Callable[[], Any], request: _Request) -> list[HostEnv]:
    first = _call_factory(make)
    name = _name(first)
    if isinstance(first, VectorEnv):
        return [_make_vector(first, name, request, owned=True)]
    if request.async_envs:
        return _make_process_groups(make, first, name, request)
    envs = [first, *(_call_factory(make) for _ in range((request.num_envs or 1) - 1))]
    if len({id(env) for env in envs}) < len(envs):
        raise ValueError(
            f"the function given as env returned the same {name} twice; for "
            f"num_envs={request.num_envs} it must make a new one at every call."
        )
    return [_make_separate(envs, name, first.spec, request)]


def _call_factory(make: Callable[[], Any]) -> Any:
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


def _make_separate(
    envs: list[gymnasium.Env],
    name: str,
    known_spec: RegisteredSpec | None,
    request: _Request,
    *,
    time_limit: int | None = None,
    owned: bool = True,
) -> SeparateEnvs:
    seeds = environment_seeds(request.seed, len(envs))
    mask = _mask_of(envs[0], name) if request.masks else None
    if mask is not None:
        envs = [MaskedObservation(env, *mask, name) for env in envs]
    adapter = SingleEnv if len(envs) == 1 else SeparateEnvs
    return adapter(envs, name, known_spec, seeds, time_limit=time_limit, owned=owned)


def _make_vector(env: VectorEnv, name: str, request: _Request, *, owned: bool) -> HostVector:
    if request.num_envs not in (None, env.num_envs):
        raise ValueError(
            f"num_envs is {request.num_envs}, but the vector environment {name} has {env.num_envs} "
            f"environments. What works: num_envs={env.num_envs}, or a vector environment of "
            f"{request.num_envs}."
        )
    known_spec = _spec_of(env)
    mask = _mask_of(env, name) if request.masks else None
    if mask is not None:
        env = MaskedVector(env, autoreset_mode(env, name), *mask, name)
    seeds, limit = environment_seeds(request.seed, env.num_envs), request.timeout_seconds
    return HostVector(env, name, known_spec, seeds, owned=owned, timeout_seconds=limit)


def _make_process_groups(
    make: Callable[[], gymnasium.Env], first: gymnasium.Env, name: str, request: _Request
) -> list[HostEnv]:
    """Groups of environments with a process each; `first` only shows their mask and spec."""
    known_spec = first.spec
    try:
        mask = _mask_of(first, name) if request.masks else None
    finally:
        close_or_warn(first, name)
    seeds = environment_seeds(request.seed, request.num_envs or 1)
    groups = next(count for count in range(request.groups, 0, -1) if len(seeds) % count == 0)
    size, envs = len(seeds) // groups, []
    try:
        for _ in range(groups):
            envs.append(_make_process_vector(make, name, size, mask))
        shares = [seeds[start : start + size] for start in range(0, len(seeds), size)]
        limit = request.timeout_seconds
        return [
            HostVector(env, name, known_spec, share, timeout_seconds=limit, saves=True)
            for env, share in zip(envs, shares, strict=True)
        ]
    except BaseException:
        for env in envs:
            end_processes(env)
        raise


def _make_process_vector(
    make: Callable[[], gymnasium.Env], name: str, count: int, mask: tuple[str, int] | None
) -> AsyncVectorEnv:
    """One process per environment; not forked: TensorFlow's threads do not survive a fork."""

    def make_copying(index: int) -> gymnasium.Env:
        # Gymnasium resets before it copies: of an environment that overwrites one array, the last
        # observation would be lost. A local function, so that the process loads no TensorFlow.
        # A terminal sends its signals to these processes, too: they end when the run closes them.
        # Gymnasium calls this function in our own process as well.
        if multiprocessing.parent_process() is not None:
            for number in STOP_SIGNALS:
                signal.signal(number, signal.SIG_IGN)
        env = make()
        if mask is not None:
            env = MaskedObservation(env, *mask, name, f" for environment {index} of {count}")
        env = SavableEnv(gymnasium.wrappers.TransformObservation(env, copy.deepcopy, None))
        return CheckedEnds(env, f"environment {index} of {name}")

    try:
        return AsyncVectorEnv(
            [functools.partial(make_copying, index) for index in range(count)],
            context="forkserver",
            autoreset_mode=AutoresetMode.SAME_STEP,
        )
    except Exception as error:
        raise EnvironmentFault(
            f"{name} cannot run in its own processes, {type(error).__name__}: {error}"
        ) from error


def _mask_of(env: gymnasium.Env | VectorEnv, name: str) -> tuple[str, int] | None:
    """Where to look for action masks, and their length; None where `obs` is the only place."""
    is_vector = isinstance(env, VectorEnv)
    space = getattr(env, "single_observation_space" if is_vector else "observation_space", None)
    if not isinstance(space, gymnasium.Space):
        return None  # `observation_form` refuses it
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
            f"{name} gives action masks ({source}), but its actions are a Box, of which a mask "
            "cannot forbid any number. What works: choose among a grid of actions with "
            "gymnasium.wrappers.DiscretizeAction, or give no mask."
        )
    return source, num_choices(action)


def _name(env: gymnasium.Env | VectorEnv) -> str:
    spec = _spec_of(env)
    return spec.id if spec is not None else type(env.unwrapped).__name__


def _spec_of(env: gymnasium.Env | VectorEnv) -> RegisteredSpec | None:
    if env.spec is None and isinstance(env.unwrapped, SyncVectorEnv):
        return env.unwrapped.envs[0].spec
    return env.spec


def _without_time_limit(env: gymnasium.Env) -> tuple[gymnasium.Env, int | None]:
    """The environment without the outermost wrappers whose work `SeparateEnvs` does.

    Only for environments made here: nobody else holds the wrapper that then counts no steps.
    """
    limit = None
    if type(env) is gymnasium.wrappers.TimeLimit and env.spec is not None:
        limit, env = env.spec.max_episode_steps, env.env
        if type(env) is gymnasium.wrappers.OrderEnforcing:
            env = env.env
    return env, limit
