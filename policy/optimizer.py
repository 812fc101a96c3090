"""The optimizer of a policy."""

from __future__ import annotations

from typing import Any

import keras


def make_optimizer(cfg: Any, scale_loss: bool) -> keras.optimizers.Optimizer:
    """Adam with the configured learning rate; float16 networks need dynamic loss scaling.

    Where `cfg.learning_rate_decay_updates` is a number, the rate falls over so many updates; else
    it is a variable, which the agent sets by its env steps.
    """
    rate: Any = cfg.learning_rate
    if cfg.learning_rate_final is not None and cfg.learning_rate_decay_updates is not None:
        rate = keras.optimizers.schedules.PolynomialDecay(
            rate, cfg.learning_rate_decay_updates, cfg.learning_rate_final
        )
    adam = keras.optimizers.Adam(rate, epsilon=cfg.adam_epsilon)
    return keras.optimizers.LossScaleOptimizer(adam) if scale_loss else adam
