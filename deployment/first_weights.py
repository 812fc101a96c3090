"""The weights of a run as those that another training begins with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import keras

from kytolly.config.words import path_text
from kytolly.deployment.loaded_agent import LoadedAgent, load


def take_run_weights(agent: Any, run: Path) -> None:
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
    for name in getattr(agent.cfg, "units_of_weights", ()):
        found, expected = getattr(loaded.cfg, name, None), getattr(agent.cfg, name)
        if found not in (None, expected):
            raise ValueError(
                f"init is {path_text(run)}, which learned with {name} {found:g}, expected "
                f"{expected:g}: its values would mean something else. Set {name} to {found:g}, or "
                "leave init out."
            )
    agent.policy.set_weights(loaded.network.get_weights())


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


def weight_shapes(network: keras.Model) -> list[tuple[int, ...]]:
    """Shape of every weight in turn."""
    return [tuple(weight.shape) for weight in network.weights]


def activations(network: keras.Model) -> list[str]:
    """Activation of every layer that has one, in turn."""
    found = (getattr(layer, "activation", None) for layer in network._flatten_layers())
    return [getattr(each, "__name__", str(each)) for each in found if callable(each)]
