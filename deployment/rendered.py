"""Greedy episodes in an environment that shows them: as frames of a video, or in a window."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import gymnasium
import numpy as np

from kytolly.environment.faults import EnvironmentFault, RemoteError, close_or_warn, display_text
from kytolly.environment.gym.adapter import make_host_env
from kytolly.environment.gym.make import creation_error, make_env, registered_spec
from kytolly.environment.gym.remembering import remembering
from kytolly.environment.gym.wrapped import WrappedSource
from kytolly.environment.memory import has_memory
from kytolly.environment.registry import TENSOR_ENVIRONMENTS
from kytolly.environment.spec import ACTION_MASK

if TYPE_CHECKING:
    from kytolly.deployment.loaded_agent import LoadedAgent

FRAMES, WINDOW = "rgb_array", "human"  # Gymnasium's render modes
MAX_FPS = 1_000
USUAL_FPS = 30  # where an environment does not say
NO_SOUND = {"SDL_AUDIODRIVER": "dummy"}  # pygame complains where there is no loudspeaker
NO_WINDOW = {"SDL_VIDEODRIVER": "dummy"}
# Of Gymnasium's own environments, those that draw with pygame.
DRAWN_BY_PYGAME = tuple(f"gymnasium.envs.{n}" for n in ("classic_control", "box2d", "toy_text"))


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

    def __init__(self, env: gymnasium.Env, show: Callable[[], object]):
        super().__init__(env)
        self._show = show

    def step(self, action: object) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Step, then show."""
        outcome = self.env.step(action)
        self._show()
        return outcome


def make_rendered(
    name: str,
    mode: str,
    arguments: Mapping[str, object] | None = None,
    wrappers: Sequence[str] = (),
) -> gymnasium.Env:
    """The environment of a Gymnasium id in a render mode.

    One in tensor code is the environment that Gymnasium has under the same id.

    Args:
        name: Gymnasium id, or module:id to import it first.
        mode: `FRAMES` or `WINDOW`.
        arguments: Of the environment.
        wrappers: "module:Class" of each, the innermost first.

    Raises:
        ValueError: It is unknown, has no such mode, or needs a package that is not installed.
        EnvironmentFault: It cannot be made for another reason.
    """
    try:
        spec = registered_spec(name)
    except ValueError:
        if name not in TENSOR_ENVIRONMENTS:
            raise
        raise ValueError(
            f"{name} exists as tensor code only, which draws nothing, expected an environment of "
            "Gymnasium: give one with the same observations and actions as --env."
        ) from None
    drawn_by_pygame = str(spec.entry_point).startswith(DRAWN_BY_PYGAME)
    if drawn_by_pygame and importlib.util.find_spec("pygame") is None:
        raise ValueError(
            f"{spec.id} draws with pygame, which is not installed. Install it: "
            'pip install "kytolly[video]".'
        )
    for variable, value in {**NO_SOUND, **(NO_WINDOW if mode == FRAMES else {})}.items():
        os.environ.setdefault(variable, value)
    arguments = dict(arguments or {})
    plain = make_env(spec, **arguments)
    modes = [str(each) for each in plain.metadata.get("render_modes") or ()]
    close_or_warn(plain, spec.id)
    if mode in modes or (mode == WINDOW and FRAMES in modes):  # Gymnasium shows frames in a window
        source = WrappedSource(name, {**arguments, "render_mode": mode}, wrappers)
        return source.whole_games()()
    purpose = "a video" if mode == FRAMES else "a window"
    raise ValueError(
        f"{spec.id} has the render modes {', '.join(modes) or '(none)'}, expected {mode} among "
        f"them, which {purpose} needs. Add it to the environment, or give another one as --env."
    )


def frames_per_second(env: gymnasium.Env) -> float:
    """The env steps that an environment wants to show in a second."""
    fps: Any = env.metadata.get("render_fps")
    is_number = isinstance(fps, (int, float, np.number)) and not isinstance(fps, bool)
    return float(fps) if is_number and 0 < fps <= MAX_FPS else USUAL_FPS


def frame_of(env: gymnasium.Env) -> np.ndarray:
    """The frame that an environment in mode `FRAMES` draws now, [H, W, 3] uint8.

    Raises:
        ValueError: It needs a package that is not installed.
        EnvironmentFault: It fails, or draws something else.
    """
    name = env.spec.id if env.spec is not None else type(env.unwrapped).__name__
    try:
        drawn: Any = env.render()
    except (Exception, SystemExit) as error:
        kinds = [kind.__name__ for kind in type(error).__mro__]
        if env.spec is not None and {"ImportError", "DependencyNotInstalled"} & set(kinds):
            raise creation_error(env.spec, RemoteError.of(error)) from error
        raise EnvironmentFault(
            f"{name} raised {kinds[0]} in render(): {error}. A machine without a display may need "
            "another way to draw, such as MUJOCO_GL=egl for MuJoCo."
        ) from error
    frame: Any = np.asarray(drawn) if drawn is not None else np.empty(0)
    if frame.dtype != np.uint8 or frame.ndim != 3 or frame.shape[2] not in (3, 4) or not frame.size:
        shown = f"{frame.dtype} of shape {frame.shape}" if drawn is not None else "None"
        raise EnvironmentFault(
            f"{name} returned {display_text(shown)} from render(), expected uint8 of shape "
            "(height, width, 3)."
        )
    return np.ascontiguousarray(frame[:, :, :3])


def is_window_closed() -> bool:
    """True where the user has closed the window that pygame shows."""
    pygame = sys.modules.get("pygame")
    if pygame is None or not pygame.display.get_init():
        return False
    return bool(pygame.event.peek(pygame.QUIT))


def play_episodes(
    agent: LoadedAgent, env: gymnasium.Env, episodes: int, seed: int, show: Callable[[], object]
) -> Iterator[Episode]:
    """Play greedily; gives each episode when it has ended.

    Args:
        agent: What plays.
        env: The environment; the caller closes it.
        episodes: How many.
        seed: Seed of the first reset; the following episodes go on with the same random stream.
        show: Called at the begin of each episode and after each of its steps.

    Raises:
        ValueError: The environment's observations or actions are not those of the agent.
    """
    spec = agent.env_spec
    masked = isinstance(spec.obs, dict) and ACTION_MASK in spec.obs
    host = make_host_env(Shown(env, show), seed=seed, masks=masked)
    if has_memory(spec.obs):
        host = remembering(host, agent.cfg.state_units, agent.cfg.memory_inputs)
    shown, trained = (host.spec.obs, host.spec.action), (spec.obs, spec.action)
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
            step = host.step(agent.host_action(obs))
            obs = step.obs
            ended = bool(step.ended[0])
        yield Episode(float(step.episode_return[0]), int(step.episode_length[0]))
