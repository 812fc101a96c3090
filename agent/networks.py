"""Networks for an agent: ours or the user's, built and checked against the environment."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import keras
import tensorflow as tf

from kytolly.agent.algorithms import part
from kytolly.environment.mask import without_mask
from kytolly.environment.spec import EnvSpec

if TYPE_CHECKING:
    from kytolly.policy.distributions import Distribution

ModelOrFactory = keras.Model | Callable[[EnvSpec], keras.Model] | None


def make_network(
    cfg: Any, env_spec: EnvSpec, distribution: Distribution, model: ModelOrFactory
) -> keras.Model:
    """The built network of a policy.

    Args:
        cfg: Configuration; names the algorithm.
        env_spec: What the environment looks like.
        distribution: Of the policy, for the environment's actions.
        model: The user's Keras model, a function that makes one, or None for ours.
    """
    if model is None:
        network = part(cfg.algorithm, "network")(cfg, without_mask(env_spec.obs), distribution)
    elif isinstance(model, keras.Model):
        network = model
    elif callable(model):
        network = model(env_spec)
    else:
        raise TypeError(
            f"model is {type(model).__name__}, expected a Keras model or a function that makes "
            "one from an EnvSpec."
        )
    check_network(network, cfg, env_spec, distribution)
    normalizes = getattr(cfg, "normalize_observations", False)
    if normalizes and not hasattr(network, "update_statistics"):
        raise ValueError(
            f"normalize_observations is set, and the model {network.name!r} has no method "
            "update_statistics(obs): put a model.normalization.RunningNormalization into it and "
            "pass its update() on, or set normalize_observations to false."
        )
    return network


def check_network(
    network: keras.Model, cfg: Any, env_spec: EnvSpec, distribution: Distribution
) -> None:
    """Build a network by calling it once; refuse one whose outputs are not what is learned."""
    seen = without_mask(env_spec.obs)
    obs = tf.nest.map_structure(lambda spec: tf.zeros([2, *spec.shape], spec.dtype), seen)
    try:
        output = network(obs)
    except Exception as error:
        shapes = tf.nest.map_structure(lambda spec: tuple(spec.shape), seen)
        dtypes = tf.nest.map_structure(lambda spec: spec.dtype.name, seen)
        raise ValueError(
            f"The model {network.name!r} fails on a batch of observations of shape {shapes}, "
            f"dtype {dtypes}: {first_sentence(error)}"
        ) from error
    count, found = distribution.num_params, tf.nest.map_structure(_shape, output)
    if part(cfg.algorithm, "policy").has_value:
        _check_pair(network, env_spec, count, found)
    elif found != (2, count):
        raise ValueError(
            f"The model {network.name!r} returns shape {found} for 2 observations, expected "
            f"(2, {count}): one value for each of the {count} actions of {env_spec.name}. "
            f"Let its last layer be keras.layers.Dense({count})."
        )


def _shape(tensor: Any) -> tuple[int, ...]:
    return tuple(getattr(tensor, "shape", ()))


def _check_pair(network: keras.Model, env_spec: EnvSpec, count: int, found: Any) -> None:
    pair = len(found) == 2 and found[0] == (2, count) and found[1] in ((2,), (2, 1))
    if not pair:
        raise ValueError(
            f"The model {network.name!r} returns the shapes {found} for 2 observations, expected "
            f"a pair: (2, {count}), the parameters of the action distribution of {env_spec.name}, "
            "and (2,), the values. For continuous actions the parameters are the means, then the "
            "log standard deviations."
        )


def first_sentence(error: Exception) -> str:
    """What Keras says first: no terminal colors, no advice, one line."""
    text = " ".join(re.sub(r"\x1b\[[0-9;]*m", "", str(error)).split())
    text = re.sub(r"^Exception encountered when calling [\w.]+\(\)\. ", "", text)
    return text.split(". ")[0][:300].rstrip(".")
