"""Normalization by statistics that follow the data."""

from __future__ import annotations

import keras
from keras import ops


@keras.saving.register_keras_serializable(package="kytolly")
class RunningNormalization(keras.layers.Layer):
    """Brings each number of an input to mean 0 and deviation 1: [B, *shape] -> [B, *shape].

    The statistics change by `update` only, never by a call, and are saved with the model. Before
    the first update the input passes unchanged, up to the clip.

    Args:
        clip: Largest absolute value that passes.
        epsilon: Added to the variance.
    """

    def __init__(self, clip: float = 10.0, epsilon: float = 1e-8, **kwargs):
        super().__init__(**kwargs)
        self.clip, self.epsilon = clip, epsilon

    def build(self, input_shape):
        def statistic(name, initializer, shape=tuple(input_shape[1:])):
            # Not cast: half precision would round what it is divided by.
            return self.add_weight(
                shape, initializer, "float32", trainable=False, autocast=False, name=name
            )

        self.mean, self.variance = statistic("mean", "zeros"), statistic("variance", "ones")
        self.count = statistic("count", "zeros", ())

    def call(self, values):
        centred = ops.cast(values, "float32") - self.mean
        scaled = centred * ops.rsqrt(self.variance + self.epsilon)
        return ops.cast(ops.clip(scaled, -self.clip, self.clip), self.compute_dtype)

    def update(self, values):
        """Count in the rows of [B, *shape]."""
        values = ops.cast(values, "float32")
        count = ops.cast(ops.shape(values)[0], "float32")
        old, new = (self.mean, self.variance, self.count), ops.moments(values, 0)
        for statistic, value in zip(old, merge_statistics(*old, *new, count), strict=True):
            statistic.assign(value)


def merge_statistics(mean, variance, count: int, new_mean, new_variance, new_count):
    """Mean, variance and count of two samples together, from those of each.

    Source: Chan, Golub & LeVeque 1979, "Updating Formulae and a Pairwise Algorithm for Computing
    Sample Variances", equation 2.1.
    """
    total = count + new_count
    share, shift = new_count / total, new_mean - mean
    within = variance * (1.0 - share) + new_variance * share
    return mean + shift * share, within + shift * shift * share * (1.0 - share), total
