"""A trained run as an agent again: `kytolly.load`."""

from __future__ import annotations

import os
from pathlib import Path

from kytolly.machine.facts import require_tensorflow_backend

require_tensorflow_backend()

# ruff: noqa: E402  Keras reads its backend when it is imported
import keras

from kytolly.agent.algorithms import part, part_for
from kytolly.agent.inference import InferencePolicy
from kytolly.agent.networks import check_network
from kytolly.config.run import RunConfig
from kytolly.config.words import path_text
from kytolly.deployment.trained_run import read_run
from kytolly.environment.saved_spec import spec_from_dict, state_units
from kytolly.environment.spec import EnvSpec
from kytolly.policy.action_values import reward_scale
from kytolly.record.checkpoint import BEST, FOLDER, checkpoints, is_finite
from kytolly.record.network_file import load_network, take_checkpoint_weights
from kytolly.record.saved_run import SavedConfig, SavedRun


class LoadedAgent(InferencePolicy):
    """An agent with the weights of a run: `act`, `values`, `q_values`, `log_prob` and others.

    Args:
        network: Built Keras model [B, *obs] -> params [B, P], or a pair of params and values [B],
            with the weights. Of a Dict observation it gets the dict without its `action_mask`.
        cfg: The run's config.
        env_spec: The spec of the environment that trained it, without limits and thresholds of
            episodes.
        path: The run's folder.

    Attributes:
        distribution: Reads the params.
        obs_spec: Shape and dtype of one observation, or a dict of them.
        env_name: Name of the environment that trained it.
    """

    def __init__(self, network: keras.Model, cfg: RunConfig, env_spec: EnvSpec, path: Path):
        distribution = part(cfg.algorithm, "policy").distribution_for(cfg, env_spec)
        exploration = part_for(cfg, "exploration")(cfg, distribution)
        scale = reward_scale(cfg, network)
        super().__init__(network, distribution, env_spec, exploration, reward_scale=scale)
        self.cfg = cfg
        self.env_name = env_spec.name
        self.env_spec = env_spec
        self.path = path

    def __repr__(self) -> str:
        return f"<LoadedAgent {self.cfg.algorithm} of {self.env_name} from {self.path}>"


def load(run: str | os.PathLike[str], weights: str | int = "best") -> LoadedAgent:
    """The agent of a run's folder, without its environment and without anything that trains.

    A network class of your own must be registered with Keras first, by importing what defines it.

    Args:
        run: The run's folder, or a name in the zoo, such as zoo:ppo/CartPole-v1.
        weights: "best", those of the best evaluation; "last", those of the newest checkpoint; or
            the env steps of a checkpoint, as in `checkpoints/ckpt-20000.json`.

    Raises:
        ValueError: The folder is no run of an agent, or lacks these weights; the message says what
            was found, what was expected and what to do.
    """
    folder, saved, cfg = read_run(run)
    if weights == "best":
        network = read_best(folder.path, cfg)
        env_spec = read_spec(folder, saved, cfg)
    else:
        checkpoint = checkpoint_path(folder.path, weights)
        env_spec = read_spec(folder, saved, cfg)
        network = empty_network(folder.path, cfg, env_spec)
        take_checkpoint_weights(network, checkpoint)
    require_same_memory(folder.path, cfg, env_spec)
    check_network(network, cfg, env_spec)
    if not is_finite(network):
        raise ValueError(
            f"the {weights} weights of {path_text(folder.path)} are not finite, expected numbers: "
            "take those of another checkpoint, or train again."
        )
    return LoadedAgent(network, cfg, env_spec, folder.path)


def require_same_memory(path: Path, cfg: RunConfig, env_spec: EnvSpec) -> None:
    """Refuse settings whose memory is not the one that the run was trained with."""
    units = state_units(env_spec)
    if units != cfg.state_units:
        raise ValueError(
            f"{path_text(path)}/config.yaml has memory {cfg.memory or 'none'} and memory_units "
            f"{cfg.memory_units}, a state of {cfg.state_units} numbers, and the run was trained "
            f"with one of {units}, expected the settings that training wrote. Restore memory and "
            "memory_units in it."
        )


def read_best(path: Path, cfg: RunConfig) -> keras.Model:
    """The network in a run's `best.keras`."""
    part(cfg.algorithm, "network")  # its classes must be known before a file is read
    return load_network(path / BEST)


def empty_network(path: Path, cfg: RunConfig, env_spec: EnvSpec) -> keras.Model:
    """A network of the run's architecture, whose weights will be replaced.

    A run that was stopped before its first evaluation has no file that describes it; then it is
    the one that the settings describe.
    """
    if (path / BEST).is_file():
        return read_best(path, cfg)
    from kytolly.agent.make_agent import default_network

    return default_network(cfg, env_spec)


def checkpoint_path(path: Path, weights: str | int) -> str:
    """The checkpoint, without the endings of its files, that `weights` asks for."""
    is_number = isinstance(weights, int) and not isinstance(weights, bool)
    if weights != "last" and not is_number:
        raise ValueError(
            f"weights is {weights!r}, expected 'best', 'last' or the env steps of a checkpoint, as "
            "in weights=20_000."
        )
    saved_steps = checkpoints(path / FOLDER)
    if not saved_steps:
        raise ValueError(
            f"{path_text(path)} has no checkpoints, expected files such as checkpoints/"
            "ckpt-1000.json: training had not begun, or they were removed. Take weights='best'."
        )
    for env_steps, checkpoint in saved_steps:
        if weights in ("last", env_steps):
            return checkpoint
    raise ValueError(
        f"{path_text(path)} has no checkpoint after {weights} env steps, expected one of "
        f"{', '.join(str(env_steps) for env_steps, _ in reversed(saved_steps))}."
    )


def read_spec(folder: SavedRun, saved: SavedConfig, cfg: RunConfig) -> EnvSpec:
    """The spec of the run's environment: from config.yaml or, in old runs, from the environment."""
    if saved.spec is not None:
        return spec_from_dict(saved.environment, saved.spec)
    name = saved.environment
    try:
        from kytolly.environment.registry import tensor_environment

        env = tensor_environment(folder.trusted_environment(saved, trust=False))
        if env is not None and saved.loop != "host":
            return env.spec
        from kytolly.environment.gym.adapter import make_host_env

        masks = cfg.action_masks and part(cfg.algorithm, "policy").takes_masks
        env = make_host_env(name, 1, masks=masks)
        env.close()
        return env.spec
    except Exception as error:
        reason = " ".join(str(error).split())
        raise ValueError(
            f"{path_text(folder.path)} was written before runs recorded what their agents see, and "
            f"its environment {name!r} cannot be made by its name ({reason:.200}). Resume the run "
            "once in Python with that environment, by Trainer(run).train(cfg, env, resume=True)."
        ) from error
