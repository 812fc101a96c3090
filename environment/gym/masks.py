"""Action masks that environments keep beside their observations, made an entry of these.

Nothing here may load TensorFlow: the processes of environments import this file.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv

from kytolly.environment.faults import EnvironmentFault, mask_shape_fault

MASK = "action_mask"  # the key of the info and of the entry that the observations get
METHOD = "action_masks"  # of an environment; stable-baselines3's MaskablePPO calls it, too
OBSERVATION = "observation"  # the entry for what was the whole observation


def mask_source(env: gymnasium.Env) -> str | None:
    """Where an environment says what is allowed: METHOD, or MASK for its info; None: nowhere.

    A Dict observation with a mask in it needs neither. The environment is reset to see its info:
    with a seed, so that nothing is left to chance before the first reset of a run.
    """
    if _has_entry(env.observation_space):
        return None
    if env.has_wrapper_attr(METHOD):
        return METHOD
    return MASK if MASK in env.reset(seed=0)[1] else None


def vector_mask_source(env: VectorEnv) -> str | None:
    """The same of a vector environment; one in processes is asked by making one copy here."""
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
        probe.close()
        if has_method:
            return METHOD
    return MASK if MASK in env.reset(seed=0)[1] else None


class MaskedObservation(gymnasium.Wrapper):
    """Observations with an entry `action_mask`; the last one of an episode allows everything.

    Args:
        env: The environment.
        source: METHOD or MASK.
        size: Length of a mask, `A`.
        name: The environment's name, for messages.
        where: Which copy it is, for messages, where nobody else will say so.
    """

    def __init__(self, env: gymnasium.Env, source: str, size: int, name: str, where: str = ""):
        super().__init__(env)
        self.observation_space = _masked_space(env.observation_space, size)
        self._source, self._size, self._name, self._where = source, size, name, where
        self._ask = env.get_wrapper_attr(METHOD) if source == METHOD else None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        """Begin an episode; the observation has the entry `action_mask`."""
        obs, info = self.env.reset(seed=seed, options=options)
        return _joined(obs, self._mask(info)), info

    def step(self, action: Any) -> Any:
        """Step; the observation has the entry `action_mask`."""
        obs, reward, terminated, truncated, info = self.env.step(action)
        over = terminated or truncated
        mask = np.ones(self._size, np.int8) if over else self._mask(info)
        return _joined(obs, mask), reward, terminated, truncated, info

    def _mask(self, info: dict[str, Any]) -> np.ndarray:
        if self._ask is None and MASK not in info:
            raise EnvironmentFault(_missing(self._name) + self._where)
        mask = info[MASK] if self._ask is None else self._ask()
        return _mask_row(mask, self._size, self._name, self._where)


class MaskedVector(gymnasium.vector.VectorWrapper):
    """The same for a vector environment, in any of Gymnasium's three ways to begin anew.

    Args:
        env: The vector environment.
        mode: What it does at an episode's end.
        source: METHOD or MASK.
        size: Length of a mask, `A`.
        name: The environment's name, for messages.
    """

    def __init__(self, env: VectorEnv, mode: AutoresetMode, source: str, size: int, name: str):
        super().__init__(env)
        self.single_observation_space = _masked_space(env.single_observation_space, size)
        self._mode, self._source, self._size, self._name = mode, source, size, name

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> Any:
        """Begin episodes; the observations have the entry `action_mask`."""
        reset_mask = (options or {}).get("reset_mask")
        others = np.zeros(self.num_envs, bool) if reset_mask is None else ~reset_mask
        obs, info = self.env.reset(seed=seed, options=options)
        return _joined(obs, self._masks(info, others)), info

    def step(self, actions: Any) -> Any:
        """Step; the observations have the entry `action_mask`, and so have the final ones."""
        obs, reward, terminated, truncated, info = self.env.step(actions)
        ended = np.logical_or(terminated, truncated)
        if self._mode is not AutoresetMode.SAME_STEP:
            masks = self._masks(info, ended)
        else:
            masks = self._masks(info, np.zeros_like(ended))
            if "final_obs" in info:
                final_obs = np.full(self.num_envs, None, object)
                for copy in np.flatnonzero(ended):
                    everything = np.ones(self._size, np.int8)
                    final_obs[copy] = _joined(info["final_obs"][copy], everything)
                info = {**info, "final_obs": final_obs}
        return _joined(obs, masks), reward, terminated, truncated, info

    def _masks(self, info: dict[str, Any], unasked: np.ndarray) -> np.ndarray:
        """[E, A] masks; everything is allowed to the `unasked` copies."""
        if self._source == METHOD:
            inner: Any = self.env.unwrapped
            given: Any = inner.action_masks() if hasattr(inner, METHOD) else inner.call(METHOD)
            present = np.ones(self.num_envs, bool)
        else:
            given = info.get(MASK)
            known = np.full(self.num_envs, given is not None)
            present = info.get(f"_{MASK}", known)
        masks = np.ones((self.num_envs, self._size), np.int8)
        for copy in np.flatnonzero(~unasked):
            where = f" for copy {copy} of {self.num_envs}"
            if not present[copy]:
                raise EnvironmentFault(_missing(self._name) + where)
            masks[copy] = _mask_row(given[copy], self._size, self._name, where)
        return masks


def _has_entry(space: spaces.Space) -> bool:
    return isinstance(space, spaces.Dict) and MASK in space.spaces


def _masked_space(space: spaces.Space, size: int) -> spaces.Dict:
    inner = space.spaces if isinstance(space, spaces.Dict) else {OBSERVATION: space}
    return spaces.Dict({**inner, MASK: spaces.MultiBinary(size)})


def _joined(obs: Any, mask: np.ndarray) -> dict[str, Any]:
    return {**(obs if isinstance(obs, dict) else {OBSERVATION: obs}), MASK: mask}


def _mask_row(mask: Any, size: int, name: str, where: str) -> np.ndarray:
    if isinstance(mask, tuple):  # one for each kind, as MultiDiscrete.sample() takes them
        mask = np.concatenate([np.ravel(kind) for kind in mask])
    mask = np.asarray(mask)
    if mask.shape != (size,):
        raise mask_shape_fault(name, mask.shape, (size,), where)
    return mask


def _missing(name: str) -> str:
    return (
        f"{name} returned no info[{MASK!r}] though its episode goes on, and had returned it at "
        "its first reset; expected one with every step"
    )
