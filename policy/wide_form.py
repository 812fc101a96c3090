"""The form of a network's weights in which layers side by side are one product."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf


class WideWeights(NamedTuple):
    """The weights of a network whose dense layers are a few wide products.

    Attributes:
        matrices: [K, N] of each group of layers; see `model.wide_products`.
        deviations: Their noise's sizes, [K, N] each; nothing where there is no noise.
        others: The weights of all other layers.
    """

    matrices: list[tf.Tensor]
    deviations: list[tf.Tensor]
    others: list[tf.Tensor]


def takes_wide(function: Callable[..., Any]) -> bool:
    """True where a function of a network computes with wide products if it is given them."""
    return "wide" in inspect.signature(function).parameters
