"""Atari games as agents learn them: small grey screens in a stack, from the emulator's frames.

Nothing here may load TensorFlow: the processes of environments import this file.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec as RegisteredSpec

NAMESPACE = "ALE/"
INSTALL = 'pip install "kytolly[atari]"'
ENDS_AT_LIFE_LOSS = "terminal_on_life_loss"
_RANGES = {"noop_max": (0, 1_000), "frame_skip": (1, 100), "frame_stack": (1, 16)}
_RANGES["screen_size"] = (16, 160)
_CHOICES = ("mode", "difficulty")
_OURS = {"frameskip": "frame_skip", "obs_type": "", "continuous": "", "sound_obs": ""}


class FrameStack(spaces.Box):
    """The space of stacked frames [H, W, K] uint8, the newest last.

    An episode begins with its first frame `K` times. What is said here reaches the learner with
    the space, also from another process.

    Args:
        shape: (H, W, K).
        clips_rewards: Learning sees the sign of each reward.
    """

    def __init__(self, shape: tuple[int, int, int], clips_rewards: bool):
        super().__init__(0, 255, shape, np.uint8)
        self.frame_stack, self.clips_rewards = shape[-1], clips_rewards


class Atari(gymnasium.Wrapper):
    """A game of the Arcade Learning Environment with the usual preprocessing.

    A step gives the action to the emulator `frame_skip` times. What is seen is the maximum of the
    last two frames, grey, made smaller by the area that each new pixel covers, and stacked. Rewards
    are the game's own: `clips_rewards` of the space tells the learner to clip them.

    Args:
        env: `ale_py.AtariEnv` with a frame skip of 1.
        noop_max: An episode begins with 1 to `noop_max` frames without an action; 0: with none.
        frame_skip: Frames of a step.
        screen_size: Pixels of a side.
        frame_stack: Screens of an observation.
        terminal_on_life_loss: An episode ends with each life; the game goes on in the next one.
        clip_rewards: Learning sees the sign of each reward.

    Source: Mnih et al. 2015, "Human-level control through deep reinforcement learning", Methods;
    Machado et al. 2018, arXiv:1709.06009, for sticky actions and whole games.
    """

    def __init__(
        self,
        env: gymnasium.Env,
        noop_max: int = 30,
        frame_skip: int = 4,
        screen_size: int = 84,
        frame_stack: int = 4,
        terminal_on_life_loss: bool = False,
        clip_rewards: bool = True,
    ):
        super().__init__(env)
        game: Any = env.unwrapped
        self.ale, self.noop_max, self.frame_skip = game.ale, noop_max, frame_skip
        self.ends_at_life_loss = terminal_on_life_loss
        full = len(self.ale.getLegalActionSet()) == game.action_space.n
        self._actions = self.ale.getLegalActionSet() if full else self.ale.getMinimalActionSet()
        shape = (screen_size, screen_size, frame_stack)
        self.observation_space = FrameStack(shape, clip_rewards)
        height, width = self.ale.getScreenDims()
        self._last, self._before = (np.zeros((height, width), np.uint8) for _ in range(2))
        self._rows, self._columns = band(height, screen_size), band(width, screen_size).T
        self._stack = np.zeros(shape, np.uint8)
        self._lives, self._goes_on = 0, False

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Begin an episode: a new game, or the next life where an episode was a life."""
        info: dict[str, Any] = {}
        if self._goes_on and seed is None:
            self.ale.act(self._actions[0])
        if not self._goes_on or seed is not None or self.ale.game_over():
            info = self.env.reset(seed=seed, options=options)[1]
            self._wait()
        self._goes_on, self._lives = False, self.ale.lives()
        self.ale.getScreenGrayscale(self._last)
        self._stack = np.repeat(self._screen()[:, :, np.newaxis], self._stack.shape[2], axis=2)
        return self._stack, info

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Take an action for `frame_skip` frames."""
        act, joystick, reward, sees_two = self.ale.act, self._actions[action], 0.0, False
        for left in range(self.frame_skip - 1, -1, -1):
            reward += act(joystick)
            if self.ale.game_over():
                break
            if left == 1:
                self.ale.getScreenGrayscale(self._before)
                sees_two = True
        self.ale.getScreenGrayscale(self._last)
        if sees_two:
            np.maximum(self._last, self._before, out=self._last)
        stack = np.empty_like(self._stack)
        stack[:, :, :-1], stack[:, :, -1] = self._stack[:, :, 1:], self._screen()
        self._stack = stack
        terminated = self.ale.game_over(with_truncation=False)
        lives = self.ale.lives()
        if self.ends_at_life_loss and lives < self._lives and not self.ale.game_over():
            terminated = self._goes_on = True
        self._lives = lives
        return stack, reward, terminated, self.ale.game_truncated(), {"lives": lives}

    def _wait(self) -> None:
        """Do nothing for a random number of frames."""
        count = 0
        if self.noop_max:
            count = int(self.env.unwrapped.np_random.integers(1, self.noop_max + 1))
        for _ in range(count):
            self.ale.act(self._actions[0])
            if self.ale.game_over():
                self.env.reset()

    def _screen(self) -> np.ndarray:
        """[screen_size, screen_size] uint8 of the last frame."""
        (new_rows, old_rows), old = self._rows.shape, self._columns.shape[0]
        frame = self._last.reshape(-1, old_rows, self._last.shape[1]).astype(np.float32)
        rows = np.empty((len(frame), new_rows, frame.shape[2]), np.float32)
        for row, weights in enumerate(self._rows):
            used = np.flatnonzero(weights)
            total = frame[:, used[0]] * weights[used[0]]
            for place in used[1:]:
                total += frame[:, place] * weights[place]
            rows[:, row] = total
        side = self._stack.shape[0]
        columns = rows.reshape(-1, old).dot(self._columns)
        return np.rint(columns).astype(np.uint8).reshape(side, side)


def band(old: int, new: int) -> np.ndarray:
    """[q, p] float32 shares of `p` old pixels in `q` new ones: the pattern that repeats.

    Each new pixel covers old / new old ones, and is their mean by the area that is covered.
    """
    common = math.gcd(old, new)
    edges = np.arange(new // common + 1) * (old / new)
    places = np.arange(old // common)
    covered = np.minimum(edges[1:, np.newaxis], places + 1) - np.maximum(
        edges[:-1, np.newaxis], places
    )
    return (np.maximum(covered, 0.0) * (new / old)).astype(np.float32)


def make_atari(spec: RegisteredSpec, preprocess: bool = True, **arguments: Any) -> gymnasium.Env:
    """The game of a spec.

    Args:
        spec: What Gymnasium has registered under the game's id.
        preprocess: As `Atari` does; else the game as Gymnasium makes it.
        **arguments: Of `Atari`, and of `ale_py.AtariEnv`.

    Raises:
        ValueError: An argument does not fit.
    """
    if not preprocess:
        return gymnasium.make(spec, disable_env_checker=True, **arguments)
    names = list(inspect.signature(Atari).parameters)[1:]
    wrapped = {name: arguments.pop(name) for name in names if name in arguments}
    check_arguments(spec.id, wrapped, arguments)
    from ale_py import ALEInterface, LoggerMode  # type: ignore[import-not-found]

    ALEInterface.setLoggerMode(LoggerMode.Error)  # else each game greets on standard error
    try:
        game = gymnasium.make(spec, disable_env_checker=True, frameskip=1, **arguments).unwrapped
    except RuntimeError as error:  # all that the emulator says of a mode that it lacks
        chosen = {name: arguments.pop(name) for name in _CHOICES if name in arguments}
        if not chosen:
            raise
        ale = gymnasium.make(spec, disable_env_checker=True, **arguments).unwrapped.ale  # type: ignore[attr-defined]
        raise ValueError(
            f"{spec.id} got {chosen}, expected one of the modes {ale.getAvailableModes()} and of "
            f"the difficulties {ale.getAvailableDifficulties()}. Change them."
        ) from error
    except OSError as error:
        raise ValueError(
            f"{spec.id} has no ROM that can be read ({error}), expected that of the package ale-py."
            f" Install it again, {INSTALL} --force-reinstall, or mend ALE_ROMS_DIR."
        ) from error
    return Atari(game, **wrapped)


def check_arguments(name: str, wrapped: Mapping[str, object], others: Mapping[str, object]) -> None:
    """Refuse arguments of `Atari` that mean nothing, and those of the game that it replaces."""
    for argument, value in wrapped.items():
        least, most = _RANGES.get(argument, (0, 1))
        is_flag = argument not in _RANGES
        wanted = "true or false" if is_flag else f"a whole number from {least} to {most:,}"
        fits = isinstance(value, bool) if is_flag else type(value) is int and least <= value <= most
        if not fits:
            raise ValueError(f"{argument} of {name} is {value!r}, expected {wanted}.")
    share = others.get("repeat_action_probability", 0.0)
    if isinstance(share, bool) or not isinstance(share, int | float) or not 0.0 <= share <= 1.0:
        raise ValueError(
            f"repeat_action_probability of {name} is {share!r}, expected a number from 0 to 1."
        )
    if not isinstance(others.get("full_action_space", True), bool):
        raise ValueError(
            f"full_action_space of {name} is {others['full_action_space']!r}, expected true or "
            "false."
        )
    for argument in _OURS.keys() & others.keys():
        instead = f" Give {_OURS[argument]}, or set" if _OURS[argument] else " Set"
        raise ValueError(
            f"{argument} of {name} is {others[argument]!r}, which the preprocessing decides."
            f"{instead} preprocess to false."
        )


def whole_games(name: object, arguments: Mapping[str, object]) -> dict[str, object]:
    """The arguments of an environment in which agents play, and do not learn."""
    is_game = isinstance(name, str) and name.rpartition(":")[2].startswith(NAMESPACE)
    return {k: v for k, v in arguments.items() if not (is_game and k == ENDS_AT_LIFE_LOSS)}
