"""The weights of a run as those that another training begins with."""

from __future__ import annotations

import itertools
import warnings
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

from kytolly.agent.reward_scale import RewardScale
from kytolly.config.words import path_text
from kytolly.deployment.loaded_agent import LoadedAgent, load
from kytolly.record.checkpoint import DAMAGE, FOLDER, check_files, checkpoints
from kytolly.record.files import path_without_pattern

UNIT = {"reward_scale": 1.0, "normalize_rewards": False}  # of algorithms without such a setting
VALUE = ".ATTRIBUTES/VARIABLE_VALUE"


def load_initial_weights(agent: Any, run: Path) -> None:
    """Give an agent that has not trained the best weights of a run, statistics included.

    Args:
        agent: `agent.kytolly.KytollyAgent`.
        run: The run's folder.

    Raises:
        ValueError: The run's environment or network is another one.
    """
    loaded = load(run)
    check_same_spec(loaded, agent)
    own = agent.policy.network
    for what in (weight_shapes, activations):
        found, expected = what(loaded.network), what(own)
        if found != expected:
            words = what.__name__.replace("_", " ")
            raise ValueError(
                f"init is {path_text(run)}, whose network has the {words} {found}, expected those "
                f"of this config's network: {expected}. Give the settings of that run, such as "
                "hidden_units, or leave init out."
            )
    check_same_units(loaded, agent.cfg)
    agent.policy.begin_with(loaded.network.get_weights())
    if getattr(agent.cfg, "normalize_rewards", False):
        take_reward_scale(agent.memory.reward_scale, loaded.path)


def check_same_spec(loaded: LoadedAgent, agent: Any) -> None:
    """ValueError where observations or actions are not those of the agent's environment."""
    spec = agent.env_spec
    for what, field in {"observations": "obs", "actions": "action"}.items():
        found, expected = getattr(loaded.env_spec, field), getattr(spec, field)
        if found != expected:
            raise ValueError(
                f"init is {path_text(loaded.path)}, trained on {loaded.env_name} with {what} "
                f"{found}, expected those of {spec.name}: {expected}. Take a run of an environment "
                "with the same spaces, or leave init out."
            )


def check_same_units(loaded: LoadedAgent, cfg: Any) -> None:
    """ValueError where a setting gives the run's values another unit than the config's."""
    names = (getattr(each, "units_of_weights", ()) for each in (loaded.cfg, cfg))
    for name in dict.fromkeys(itertools.chain(*names)):
        found, expected = (getattr(each, name, UNIT.get(name)) for each in (loaded.cfg, cfg))
        if found != expected and None not in (found, expected):
            was, now = setting_text(found), setting_text(expected)
            raise ValueError(
                f"init is {path_text(loaded.path)}, which learned with {name} {was}, expected "
                f"{now}: its values would mean something else. Set {name} to {was}, or leave init "
                "out."
            )


def setting_text(value: Any) -> str:
    """A setting as YAML writes it."""
    return str(value).lower() if isinstance(value, bool) else f"{value:g}"


def take_reward_scale(scale: RewardScale, run: Path) -> None:
    """Go on with the statistics by which a run divided its rewards, as its newest checkpoint has.

    Warns where the run has no checkpoint: its values are then in a unit that nothing tells.
    """
    for _, path in checkpoints(run / FOLDER):
        try:
            check_files(path)
            with path_without_pattern(Path(path).parent) as folder:
                reader = tf.train.load_checkpoint(str(folder / Path(path).name))
                for name in ("mean", "variance", "count"):
                    saved = reader.get_tensor(f"agent/memory/reward_scale/{name}/{VALUE}")
                    getattr(scale, name).assign(saved)
            return
        except (*DAMAGE, ValueError):
            continue
    warnings.warn(
        f"{path_text(run)} learned with normalize_rewards and has no readable checkpoint, which "
        "would say by what its rewards were divided: values are off at first, until the rewards "
        "of this run show it.",
        stacklevel=2,
    )


def weight_shapes(network: keras.Model) -> list[tuple[int, ...]]:
    """Shape of every weight in turn."""
    return [tuple(weight.shape) for weight in network.weights]


def activations(network: keras.Model) -> list[str]:
    """Activation of every layer that has one, in turn."""
    found = (getattr(layer, "activation", None) for layer in network._flatten_layers())
    return [getattr(each, "__name__", str(each)) for each in found if callable(each)]
