"""The process of one environment. Nothing here may load TensorFlow."""

from __future__ import annotations

import copy
import json
import os
import signal
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection
from multiprocessing.sharedctypes import SynchronizedArray
from typing import Any, NamedTuple, TypeAlias, TypeVar, cast

import gymnasium
from gymnasium.envs.registration import EnvSpec as RegisteredSpec
from gymnasium.vector.utils import write_to_shared_memory

from kytolly.environment.faults import EnvironmentFault, RemoteError, one_line, place_text
from kytolly.environment.gym.masks import MaskedObservation, mask_source
from kytolly.environment.gym.saved_state import restore_state, saved_state
from kytolly.environment.gym.stacks import STACK, is_stack
from kytolly.environment.gym.step import EnvFactory, GymEnv, done_flags
from kytolly.environment.signals import STOP_SIGNALS

EnvT = TypeVar("EnvT", gymnasium.Env, gymnasium.vector.VectorEnv)
BEGUN, DONE, RAISED = "begun", "done", "raised"  # kinds of messages


# As `gymnasium.vector.utils.create_shared_memory` makes it.
SharedMemory: TypeAlias = dict[str, Any] | tuple[Any, ...] | SynchronizedArray


class WorkerTask(NamedTuple):
    """The environment that a process makes and serves.

    Attributes:
        make: Makes the environment.
        name: What to call it in messages.
        index: Its place among all environments of its kind.
        count: How many those are.
        mask: Where to look for action masks, and their length.
        describes: Answer with an `EnvDescription` and end.
        asks_mask: Say in the description where the environment has action masks.
    """

    make: EnvFactory
    name: str
    index: int = 0
    count: int = 1
    mask: tuple[str, int] | None = None
    describes: bool = False
    asks_mask: bool = False


class EnvDescription(NamedTuple):
    """An environment's spaces and names, as another process can hold them."""

    name: str
    observation_space: Any
    action_space: Any
    known_spec: RegisteredSpec | None
    mask: str | None


def run_worker(
    task_of: Callable[[], WorkerTask],
    pipe: Connection,
    buffer: SharedMemory | None,
    slot: int,
    variables: Mapping[str, str | None],
) -> None:
    """Serve one environment after the other until the other end closes.

    Args:
        task_of: Gives the first task.
        pipe: Commands come in, (kind, payload) go out.
        buffer: Shared memory of the observations of several environments.
        slot: Where this one writes.
        variables: Of the user's environment, for programs that an environment starts.
    """
    set_variables(variables)
    # A terminal sends its signals to these processes, too: they end when the run closes them.
    for stop in STOP_SIGNALS:
        signal.signal(stop, signal.SIG_IGN)
    try:
        env: GymEnv | None = None
        command = "make"
        try:
            while command == "make":
                pipe.send((BEGUN, None))
                task = task_of()
                env = task.make()
                if task.describes:
                    pipe.send((DONE, env_description(env, task)))
                    return
                if serve(cast(gymnasium.Env, env), task, pipe, buffer, slot) != "release":
                    return
                released, env = env, None
                released.close()
                del released  # nothing of it stays while the process waits
                pipe.send((DONE, None))
                command, task_of = pipe.recv()
        except EOFError:
            pass
        except BaseException as error:
            pipe.send((RAISED, RemoteError.of(error)))
        finally:
            if isinstance(env, gymnasium.Env | gymnasium.vector.VectorEnv):
                env.close()
    except BaseException:  # nobody listens any more, or close() raised: say nothing
        return


def set_variables(values: Mapping[str, str | None]) -> None:
    """Set environment variables; None removes one."""
    for name, value in values.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def env_description(env: GymEnv, task: WorkerTask) -> EnvDescription | None:
    """The description of an environment; None for what is not a single environment."""
    if not isinstance(env, gymnasium.Env):
        return None
    spec, known = env.spec, None
    if spec is not None:  # the rest may not leave the process
        known = RegisteredSpec(
            spec.id,
            reward_threshold=spec.reward_threshold,
            max_episode_steps=spec.max_episode_steps,
            additional_wrappers=(STACK,) if any(map(is_stack, spec.additional_wrappers)) else (),
        )
    return EnvDescription(
        spec.id if spec is not None else type(env.unwrapped).__name__,
        getattr(env, "observation_space", None),
        getattr(env, "action_space", None),
        known,
        first_mask_source(env, task.name) if task.asks_mask else None,
    )


def first_mask_source(
    env: EnvT, name: str, source: Callable[[EnvT], str | None] = mask_source
) -> str | None:
    """`mask_source`, with a fault that says why the environment was reset; None without a space."""
    of_one = "single_" if isinstance(env, gymnasium.vector.VectorEnv) else ""
    if not isinstance(getattr(env, f"{of_one}observation_space", None), gymnasium.Space):
        return None
    try:
        return source(env)
    except EnvironmentFault as fault:
        raise EnvironmentFault(f"{name}: {fault}") from fault.__cause__
    except Exception as error:
        raise EnvironmentFault(
            f"{name} raised {type(error).__name__} in a first reset(), which was to show whether "
            f"its info has an action mask: {error}{place_text(error)}."
        ) from error


def serve(
    env: gymnasium.Env, task: WorkerTask, pipe: Connection, buffer: SharedMemory | None, slot: int
) -> str:
    """Do what the commands say, until one that ends the environment; returns that one."""
    if task.mask is not None:
        where = f" for environment {task.index} of {task.count}"
        env = MaskedObservation(env, *task.mask, task.name, where)
    space, name = env.observation_space, f"environment {task.index} of {task.name}"
    pipe.send((DONE, (space, env.action_space)))
    while True:
        command, given = pipe.recv()
        answer: Any = None
        if command == "step":
            obs, reward, terminated, truncated, _ = env.step(given)
            terminated, truncated = done_flags(terminated, truncated, name)
            answer = reward, terminated, truncated
            if terminated or truncated:
                # The end is told before the reset, so that a fault in reset() cannot lose it.
                pipe.send((DONE, (*answer, copy.deepcopy(obs))))
                obs, _ = env.reset()
                answer = None
            write_to_shared_memory(space, slot, obs, buffer)
        elif command == "reset":
            obs, _ = env.reset(seed=given)
            write_to_shared_memory(space, slot, obs, buffer)
        elif command == "state":
            answer = state_or_reason(env)
        elif command == "restore":
            answer = reason_not_restored(env, given)
        else:
            return command
        pipe.send((DONE, answer))


def state_or_reason(env: gymnasium.Env) -> tuple[str, str | None]:
    """The saved state as JSON, and the reason where there is none."""
    try:
        return json.dumps(saved_state(env)), None
    except Exception as reason:
        return "", str(reason)


def reason_not_restored(env: gymnasium.Env, text: str) -> str | None:
    """Restore a saved state; returns why that failed, if it did."""
    try:
        restore_state(env, json.loads(text))
    except Exception as reason:
        return one_line(f"{type(reason).__name__}: {reason}")
    return None
