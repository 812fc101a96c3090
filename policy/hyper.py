"""The plain numbers of a config, as formulas take them."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import tensorflow as tf

Number = float | tf.Tensor


class Hyper(NamedTuple):
    """Numbers that a formula may vary: floats, or [] tensors where they follow a schedule.

    A number that an algorithm's config does not have is NaN, so that no formula takes it unseen.
    """

    learning_rate: Number = math.nan
    gamma: Number = math.nan  # per env step
    max_grad_norm: Number | None = None  # over all weights together; None for any
    # Q-learning
    reward_scale: Number = math.nan
    huber_delta: Number | None = math.nan  # in scaled reward units; None: by each row's rewards
    target_mix: Number = math.nan  # online weights' share in a change of the target network
    munchausen_scale: Number = math.nan
    munchausen_lowest: Number = math.nan  # in scaled reward units
    entropy_temperature: Number = math.nan  # in scaled reward units
    td_lambda: Number = math.nan
    # Policy gradients
    gae_lambda: Number = math.nan
    gae_lambda_value: Number | None = None  # None for gae_lambda
    clip_range: Number = math.nan
    clip_range_value: Number | None = None  # in reward units; None for any
    value_coef: Number = math.nan
    entropy_coef: Number = math.nan
    target_kl: Number | None = None  # in nats; None for any
    kl_coef: Number = math.nan

    @classmethod
    def of(cls, cfg: Any) -> Hyper:
        """The numbers of a config, a dataclass with fields of these names."""
        names = [name for name in cls._fields if name in type(cfg).__dataclass_fields__]
        return cls(**{name: getattr(cfg, name) for name in names})
