"""The network of a user, refused where it does not fit."""

from __future__ import annotations

import functools
import re
import tempfile
import warnings
from typing import Any, cast

import keras
import tensorflow as tf

from kytolly.agent.algorithms import part
from kytolly.agent.parts import Model
from kytolly.config.run import RunConfig
from kytolly.environment.mask import without_mask
from kytolly.environment.spec import EnvSpec

DECORATOR = "@keras.saving.register_keras_serializable()"


def custom_network(model: Model, cfg: RunConfig, env_spec: EnvSpec) -> keras.Model:
    """The built network: `model` itself, or what it makes of an `EnvSpec`.

    Raises:
        TypeError: `model` is neither a Keras model nor a function.
        ValueError: The network does not fit the environment or the configuration.
    """
    if not isinstance(model, keras.Model) and not callable(model):
        raise TypeError(
            f"model is {type(model).__name__}, expected a Keras model or a function that makes "
            "one from an EnvSpec."
        )
    if cfg.memory is None:
        network = made_of(model, env_spec)
    else:
        from kytolly.agent.sequences import custom_memory_network

        make = functools.partial(made_of, model)
        network = custom_memory_network(make, cfg, env_spec)
    check_network(network, cfg, env_spec)
    policy = part(cfg.algorithm, "policy")
    layers = network._flatten_layers()
    if policy.has_value and any(isinstance(x, keras.layers.BatchNormalization) for x in layers):
        warnings.warn(
            f"the model {network.name!r} has BatchNormalization, which {cfg.algorithm} calls as in "
            "inference: its statistics stay those of the beginning, because others would change "
            "the probabilities between acting and learning. Take LayerNormalization, or set "
            "normalize_observations and use a model.normalization.RunningNormalization.",
            stacklevel=2,
        )
    has_logits = policy.has_value and not env_spec.has_numbers_as_actions
    if has_logits and cfg.memory is None and are_shares(network(zero_observations(env_spec))[0]):
        warnings.warn(
            f"the model {network.name!r} gives probabilities of actions, expected logits, of which "
            f"{cfg.algorithm} takes the softmax itself: leave it out of the last layer.",
            stacklevel=2,
        )
    if cfg.normalize_observations and not hasattr(network, "update_statistics"):
        raise ValueError(
            f"normalize_observations is set, and the model {network.name!r} has no method "
            "update_statistics(obs): put a model.normalization.RunningNormalization into it and "
            "pass its update() on, or set normalize_observations to false."
        )
    register_classes(network)
    require_savable(network)
    return network


def made_of(model: Model, env_spec: EnvSpec) -> keras.Model:
    """The model, or what a function, or a class, makes of a spec."""
    if isinstance(model, keras.Model):
        return model
    try:
        return model(env_spec)
    except Exception as error:
        if isinstance(model, type):
            error.add_note(
                f"model is the class {model.__name__}, which was called with the EnvSpec alone. "
                f"Give an instance, {model.__name__}(...), if that is not what it expects."
            )
        raise


def register_classes(network: keras.Model) -> None:
    """Register the network's own classes with Keras, as a decorator without arguments does."""
    kinds = {type(layer) for layer in network._flatten_layers()}
    for kind in sorted(kinds, key=lambda kind: kind.__name__):
        known = keras.saving.get_registered_name(kind) != kind.__name__
        if known or kind.__module__.partition(".")[0] == "keras":
            continue
        keras.saving.register_keras_serializable()(kind)
        warnings.warn(
            f"{kind.__name__} is now registered with Keras, under the name Custom>{kind.__name__}. "
            f"To load this run in another program, write {DECORATOR} above the class and import it "
            "there.",
            stacklevel=2,
        )


def require_savable(network: keras.Model) -> None:
    """Save the network and load it again; ValueError where that gives another one, or nothing."""
    with tempfile.TemporaryDirectory(prefix="kytolly-") as folder:
        path = f"{folder}/network.keras"
        try:
            network.save(path)
            copy = cast(keras.Model, keras.models.load_model(path, compile=False))
            same = [w.shape for w in copy.weights] == [w.shape for w in network.weights]
            reason: str | Exception | None = None if same else "the loaded one has other weights"
        except Exception as error:
            reason = error
    if reason is not None:
        name = type(network).__name__
        raise ValueError(
            f"The model {network.name!r} cannot be saved and loaded again "
            f"({_first_sentence(reason)}), so its run could not be used. Give the class {name}, or "
            "the layer that is named, a get_config() that returns every argument of __init__ "
            f"besides super().get_config(), and write {DECORATOR} above it."
        )


def check_network(network: keras.Model, cfg: RunConfig, env_spec: EnvSpec) -> None:
    """Build a network by calling it once; ValueError if its outputs are not what is learned."""
    obs_spec = without_mask(env_spec.obs)
    try:
        output = network(zero_observations(env_spec))
    except Exception as error:
        shapes = tf.nest.map_structure(lambda spec: tuple(spec.shape), obs_spec)
        dtypes = tf.nest.map_structure(lambda spec: spec.dtype.name, obs_spec)
        advice = ""
        if cfg.memory == "model":
            from kytolly.agent.sequences import failed_step

            advice = failed_step(cfg)
        raise ValueError(
            f"The model {network.name!r} fails on a batch of observations of shape {shapes}, "
            f"dtype {dtypes}: {_first_sentence(error)}{advice}"
        ) from error
    output_shapes = tf.nest.map_structure(lambda part: tuple(getattr(part, "shape", ())), output)
    if cfg.memory is not None:
        from kytolly.agent.sequences import without_state

        output_shapes = without_state(output_shapes, network, cfg)
    policy = part(cfg.algorithm, "policy")
    policy.check_network(network, cfg)
    params = (2, policy.distribution_for(cfg, env_spec).num_params)
    if policy.has_value:
        pair = list(output_shapes) if isinstance(output_shapes, (tuple, list)) else []
        fits = len(pair) == 2 and pair[0] == params and pair[1] in ((2,), (2, 1))
        expected = (
            f"a pair: {params}, the parameters of the action distribution of {env_spec.name}, and "
            "(2,), the values. For continuous actions the parameters are the means, then the log "
            "standard deviations."
        )
    else:
        fits = output_shapes == params
        expected = (
            f"{params}: one value for each of the {params[1]} actions of {env_spec.name}. "
            f"Let its last layer be keras.layers.Dense({params[1]})."
        )
    if not fits:
        raise ValueError(
            f"The model {network.name!r} returns shape {output_shapes} for 2 observations, "
            f"expected {expected}"
        )


def zero_observations(env_spec: EnvSpec) -> Any:
    """Two observations of zeros, as a network gets them."""
    obs_spec = without_mask(env_spec.obs)
    return tf.nest.map_structure(lambda spec: tf.zeros([2, *spec.shape], spec.dtype), obs_spec)


def are_shares(params: tf.Tensor) -> bool:
    """True where each row's numbers look like a softmax of several: they sum to 1."""
    rows = tf.cast(params, tf.float32).numpy()
    return rows.shape[-1] > 1 and rows.min() >= 0.0 and abs(rows.sum(axis=-1) - 1.0).max() < 1e-4


def _first_sentence(error: str | Exception) -> str:
    """The first sentence of Keras: no terminal colors, no advice, one line."""
    text = " ".join(re.sub(r"\x1b\[[0-9;]*m", "", str(error)).split())
    text = re.sub(r"^Exception encountered when calling [\w.]+\(\)\. ", "", text)
    return text.split(". ")[0][:300].rstrip(".")
