"""One adapter for all that Gymnasium calls an environment."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, cast

import gymnasium
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec as RegisteredSpec
from gymnasium.vector import SyncVectorEnv, VectorEnv

from kytolly.environment.faults import EnvironmentFault, RemoteError
from kytolly.environment.gym.actions import ActionForm
from kytolly.environment.gym.make import creation_error, env_factory, make_env, registered_spec
from kytolly.environment.gym.masks import (
    MaskedObservation,
    MaskedVector,
    masked_space,
    vector_mask_source,
)
from kytolly.environment.gym.processes import ProcessVector, WorkerFault, describe
from kytolly.environment.gym.restarts import Replaceable, Restarts
from kytolly.environment.gym.sequential import RestartingEnvs, SequentialEnvs, SingleEnv
from kytolly.environment.gym.spaces import observation_form
from kytolly.environment.gym.step import (
    EnvFactory,
    GymEnv,
    GymSource,
    HostEnv,
    environment_seeds,
)
from kytolly.environment.gym.vector import HostVector, autoreset_mode
from kytolly.environment.gym.worker import EnvDescription, WorkerTask, first_mask_source
from kytolly.environment.gym.wrapped import WrappedSource
from kytolly.environment.spec import Box, TensorEnvironment, num_choices

FACTORY = "the function given as env"
_ACCEPTED = (
    "a Gymnasium id, a gymnasium.Env, a gymnasium.vector.VectorEnv or a function without "
    "arguments that makes one of the two"
)


class _Request(NamedTuple):
    """The arguments besides the environment; `count` environments where the caller may choose."""

    num_envs: int | None
    count: int
    groups: int
    seed: int
    masks: bool
    timeout_seconds: float
    restart: bool
    first: int = 0
    threads: bool = False

    def seeds(self, count: int) -> list[int]:
        """One seed for each of so many environments."""
        return environment_seeds(self.seed, self.first + count)[self.first :]


def make_host_env(
    env: GymSource,
    num_envs: int | None = None,
    *,
    seed: int = 0,
    async_envs: bool = False,
    masks: bool = False,
    timeout_seconds: float = 60.0,
    restart: bool = False,
    threads: bool = False,
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
        timeout_seconds: Most that a constructor, a reset or a step in processes may take.
        restart: Replace an environment that raises, and in a process one that hangs or ends it;
            its row of that step is not `valid`. Needs an id, or a function that makes one.
        threads: Step each environment in a thread, which pays where a step waits.

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
        restart=restart,
        threads=threads,
    )[0]


def make_host_groups(
    env: GymSource,
    num_envs: int | None = None,
    groups: int = 2,
    *,
    otherwise: int = 1,
    seed: int = 0,
    async_envs: bool = False,
    masks: bool = False,
    timeout_seconds: float = 60.0,
    restart: bool = False,
    first: int = 0,
    threads: bool = False,
) -> list[HostEnv]:
    """The environments of `make_host_env` in groups: one can step while the agent acts for another.

    An environment has the same seed as in one group. Only environments in their own processes
    gain from groups, so without `async_envs`, or for a vector environment, there is one.

    Args:
        env: As for `make_host_env`, as are all arguments that are not named here.
        num_envs: Environments in all groups together; None takes those of a vector environment, one
            of an environment that exists, and otherwise `otherwise`.
        groups: Most groups to make; there are fewer where so many could not be equally large.
        otherwise: See `num_envs`.
        seed: Seed.
        async_envs: Every environment has its own process.
        masks: Look for action masks.
        timeout_seconds: A limit for processes.
        restart: Replace environments that fail.
        first: Environments before these, which others make: their seeds are left out.
        threads: Each steps in a thread.

    Returns:
        The groups, equally large, in the order of their environments.
    """
    for setting, value in (("num_envs", num_envs), ("groups", groups)):
        if value is not None and (not isinstance(value, int) or value < 1):
            raise ValueError(f"{setting} is {value!r}, expected an integer of at least 1.")
    count = num_envs or otherwise
    options = (groups, seed, masks, timeout_seconds, restart, first, threads)
    request = _Request(num_envs, count, *options)
    if isinstance(env, str):
        spec = registered_spec(env)
        if async_envs:
            task = WorkerTask(env_factory(spec), env, asks_mask=masks)
            description = _describe(task, request, lambda error: creation_error(spec, error))
            if description is not None:
                return _process_groups(task.make, description, env, request)
        return [_sequential_from_id(env, spec, request)]
    if isinstance(env, VectorEnv | gymnasium.Env):
        if async_envs:
            raise ValueError(
                f"async_envs needs to make {_name(env)} in other processes, where an environment "
                "that exists cannot move. What works: a function, as in env=lambda: MyEnv()."
            )
        return [_from_instance(env, request)]
    if callable(env):
        given_name = getattr(env, "env_name", None)
        if async_envs:
            task = WorkerTask(env, FACTORY, asks_mask=masks)
            description = _describe(task, request, _factory_fault)
            if description is not None:
                return _process_groups(env, description, given_name or description.name, request)
        return [_from_factory(env, given_name, request)]
    if isinstance(env, TensorEnvironment):
        raise ValueError(
            f"{env.spec.name} is written in tensor code, and so runs in the device loop only; "
            f"on the host works {_ACCEPTED}."
        )
    raise ValueError(f"env is {env!r}, a {type(env).__name__}; expected {_ACCEPTED}.")


def _sequential_from_id(name: str, spec: RegisteredSpec, request: _Request) -> SequentialEnvs:
    """Environments of an id; `SequentialEnvs` does the work of Gymnasium's outermost wrappers.

    Nobody else holds a `TimeLimit` wrapper that then counts no steps.
    """
    limits: list[int | None] = []

    def make() -> gymnasium.Env:
        env, limit = make_env(spec), None
        if type(env) is gymnasium.wrappers.TimeLimit and env.spec is not None:
            limit, env = env.spec.max_episode_steps, env.env
            if type(env) is gymnasium.wrappers.OrderEnforcing:
                env = env.env
        limits.append(limit)
        return env

    envs = [make() for _ in range(request.count)]
    return _sequential(envs, name, spec, request, make, time_limit=limits[-1])


def _from_instance(env: GymEnv, request: _Request) -> HostEnv:
    name = _name(env)
    if isinstance(env, VectorEnv):
        return _vector(env, name, request, owned=False)
    if request.restart:
        raise ValueError(_no_restart(name, "one environment that exists"))
    if request.num_envs not in (None, 1):
        raise ValueError(
            f"num_envs is {request.num_envs}, but {name} is one environment. What works: a "
            "function that can make more, as in env=lambda: MyEnv(), or num_envs=1."
        )
    return _sequential([env], name, env.spec, request)


def _from_factory(make: EnvFactory, name: str | None, request: _Request) -> HostEnv:
    def make_one() -> gymnasium.Env:
        return cast(gymnasium.Env, _call_factory(make))

    first = _call_factory(make)
    name = name or _name(first)
    if isinstance(first, VectorEnv):
        return _vector(first, name, request, owned=True)
    envs = [first, *(make_one() for _ in range(request.count - 1))]
    if len({id(env) for env in envs}) < len(envs):
        raise ValueError(
            f"the function given as env returned the same {name} twice; for "
            f"num_envs={len(envs)} it must make a new one at every call."
        )
    return _sequential(envs, name, first.spec, request, make_one)


def _call_factory(make: EnvFactory) -> GymEnv:
    try:
        env = make()
    except (Exception, SystemExit) as error:
        if isinstance(make, WrappedSource) and isinstance(error, ValueError | EnvironmentFault):
            raise
        raise _factory_fault(RemoteError.of(error)) from error
    if not isinstance(env, VectorEnv | gymnasium.Env):
        raise ValueError(
            f"the function given as env returned {env!r}, a {type(env).__name__}; expected a "
            "gymnasium.Env or a gymnasium.vector.VectorEnv."
        )
    return env


def _factory_fault(error: RemoteError) -> EnvironmentFault:
    return EnvironmentFault(f"{FACTORY} raised {error.kinds[0]}: {error.text}")


def _no_restart(name: str, what: str) -> str:
    return (
        f"on_env_fault is 'restart', but {name} is {what}, which cannot be made anew. What works: "
        "a Gymnasium id or a function that makes one environment, or on_env_fault='stop'."
    )


def _sequential(
    envs: list[gymnasium.Env],
    name: str,
    known_spec: RegisteredSpec | None,
    request: _Request,
    make: Callable[[], gymnasium.Env] | None = None,
    *,
    time_limit: int | None = None,
) -> SequentialEnvs:
    """The adapter of environments in this process, which it owns if it could `make` others."""
    seeds = request.seeds(len(envs))
    source = first_mask_source(envs[0], name) if request.masks else None
    mask = _mask(source, getattr(envs[0], "action_space", None), name)

    def complete(env: gymnasium.Env) -> gymnasium.Env:
        return env if mask is None else MaskedObservation(env, *mask, name)

    envs = [complete(env) for env in envs]
    if request.restart and make is not None:
        make_one, restarts = make, Restarts(name, seeds)
        replaceable = [
            Replaceable(env, lambda: complete(make_one()), restarts, index)
            for index, env in enumerate(envs)
        ]
        return RestartingEnvs(replaceable, name, known_spec, seeds, restarts, time_limit)
    adapter: type[SequentialEnvs] = SingleEnv if len(envs) == 1 else SequentialEnvs
    if request.threads and len(envs) > 1:
        from kytolly.environment.gym.threads import ThreadedEnvs as adapter
    owned = make is not None
    return adapter(envs, name, known_spec, seeds, time_limit=time_limit, owned=owned)


def _vector(env: VectorEnv, name: str, request: _Request, *, owned: bool) -> HostVector:
    if request.restart:
        raise ValueError(_no_restart(name, "a vector environment"))
    if request.num_envs not in (None, env.num_envs):
        raise ValueError(
            f"num_envs is {request.num_envs}, but the vector environment {name} has {env.num_envs} "
            f"environments. What works: num_envs={env.num_envs}, or a vector environment of "
            f"{request.num_envs}."
        )
    known_spec = _spec_of(env)
    source = first_mask_source(env, name, vector_mask_source) if request.masks else None
    mask = _mask(source, getattr(env, "single_action_space", None), name)
    if mask is not None:
        env = MaskedVector(env, autoreset_mode(env, name), *mask, name)
    seeds, limit = request.seeds(env.num_envs), request.timeout_seconds
    return HostVector(env, name, known_spec, seeds, owned=owned, timeout_seconds=limit)


def _describe(
    task: WorkerTask, request: _Request, fault_of: Callable[[RemoteError], Exception]
) -> EnvDescription | None:
    """The description of an environment in a process; None: it is not a single environment."""
    try:
        return describe(task, request.timeout_seconds)
    except WorkerFault as fault:
        if fault.raised is None:
            raise
        if EnvironmentFault.__name__ in fault.raised.kinds:
            raise EnvironmentFault(fault.raised.text) from fault.__cause__
        raise fault_of(fault.raised) from fault.__cause__
    except Exception as error:
        raise EnvironmentFault(
            f"{task.name} cannot run in its own processes, {type(error).__name__}: {error}"
        ) from error


def _process_groups(
    make: EnvFactory, description: EnvDescription, name: str, request: _Request
) -> list[HostEnv]:
    """Groups of environments with a process each."""
    space, action_space = description.observation_space, description.action_space
    mask = _mask(description.mask, action_space, name)
    if mask is not None:
        space = masked_space(space, mask[1])
    description = description._replace(name=name, observation_space=space)
    # Refuses what no process could share.
    observation_form(space, name, ActionForm(action_space, name).space)
    seeds, limit = request.seeds(request.count), request.timeout_seconds
    groups = next(count for count in range(request.groups, 0, -1) if len(seeds) % count == 0)
    size = len(seeds) // groups
    task = WorkerTask(make, name, count=len(seeds), mask=mask)
    vectors: list[ProcessVector] = []
    envs: list[HostEnv] = []
    try:
        for first in range(0, len(seeds), size):
            share = seeds[first : first + size]
            restarts = Restarts(name, share) if request.restart else None
            places = range(first, first + size)
            vector = ProcessVector(task, description, places, limit, restarts)
            vectors.append(vector)
            envs.append(
                HostVector(vector, name, description.known_spec, share, timeout_seconds=limit)
            )
        return envs
    except BaseException:
        for vector in vectors:
            vector.close()
        raise


def _mask(
    source: str | None, action_space: spaces.Space | None, name: str
) -> tuple[str, int] | None:
    """The place of action masks, and their length; None where `obs` is the only place."""
    if source is None:
        return None
    action = ActionForm(action_space, name).space
    if isinstance(action, Box):
        raise ValueError(
            f"{name} gives action masks ({source}), but its actions are a Box, of which a mask "
            "cannot forbid any number. What works: choose among a grid of actions with "
            "gymnasium.wrappers.DiscretizeAction, or give no mask."
        )
    return source, num_choices(action)


def _name(env: GymEnv) -> str:
    spec = _spec_of(env)
    return spec.id if spec is not None else type(env.unwrapped).__name__


def _spec_of(env: GymEnv) -> RegisteredSpec | None:
    if env.spec is None and isinstance(env.unwrapped, SyncVectorEnv):
        return env.unwrapped.envs[0].spec
    return env.spec
