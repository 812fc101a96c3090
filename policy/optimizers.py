"""The optimizer that a config asks for."""

from __future__ import annotations

import math

import keras

from kytolly.config.run import RunConfig
from kytolly.policy.adam import Adam, make_schedule


def make_optimizer(
    cfg: RunConfig, network: keras.Model, scale_loss: bool
) -> keras.optimizers.Optimizer:
    """Adam, or RAdam, for a network, as configured; one in float16 needs dynamic loss scaling.

    Where `cfg.learning_rate_decay_updates` is a number, the rate falls over so many updates; else
    it is a variable, which the agent sets by its env steps, and the warm-up is the optimizer's.
    """
    planned = max(1, int(cfg.total_env_steps * cfg.updates_per_env_step))
    rate, warmup = cfg.learning_rate, math.ceil(cfg.warmup_ratio * planned)
    planned_fall, final = cfg.learning_rate_decay_updates, cfg.learning_rate_final
    if planned_fall is not None and final is not None:
        rate, warmup = make_schedule(rate, final, planned_fall, cfg.warmup_ratio), 0
    if not (warmup or cfg.weight_decay or scale_loss or cfg.optimizer == "radam"):
        return Adam(rate, epsilon=cfg.adam_epsilon)
    from kytolly.policy.adamw import LossScale, RAdam, make_adam

    kind = RAdam if cfg.optimizer == "radam" else None
    weights = network.trainable_variables
    adam = make_adam(rate, weights, cfg.weight_decay, warmup, cfg.adam_epsilon, kind)
    return LossScale(adam) if scale_loss else adam
