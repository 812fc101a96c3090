"""Adam with a warm-up and decay of weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from kytolly.policy.adam import Adam


class DecayingAdam(Adam):
    """Adam for a vector of all weights, with a warm-up and decoupled decay of some of them.

    An update first removes `rate * weight_decay` of each number that the mask names, then makes
    Adam's step, which knows nothing of the decay.

    Args:
        rate: A number, which can be set later, or a schedule.
        mask: Function without arguments that gives [W], 1 where a number decays and 0 elsewhere.
        weight_decay: Share of a number that an update removes, times the rate.
        warmup_updates: Updates over which a rate that is a number rises; a schedule has its own.
        epsilon: Constant in the denominator.

    Source: Loshchilov & Hutter 2019, "Decoupled Weight Decay Regularization", arXiv:1711.05101,
    algorithm 2.
    """

    def __init__(
        self, rate: Any, mask: Any, weight_decay: float, warmup_updates: int, epsilon: float
    ):
        super().__init__(rate, epsilon=epsilon, weight_decay=weight_decay or None)
        self._mask, self._warmup_updates = mask, warmup_updates

    def _get_current_learning_rate(self) -> Any:
        rate: Any = super()._get_current_learning_rate()
        if not self._warmup_updates:
            return rate
        return tf.convert_to_tensor(rate) * warmup_share(self.iterations, self._warmup_updates)

    def _apply_weight_decay(self, variables: Sequence[Any]) -> None:
        if self.weight_decay is not None:
            (variable,) = variables
            share = tf.cast(self.learning_rate, tf.float32) * self.weight_decay
            variable.assign(variable - share * self._mask() * variable)


def warmup_share(step: Any, updates: int) -> tf.Tensor:
    """[] share of the full learning rate at update `step`, counted from 0: 1 / `updates` first.

    The first update is not wasted on a rate of 0. Source of a linear warm-up: Goyal et al. 2017,
    arXiv:1706.02677, section 2.2.
    """
    return tf.minimum((tf.cast(step, tf.float32) + 1.0) / updates, 1.0)
