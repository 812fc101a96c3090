"""The optimizer of a vector of all weights, and its learning rate."""

from __future__ import annotations

import math
from typing import Any, Literal

import keras

from kytolly.config.run import RunConfig

Rate = float | keras.optimizers.schedules.LearningRateSchedule


class Adam(keras.optimizers.Adam):
    """Keras's Adam for one device."""

    def _all_reduce_sum_gradients(self, grads_and_vars: Any) -> Any:
        """The gradients as they are.

        TensorFlow's sum over devices is a custom gradient, which its registry keeps for ever in
        every graph, with all variables of the graph: 200 MB for each training in a process.
        """
        return grads_and_vars


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


def make_schedule(
    learning_rate: float,
    final: float | None,
    updates: int,
    warmup_ratio: float = 0.0,
    shape: Literal["linear", "cosine"] = "linear",
) -> Rate:
    """The learning rate of each update: a number where it never changes, else a Keras schedule.

    Args:
        learning_rate: After the warm-up.
        final: After all updates; None: `learning_rate`.
        updates: Planned for the run.
        warmup_ratio: Share of them in which the rate rises linearly.
        shape: How it falls after the warm-up.
    """
    warmup = math.ceil(warmup_ratio * updates)
    rate: Rate = learning_rate
    if final is not None:
        rest = max(updates - warmup, 1)
        schedules = keras.optimizers.schedules
        if shape == "cosine":
            rate = schedules.CosineDecay(learning_rate, rest, alpha=final / learning_rate)
        else:
            rate = schedules.PolynomialDecay(learning_rate, rest, final)
    if not warmup:
        return rate
    from kytolly.policy.adamw import WarmUp

    return WarmUp(rate, warmup)


def inner_optimizer(optimizer: keras.optimizers.Optimizer) -> Any:
    """The optimizer itself, without the loss scaling around it."""
    return getattr(optimizer, "inner_optimizer", optimizer)


def follows_schedule(optimizer: keras.optimizers.Optimizer, but: Rate | None = None) -> bool:
    """True where the optimizer's learning rate is a schedule, other than `but`, and no variable."""
    rate = inner_optimizer(optimizer)._learning_rate
    return callable(rate) and rate is not but
