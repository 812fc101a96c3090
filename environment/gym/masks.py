"""Action masks that environments give beside their observations become an entry of these.

Nothing here may load TensorFlow: the processes of environments import this file.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv

from kytolly.environment.faults import EnvironmentFault, close_or_warn, display_text
from kytolly.environment.mask import ACTION_MASK

METHOD = "action_masks"  # an environment's method, which sb3-contrib's MaskablePPO calls, too
OBSERVATION = "observation"  # the entry for an observation that was no dict


def mask_source(env: gymnasium.Env) -> str | None:
    """The place of an environment's masks: METHOD, ACTION_MASK (in its info) or None.

    A Dict observation with a mask in it needs neither. The environment is reset to see its info:
    with a seed, so that nothing is left to chance before the first reset of a run.
    """
    if _has_entry(env.observation_space):
        return None
    if env.has_wrapper_attr(METHOD):
        return METHOD
    begun = env.reset(seed=0)
    if not (isinstance(begun, tuple) and len(begun) == 2 and isinstance(begun[1], dict)):
        raise EnvironmentFault(
            f"reset() returned {display_text(begun)}, expected an observation and info, a dict. "
            "Let it end with `return observation, {}`."
        )
    return ACTION_MASK if ACTION_MASK in begun[1] else None


def vector_mask_source(env: VectorEnv) -> str | None:
    """`mask_source` of a vector environment; of one in processes, an environment is made here."""
    if _has_entry(env.single_observation_space):
        return None
    inner: Any = env.unwrapped
    if hasattr(inner, METHOD):
        return METHOD
    if isinstance(inner, SyncVectorEnv) and inner.envs[0].has_wrapper_attr(METHOD):
        return METHOD
    if isinstance(inner, AsyncVectorEnv):
        probe = inner.env_fns[0]()
        has_method = probe.has_wrapper_attr(METHOD)
        close_or_warn(probe, type(inner).__name__)
        if has_method:
            return METHOD
    return ACTION_MASK if ACTION_MASK in env.reset(seed=0)[1] else None


class MaskedObservation(gymnasium.Wrapper):
    """Observations with an entry `action_mask`; that of a terminal state allows everything.

    Args:
        env: The environment.
        source: METHOD or ACTION_MASK.
        size: Length of a mask, `A`.
        name: The environment's name, for messages.
        where: Which environment it is, for messages that would not say so otherwise.
    """

    def __init__(self, env: gymnasium.Env, source: str, size: int, name: str, where: str = ""):
        super().__init__(env)
        self.observation_space = masked_space(env.observation_space, size)
        self._source, self._size, self._name, self._where = source, size, name, where
        self._ask = env.get_wrapper_attr(METHOD) if source == METHOD else None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        """Begin an episode; the observation has the entry `action_mask`."""
        obs, info = self.env.reset(seed=seed, options=options)
        return _with_mask(obs, self._mask(info)), info

    def step(self, action: Any) -> Any:
        """Step; the observation has the entry `action_mask`."""
        obs, reward, terminated, truncated, info = self.env.step(action)
        if terminated or (truncated and not self._knows(info)):
            mask = np.ones(self._size, np.int8)
        else:  # values of what may follow count where time ran out
            mask = self._mask(info)
        return _with_mask(obs, mask), reward, terminated, truncated, info

    def _knows(self, info: dict[str, Any]) -> bool:
        return self._ask is not None or ACTION_MASK in info

    def _mask(self, info: dict[str, Any]) -> np.ndarray:
        if self._ask is None and ACTION_MASK not in info:
            raise EnvironmentFault(_no_mask_message(self._name) + self._where)
        mask = info[ACTION_MASK] if self._ask is None else self._ask()
        return mask_row(mask, self._size, self._name, self._where)


class MaskedVector(gymnasium.vector.VectorWrapper):
    """`MaskedObservation` for a vector environment in any autoreset mode.

    Args:
        env: The vector environment.
        mode: What it does at an episode's end.
        source: METHOD or ACTION_MASK.
        size: Length of a mask, `A`.
        name: The environment's name, for messages.
    """

    def __init__(self, env: VectorEnv, mode: AutoresetMode, source: str, size: int, name: str):
        super().__init__(env)
        self.single_observation_space = masked_space(env.single_observation_space, size)
        self._mode, self._source, self._size, self._name = mode, source, size, name

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        """Begin episodes; the observations have the entry `action_mask`."""
        reset_mask = (options or {}).get("reset_mask")
        others = np.zeros(self.num_envs, bool) if reset_mask is None else ~reset_mask
        obs, info = self.env.reset(seed=seed, options=options)
        return _with_mask(obs, self._masks(info, ~others)), info

    def step(self, actions: Any) -> Any:
        """Step; the observations have the entry `action_mask`, and so have the final ones."""
        obs, reward, terminated, truncated, info = self.env.step(actions)
        ended = np.logical_or(terminated, truncated)
        goes_on = ended & ~terminated  # values of what may follow count where time ran out
        if self._mode is not AutoresetMode.SAME_STEP:
            masks = self._masks(info, ~ended, goes_on)
        else:
            masks = self._masks(info, np.ones_like(ended))
            if "final_obs" in info:
                last = self._final_masks(info.get("final_info"), goes_on)
                final_obs = np.full(self.num_envs, None, object)
                for index in np.flatnonzero(ended):
                    final_obs[index] = _with_mask(info["final_obs"][index], last[index])
                info = {**info, "final_obs": final_obs}
        return _with_mask(obs, masks), reward, terminated, truncated, info

    def _final_masks(self, info: Any, wanted: np.ndarray) -> np.ndarray:
        """[E, A] masks of observations that a reset has replaced; a method knows them no more."""
        if self._source == METHOD or not isinstance(info, dict):
            return np.ones((self.num_envs, self._size), np.int8)
        return self._masks(info, np.zeros_like(wanted), wanted)

    def _masks(
        self, info: dict[str, Any], needed: np.ndarray, wanted: np.ndarray | None = None
    ) -> np.ndarray:
        """[E, A] masks where they are `needed`, and where they are `wanted` and known.

        All others allow everything.
        """
        if self._source == METHOD:
            inner: Any = self.env.unwrapped
            given: Any = inner.action_masks() if hasattr(inner, METHOD) else inner.call(METHOD)
            present = np.ones(self.num_envs, bool)
        else:
            given = info.get(ACTION_MASK)
            known = np.full(self.num_envs, given is not None)
            present = info.get(f"_{ACTION_MASK}", known)
        masks = np.ones((self.num_envs, self._size), np.int8)
        asked = needed if wanted is None else needed | (wanted & present)
        for index in np.flatnonzero(asked):
            where = f" for environment {index} of {self.num_envs}"
            if not present[index]:
                raise EnvironmentFault(_no_mask_message(self._name) + where)
            masks[index] = mask_row(given[index], self._size, self._name, where)
        return masks


def mask_shape_fault(name: str, found: object, expected: object, where: str = "") -> Exception:
    """The fault of an environment whose action mask has another shape than its actions ask for."""
    return EnvironmentFault(
        f"{name} has an action mask of shape {found}{where}, expected {expected}: one number for "
        "each action, 1 where it is allowed and 0 where not, the components of a MultiDiscrete in "
        "a row."
    )


def _has_entry(space: spaces.Space) -> bool:
    return isinstance(space, spaces.Dict) and ACTION_MASK in space.spaces


def masked_space(space: spaces.Space, size: int) -> spaces.Dict:
    """An observation space with an entry for masks of `size` actions."""
    inner = space.spaces if isinstance(space, spaces.Dict) else {OBSERVATION: space}
    return spaces.Dict({**inner, ACTION_MASK: spaces.MultiBinary(size)})


def _with_mask(obs: object, mask: np.ndarray) -> dict[str, Any]:
    return {**(obs if isinstance(obs, dict) else {OBSERVATION: obs}), ACTION_MASK: mask}


def mask_row(mask: object, size: int, name: str, where: str) -> np.ndarray:
    """One mask [A], whose shape is right."""
    if isinstance(mask, tuple):  # one for each component, as MultiDiscrete.sample() takes them
        mask = np.concatenate([np.ravel(part) for part in mask])
    mask = np.asarray(mask)
    if mask.shape != (size,):
        raise mask_shape_fault(name, mask.shape, (size,), where)
    return mask


def _no_mask_message(name: str) -> str:
    return (
        f"{name} returned no info[{ACTION_MASK!r}] though its episode goes on, and had returned it "
        "at its first reset; expected one with every step"
    )
