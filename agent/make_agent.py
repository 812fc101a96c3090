"""Makes the agent of a config and an environment."""

from __future__ import annotations

import keras

from kytolly.agent.algorithms import part, part_for
from kytolly.agent.custom_parts import CustomParts, make_custom_agent
from kytolly.agent.kytolly import KytollyAgent
from kytolly.agent.networks import Model, custom_network, default_network
from kytolly.config.run import RunConfig
from kytolly.environment.spec import EnvSpec
from kytolly.policy.optimizers import make_optimizer


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
        model: As for `Trainer.train`.
        custom: The user's optimizer and policy, if any.
    """
    policy = part(cfg.algorithm, "policy")
    distribution = policy.distribution_for(cfg, env_spec)
    keras.utils.set_random_seed(cfg.seed)
    previous = keras.mixed_precision.dtype_policy()
    precision = previous.name if cfg.precision == "auto" else cfg.precision
    keras.mixed_precision.set_dtype_policy(precision)
    try:
        if model is None:
            network = default_network(cfg, env_spec)
        else:
            network = custom_network(model, cfg, env_spec)
    finally:
        keras.mixed_precision.set_dtype_policy(previous)
    scale_loss = precision == "mixed_float16"
    custom = custom or CustomParts()
    if custom.given or cfg.schedules or network.compiled:
        return make_custom_agent(cfg, env_spec, network, custom, scale_loss)
    optimizer = make_optimizer(cfg, network, scale_loss)
    learning_rule = policy(network, distribution, optimizer, cfg)
    return KytollyAgent(
        learning_rule,
        part_for(cfg, "memory").for_config(cfg, env_spec, learning_rule.network_noise),
        part_for(cfg, "exploration")(cfg, distribution),
        cfg,
        env_spec,
    )
