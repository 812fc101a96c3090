"""Makes the agent of a config and an environment."""

from __future__ import annotations

import threading

import keras
import tensorflow as tf

from kytolly.agent.algorithms import part, part_for
from kytolly.agent.kytolly import KytollyAgent
from kytolly.agent.parts import AgentParts, CustomParts, Model
from kytolly.agent.schedules import ScheduledNumbers
from kytolly.config.run import RunConfig
from kytolly.environment.spec import EnvSpec
from kytolly.policy.optimizers import make_optimizer

BUILDING = threading.RLock()  # the seed and the precision of what Keras builds are the process's


def make_agent(
    cfg: RunConfig,
    env_spec: EnvSpec,
    model: Model | None = None,
    custom: CustomParts | None = None,
) -> KytollyAgent:
    """An agent of the parts that `agent.algorithms` names, or of the user's.

    Args:
        cfg: Config.
        env_spec: What the environment is.
        model: As for `Trainer.train`; one that was compiled with an optimizer learns by that.
        custom: The user's optimizer and policy, if any.
    """
    policy, custom = part(cfg.algorithm, "policy"), custom or CustomParts()
    policy.distribution_for(cfg, env_spec)  # refuses an environment before anything is made
    network = make_network(cfg, env_spec, model)
    scale_loss = precision_of(cfg) == "mixed_float16"
    has_custom = custom.optimizer is not None or custom.policy is not None
    if has_custom or cfg.schedules or network.compiled:
        from kytolly.agent.custom_parts import make_custom_parts

        parts = make_custom_parts(cfg, network, custom, scale_loss)
    else:
        optimizer = make_optimizer(cfg, network, scale_loss)
        parts = AgentParts(policy, optimizer, ScheduledNumbers.of(cfg))
    distribution = parts.policy.distribution_for(cfg, env_spec)
    learning_rule = parts.policy(network, distribution, parts.optimizer, cfg)
    explore, epsilon = part_for(cfg, "exploration"), parts.epsilon
    return KytollyAgent(
        learning_rule,
        part_for(cfg, "memory").for_config(cfg, env_spec, learning_rule.num_uniforms),
        explore(cfg, distribution, epsilon) if epsilon else explore(cfg, distribution),
        cfg,
        env_spec,
        parts.scheduled,
        parts.names,
    )


def make_network(cfg: RunConfig, env_spec: EnvSpec, model: Model | None = None) -> keras.Model:
    """The built network of a config and its seed, or the user's."""
    with BUILDING:
        keras.utils.set_random_seed(cfg.seed)
        previous = keras.mixed_precision.dtype_policy()
        keras.mixed_precision.set_dtype_policy(precision_of(cfg))
        try:
            if model is None:
                return default_network(cfg, env_spec)
            from kytolly.agent.networks import custom_network

            return custom_network(model, cfg, env_spec)
        finally:
            keras.mixed_precision.set_dtype_policy(previous)


def precision_of(cfg: RunConfig) -> str:
    """Name of Keras's policy of numbers."""
    if cfg.precision == "auto":
        return keras.mixed_precision.dtype_policy().name
    return cfg.precision


def default_network(cfg: RunConfig, env_spec: EnvSpec) -> keras.Model:
    """The built network that a config describes; Keras's global policy decides its precision."""
    distribution = part(cfg.algorithm, "policy").distribution_for(cfg, env_spec)
    obs_spec = env_spec.network_input()
    network = part_for(cfg, "network")(cfg, obs_spec, distribution)
    network(tf.nest.map_structure(lambda s: tf.zeros([2, *s.shape], s.dtype), obs_spec))
    return network
