"""Contract of environments on the host: what they promise, and what one of their steps returns.

Nothing here may load TensorFlow: the processes of environments import this file.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

import gymnasium
import numpy as np
from gymnasium.vector import VectorEnv

from kytolly.environment.faults import EnvironmentFault, display_text
from kytolly.environment.gym.restarts import Replaceable, Restarts

if TYPE_CHECKING:
    from kytolly.environment.spec import EnvSpec

GymEnv: TypeAlias = gymnasium.Env | VectorEnv
EnvFactory: TypeAlias = Callable[[], GymEnv]
GymSource: TypeAlias = str | GymEnv | EnvFactory  # a str is a Gymnasium id
Observation: TypeAlias = np.ndarray | dict[str, np.ndarray]  # [E, *obs] as the agent sees it
MAX_REWARD = float(np.finfo(np.float32).max)


class HostStep(NamedTuple):
    """The outcome of one step of `E` environments on the host, in NumPy arrays.

    The first five columns are those of `TimeStep`. An array may be shared with other columns and
    with other steps (`obs` is `next_obs` where no episode ended): read it, copy it, but do not
    write into it. An observation is an array, or a dict of them where the spec has one.

    Attributes:
        obs: [E, *obs] what the agent acts on next.
        reward: [E] float32.
        terminated: [E] bool, the world ended the episode.
        truncated: [E] bool, a time limit or a fault ended it.
        next_obs: [E, *obs] what the step led to, before any reset. Where an episode ended, an
            `action_mask` in it that forbids everything allows everything: no action follows.
        valid: [E] bool. False for a dummy step: a vector environment (NEXT_STEP) spent it on a
            reset and ignored the action, or an environment failed and was made anew. Such a row is
            no transition and counts for nothing.
        ended: [E] bool, terminated or truncated. In a row that is not valid it says that the
            episode of an environment that failed had ended with the step before.
        episode_return: [E] float32, sum of the rewards of the episode that ended.
        episode_length: [E] int32, its steps. Both are meaningful only where `ended`.
    """

    obs: Any
    reward: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    next_obs: Any
    valid: np.ndarray
    ended: np.ndarray
    episode_return: np.ndarray
    episode_length: np.ndarray


class HostEnv(Protocol):
    """Environments on the host that begin a new episode by themselves.

    Attributes:
        spec: What one environment shows and accepts.
        num_envs: Number of environments, `E`.
        has_dummy_steps: Some steps may be no transitions; else `valid` is always True.
        given: One of the environments, or their vector, to look at; None where it is in processes.
        restarts: Counts the environments that were made anew; None where a fault is raised.
    """

    spec: EnvSpec
    num_envs: int
    has_dummy_steps: bool
    given: GymEnv | Replaceable | None
    restarts: Restarts | None

    def reset(self, seed: int | None = None) -> Any:
        """Begin an episode in every environment; observations [E, *obs], or a dict of them.

        The first call seeds every environment, later ones go on with its own generator, or with
        one that follows from `seed`.
        """
        ...

    def step(self, action: np.ndarray) -> HostStep:
        """Step every environment with its `action`: `begin_step` and `finish_step` in one.

        Args:
            action: [E] integers for Discrete, [E, D] integers for MultiDiscrete, both from 0;
                [E, D] float32 within the bounds for Box.
        """
        ...

    def begin_step(self, action: np.ndarray) -> None:
        """Give every environment its `action`; those in processes work until `finish_step()`."""
        ...

    def finish_step(self) -> HostStep:
        """Wait for the step that `begin_step()` began."""
        ...

    def get_state(self) -> dict[str, Any]:
        """Everything that the next step depends on, for `environment.gym.saved_state`."""
        ...

    def set_state(self, state: dict[str, Any]) -> None:
        """Go on from there; the environments themselves have been restored."""
        ...

    def close(self) -> None:
        """Close the environments, unless the caller made them."""
        ...


def environment_seeds(seed: int, count: int) -> list[int]:
    """One seed for each environment; a larger `count` keeps the first ones."""
    return np.random.SeedSequence(seed).generate_state(count).tolist()


def require_reward(reward: object, name: str, what: str = "the reward") -> None:
    """Refuse what is not one finite number that float32 can hold.

    Raises:
        EnvironmentFault: With the reward in its message.
    """
    try:
        array = np.asarray(reward)
        usable = array.shape == () and array.dtype.kind in "biufO"
        if usable and abs(float(array)) <= MAX_REWARD:
            return
    except (TypeError, ValueError, OverflowError):
        pass
    advice = " Return reward.item()." if getattr(reward, "shape", ()) == (1,) else ""
    raise EnvironmentFault(
        f"{name} returned {what} {display_text(reward)}{shape_text(reward)}, expected one finite "
        f"number of at most {MAX_REWARD:.2g}, the largest float32.{advice}"
    )


def shape_text(value: object) -> str:
    """The shape of an array that should be a number, for a message; nothing for other values."""
    shape = getattr(value, "shape", ())
    return f", an array of shape {shape}" if shape else ""


def done_flags(terminated: object, truncated: object, name: str) -> tuple[bool, bool]:
    """The two as bools, where an environment says that its episode is over: "False" is true.

    Raises:
        EnvironmentFault: One is neither a bool nor a number 0 or 1.
    """
    for which, value in (("terminated", terminated), ("truncated", truncated)):
        if type(value) not in (bool, np.bool_):
            array = np.asarray(value)
            usable = array.size == 1 and array.dtype.kind in "biuf"
            if not usable or array.item() != bool(value):  # [False] is true
                raise EnvironmentFault(
                    f"{name} returned {which}={display_text(value)}, expected a bool."
                )
    return bool(terminated), bool(truncated)
