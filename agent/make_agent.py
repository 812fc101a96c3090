"""Makes the agent of a config and an environment."""

from __future__ import annotations

from typing import Any

import keras

from kytolly.agent.algorithms import part, part_for
from kytolly.agent.default_network import default_network
from kytolly.agent.kytolly import KytollyAgent
from kytolly.environment.spec import EnvSpec
from kytolly.policy.weights import make_optimizer


def make_agent(cfg: Any, env_spec: EnvSpec, model: Any = None, own: Any = ()) -> KytollyAgent:
    """An agent of the parts that `agent.algorithms` names, or of the user's.

    `model` is as for `Trainer.train`, `own` as for `own_parts.make_own_agent`.
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
            from kytolly.agent.own_network import own_network

            network = own_network(model, cfg, env_spec)
    finally:
        keras.mixed_precision.set_dtype_policy(previous)
    scale_loss = precision == "mixed_float16"
    if any(own[:2]) or cfg.schedules or getattr(network, "compiled", False):
        from kytolly.agent.own_parts import make_own_agent

        return make_own_agent(cfg, env_spec, network, own, scale_loss)
    optimizer = make_optimizer(cfg, network, scale_loss)
    learning_rule = policy(network, distribution, optimizer, cfg)
    return KytollyAgent(
        learning_rule,
        part_for(cfg, "memory").for_config(cfg, env_spec, learning_rule.network_noise),
        part_for(cfg, "exploration")(cfg, distribution),
        cfg,
        env_spec,
    )
