"""From a configuration to an agent, by the table of algorithms."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf

from kytolly.agent.algorithms import part
from kytolly.agent.kytolly import KytollyAgent
from kytolly.agent.memory import require_memory
from kytolly.environment.mask import without_mask
from kytolly.environment.spec import EnvSpec
from kytolly.policy.weights import make_optimizer


def make_agent(
    cfg: Any, env_spec: EnvSpec, model: Any = None, available_bytes: int | None = None
) -> KytollyAgent:
    """An agent with its network, optimizer and memory.

    Args:
        cfg: Configuration; names the algorithm.
        env_spec: What the environment looks like.
        model: The user's network instead of ours: a Keras model, or a function that makes one from
            an `EnvSpec`. It maps [B, *obs] to action values [B, A] or, for policies with a value,
            to a pair: distribution params [B, P] and values [B].
        available_bytes: Memory that training may take, if known.
    """
    policy = part(cfg.algorithm, "policy")
    distribution = policy.distribution_for(cfg, env_spec)
    if model is None:
        seen = without_mask(env_spec.obs)
        require_memory(cfg, seen, distribution.num_params, available_bytes)
    keras.utils.set_random_seed(cfg.seed)
    previous = keras.mixed_precision.dtype_policy()
    precision = previous.name if cfg.precision == "auto" else cfg.precision
    keras.mixed_precision.set_dtype_policy(precision)
    try:
        network = _make_network(cfg, env_spec, distribution, model)
    finally:
        keras.mixed_precision.set_dtype_policy(previous)
    optimizer = make_optimizer(cfg, scale_loss=precision == "mixed_float16")
    return KytollyAgent(
        policy(network, distribution, optimizer, cfg),
        part(cfg.algorithm, "memory").for_config(cfg, env_spec, available_bytes),
        part(cfg.algorithm, "exploration")(cfg, distribution),
        cfg,
        env_spec,
    )


def _make_network(cfg: Any, env_spec: EnvSpec, distribution: Any, model: Any) -> keras.Model:
    if model is not None:
        from kytolly.agent.own_network import own_network

        return own_network(model, cfg, env_spec, distribution)
    seen = without_mask(env_spec.obs)
    network = part(cfg.algorithm, "network")(cfg, seen, distribution)
    network(tf.nest.map_structure(lambda spec: tf.zeros([2, *spec.shape], spec.dtype), seen))
    return network
