"""Observations to compare an export on: from playing, or drawn where nothing can be played."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import cast

import gymnasium
import numpy as np
import tensorflow as tf
from gymnasium.vector import VectorEnv

from kytolly.agent.acting import HostActor, HostObs
from kytolly.deployment.act_function import ActingParts, rows
from kytolly.environment.faults import EnvironmentFault
from kytolly.environment.gym.adapter import make_host_env
from kytolly.environment.gym.remembering import remembering
from kytolly.environment.gym.step import GymSource, HostEnv
from kytolly.environment.gym.wrapped import wrapped_source
from kytolly.environment.mask import ACTION_MASK, MASKED_LOGIT

NUM_ENVS = 8


def make_playground(parts: ActingParts, env: GymSource | None, seed: int) -> HostEnv | str:
    """Environments for an agent, or why there are none.

    Args:
        parts: The agent's.
        env: What makes an environment; None takes the name of the agent's, unless that imports a
            module.
        seed: Of the episodes.

    Raises:
        ValueError: `env` was given, and does not fit.
    """
    name = parts.env_name
    if env is None and (":" in name or parts.cfg.wrappers):
        modules = ", ".join([name] * (":" in name) + list(parts.cfg.wrappers or ()))
        return f"{modules} imports a module, and env was not given"
    exists = isinstance(env, gymnasium.Env | VectorEnv)  # and cannot be made again
    try:
        source = wrapped_source(name, parts.cfg.env_kwargs, ()) if env is None else env
        num_envs = None if exists else NUM_ENVS
        made = make_host_env(source, num_envs, seed=seed, masks=parts.has_mask)
        playground = remembering(made, parts.cfg.state_units, parts.cfg.memory_inputs)
    except (ValueError, EnvironmentFault) as error:
        if env is not None:
            raise
        return f"{name} cannot be made ({str(error).split('. ')[0]})"
    obs_spec = playground.spec.obs
    if obs_spec == parts.obs_spec:
        return playground
    playground.close()
    raise ValueError(
        f"the environment shows {obs_spec}, expected what the agent was trained on: "
        f"{parts.obs_spec}. Give the environment of the run by env."
    )


def play_observations(parts: ActingParts, env: HostEnv, count: int, seed: int) -> HostObs:
    """[count, *obs] that an agent meets: half of the environments act greedily, half nearly so.

    What is added to the params of the other half is as large as they differ among themselves, so
    that observations lie beside an agent's usual path too. No forbidden action is taken.
    """
    actor = HostActor(parts.network, parts.distribution, parts.obs_spec)
    rng = np.random.default_rng(seed)
    batches = []
    obs = env.reset()
    for _ in range(-(-count // env.num_envs)):
        batches.append(obs)
        params = actor.params(obs)
        allowed = params[params > MASKED_LOGIT / 2]
        noise = rng.normal(0.0, allowed.std() + 1e-3, params.shape)
        noise[: env.num_envs // 2] = 0.0
        raw = parts.distribution.host_mode((params + noise).astype(np.float32))
        obs = env.step(actor.to_env(raw, obs)).obs
    if isinstance(obs, dict):
        entries = {name: np.concatenate([batch[name] for batch in batches]) for name in obs}
        return rows(entries, slice(count))
    return np.concatenate(batches)[:count]


def random_observations(parts: ActingParts, count: int, seed: int) -> HostObs:
    """[count, *obs] at random: numbers as the network's statistics say, all else evenly."""
    rng = np.random.default_rng(seed)
    spec, network = parts.obs_spec, parts.network
    layers = [getattr(network, name, None) for name in ("torso", "features")]
    normalizers: dict = next(filter(None, (getattr(x, "normalizers", None) for x in layers)), {})
    counts = {name: encoding.counts for name, encoding in parts.encodings}

    def draw(name: str, entry: tf.TensorSpec) -> np.ndarray:
        shape = cast(tuple[int, ...], (count, *entry.shape))
        dtype = entry.dtype.as_numpy_dtype
        if name == ACTION_MASK:
            return random_masks(rng, count, getattr(parts.distribution, "counts", shape[1:]))
        if counts.get(name):
            ones = [np.eye(size)[rng.integers(0, size, count)] for size in counts[name]]
            return np.concatenate(ones, axis=-1).astype(dtype)
        if entry.dtype.is_bool or entry.dtype.is_integer:
            return rng.integers(0, 2 if entry.dtype.is_bool else 256, shape).astype(dtype)
        values = rng.normal(size=shape)
        if name in normalizers:
            layer = normalizers[name]
            values = values * np.sqrt(np.asarray(layer.variance)) + np.asarray(layer.mean)
        return values.astype(dtype)

    if isinstance(spec, Mapping):
        return {name: draw(name, entry) for name, entry in spec.items()}
    return draw("", spec)


def random_masks(rng: np.random.Generator, count: int, parts: tuple[int, ...]) -> np.ndarray:
    """[count, A] masks that allow every action half of the time, and one of each part always."""
    masks = [rng.random((count, size)) < 0.5 for size in parts]
    for mask in masks:
        mask[np.arange(count), rng.integers(0, mask.shape[1], count)] = True
    return np.concatenate(masks, axis=-1)


@contextlib.contextmanager
def closing_playground(
    parts: ActingParts, env: GymSource | None, seed: int
) -> Iterator[HostEnv | str]:
    """`make_playground` for a block; environments that were made here are closed after it."""
    playground = make_playground(parts, env, seed)
    try:
        yield playground
    finally:
        if not isinstance(playground, str):
            playground.close()
