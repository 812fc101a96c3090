"""Layers and functions of Keras in NumPy, as `model.numpy_inference` puts them together."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
import numpy as np
from numpy.lib.stride_tricks import as_strided

Weights = Sequence[np.ndarray]  # in the order of `numpy_inference.ordered_weights`
Places = Mapping[int, int]  # of a network's variables among them, by id
Function = Callable[..., Any]  # of the arrays that an operation takes
Bind = Callable[[Weights], Function]  # the function, with weights


def require(supported: bool) -> None:
    """Give up where an operation is not as it is known here."""
    if not supported:
        raise NotImplementedError


def known_activation(layer: Any) -> Function | None:
    """The activation of a layer; a function of the user's may have the name of one of Keras's."""
    name = layer.activation.__name__
    require(keras.activations.get(name) is layer.activation)
    return ACTIVATIONS[name]


def flatten(layer: keras.layers.Flatten, places: Places) -> Bind:
    """`keras.layers.Flatten` of channels that come last."""
    require(layer.data_format == "channels_last")
    return lambda weights: lambda x: x.reshape(len(x), -1)


def rescaling(layer: keras.layers.Rescaling, places: Places) -> Bind:
    """`keras.layers.Rescaling`."""
    scale, offset = (np.asarray(x, np.float32) for x in (layer.scale, layer.offset))
    return lambda weights: lambda x: x.astype(np.float32) * scale + offset


def dense(layer: keras.layers.Dense, places: Places) -> Bind:
    """`keras.layers.Dense` and what computes the same."""
    activation = known_activation(layer)
    kernel, bias = places[id(layer.kernel)], places.get(id(layer.bias))
    return lambda weights: product(
        weights[kernel], None if bias is None else weights[bias], activation
    )


def convolution(layer: keras.layers.Conv2D, places: Places, divisor: float = 1.0) -> Bind:
    """`keras.layers.Conv2D`, and what computes the same, of images that are divided by a number."""
    require(layer.groups == 1 and layer.dilation_rate == (1, 1))
    require(layer.data_format == "channels_last")
    activation = known_activation(layer)
    kernel, bias = places[id(layer.kernel)], places.get(id(layer.bias))

    def bind(weights: Weights) -> Function:
        # The kernel is divided instead, which is smaller.
        scaled = weights[kernel] if divisor == 1.0 else weights[kernel] / np.float32(divisor)

        def convolve(images: np.ndarray) -> np.ndarray:
            features = patch_product(images, scaled, layer.strides, layer.padding)
            if bias is not None:
                features += weights[bias]
            return features if activation is None else activation(features, features)

        return convolve

    return bind


def layer_norm(layer: keras.layers.LayerNormalization, places: Places) -> Bind:
    """`keras.layers.LayerNormalization` of the last axis."""
    require(layer.axis in (-1, [-1]) and not layer.rms_scaling)
    epsilon = np.float32(layer.epsilon)
    gamma, beta = places.get(id(layer.gamma)), places.get(id(layer.beta))

    def bind(weights: Weights) -> Function:
        scale = None if gamma is None else weights[gamma]
        offset = None if beta is None else weights[beta]

        def normalize(x: np.ndarray) -> np.ndarray:
            share = np.float32(1.0 / x.shape[-1])
            x = x - np.add.reduce(x, axis=-1, keepdims=True) * share
            variance = np.add.reduce(x * x, axis=-1, keepdims=True) * share
            variance += epsilon
            inverse = 1.0 / np.sqrt(variance, out=variance)
            x *= inverse if scale is None else inverse * scale
            if offset is not None:
                x += offset
            return x

        return normalize

    return bind


def batch_norm(layer: keras.layers.BatchNormalization, places: Places) -> Bind:
    """`keras.layers.BatchNormalization` of the last axis, by its moving statistics."""
    names = ("moving_mean", "moving_variance", "gamma", "beta")
    found = [places.get(id(getattr(layer, name, None))) for name in names]

    def bind(weights: Weights) -> Function:
        mean, variance, gamma, beta = (None if p is None else weights[p] for p in found)
        scale = (1.0 if gamma is None else gamma) / np.sqrt(variance + np.float32(layer.epsilon))
        offset = (0.0 if beta is None else beta) - mean * scale
        return lambda x: x * scale + offset

    return bind


def running_norm(layer: Any, places: Places) -> Bind:
    """`model.normalization.RunningNormalization`."""
    mean, variance = places[id(layer.mean)], places[id(layer.variance)]

    def bind(weights: Weights) -> Function:
        center = weights[mean]
        inverse = 1.0 / np.sqrt(weights[variance] + np.float32(layer.epsilon))

        def normalize(x: np.ndarray) -> np.ndarray:
            x = x - center
            x *= inverse
            return np.minimum(np.maximum(x, -layer.clip, out=x), layer.clip, out=x)

        return normalize

    return bind


def product(kernel: np.ndarray, bias: np.ndarray | None, activation: Function | None) -> Function:
    """[..., units] of features [..., F]; of a kernel [E, F, units] for each of `E` rows in turn."""
    if bias is None:
        bias = np.zeros(kernel.shape[-1], np.float32)
    rows = repeated = np.atleast_2d(bias)

    def apply(features: np.ndarray) -> np.ndarray:
        nonlocal repeated
        if kernel.ndim == 2:
            features = features.dot(kernel)
        elif features.ndim > 2:
            flat = apply(features.reshape(-1, features.shape[-1]))
            return flat.reshape(*features.shape[:-1], -1)
        else:
            stacked = features.reshape(len(kernel), -1, features.shape[-1])
            features = (stacked @ kernel).reshape(len(features), -1)
        if features.ndim == 2:
            bias_rows = repeated  # another thread may ask for another number of rows
            if len(bias_rows) != len(features):  # a sum that broadcasts takes three times as long
                bias_rows = repeated = np.repeat(rows, len(features) // len(rows), axis=0)
            features += bias_rows
        else:
            features += bias
        return features if activation is None else activation(features, features)

    return apply


def patch_product(
    images: np.ndarray, kernel: np.ndarray, strides: tuple[int, int], padding: str
) -> np.ndarray:
    """[E, h, w, F] float32 of images [E, H, W, C] and a kernel [rows, columns, C, F]."""
    size, (channels, filters) = kernel.shape[:2], kernel.shape[2:]
    if padding == "same":
        pads = [[0, 0]]
        for side, length, stride in zip(images.shape[1:3], size, strides, strict=True):
            lacking = max((-(-side // stride) - 1) * stride + length - side, 0)
            pads.append([lacking // 2, lacking - lacking // 2])
        images = np.pad(images, [*pads, [0, 0]])
    images = np.ascontiguousarray(images)
    height, width = (
        (side - length) // stride + 1
        for side, length, stride in zip(images.shape[1:3], size, strides, strict=True)
    )
    rows, (a, b, c, d) = len(images), images.strides
    shape = (rows, height, width, *size, channels)
    steps = (a, strides[0] * b, strides[1] * c, b, c, d)
    patches = as_strided(images, shape, steps, writeable=False)
    flat = patches.reshape(rows * height * width, -1).astype(np.float32, copy=False)
    return flat.dot(kernel.reshape(-1, filters)).reshape(rows, height, width, filters)


def axes(axis: Any) -> Any:
    """An axis, or several of them, as NumPy takes them."""
    return tuple(axis) if isinstance(axis, list) else axis


def mean(operation: Any) -> Function:
    """`keras.ops.mean`; three times as fast as NumPy's own for small arrays."""
    axis, keepdims = axes(operation.axis), operation.keepdims

    def function(x: np.ndarray) -> np.ndarray:
        total = np.add.reduce(x, axis, None, None, keepdims)
        total *= total.size / x.size
        return total

    return function


def reduction(function: np.ufunc) -> Callable[[Any], Function]:
    """A reduction over the axes of an operation."""

    def of(operation: Any) -> Function:
        axis, keepdims = axes(operation.axis), operation.keepdims
        require(getattr(operation, "initial", None) is None)
        return lambda x: function.reduce(x, axis, None, None, keepdims)

    return of


def softmax(operation: Any) -> Function:
    """`keras.ops.softmax`."""

    def function(x: np.ndarray) -> np.ndarray:
        weight = np.exp(x - np.maximum.reduce(x, axis=operation.axis, keepdims=True))
        return weight / np.add.reduce(weight, axis=operation.axis, keepdims=True)

    return function


def split(operation: Any) -> Function:
    """`keras.ops.split`."""
    return lambda x: np.split(x, operation.indices_or_sections, axis=operation.axis)


def clip(operation: Any) -> Function:
    """`keras.ops.clip`."""
    return lambda x: np.minimum(np.maximum(x, operation.x_min), operation.x_max)


def relu(operation: Any) -> Function:
    """`keras.activations.relu`, also where it is leaky."""
    slope = operation.negative_slope
    require(operation.max_value is None and operation.threshold == 0 and 0 <= slope <= 1)
    return lambda x: np.maximum(x, slope * x if slope else 0.0)


def reshape(operation: Any) -> Function:
    """`keras.ops.reshape`."""
    shape = tuple(-1 if side is None else side for side in operation.newshape)
    return lambda x: x.reshape(shape)


def cast(operation: Any) -> Function:
    """`keras.ops.cast`, and `convert_to_tensor` with a dtype."""
    dtype = np.dtype(operation.dtype)
    return lambda x: x.astype(dtype)


# Functions of an array and of the array to write to, which may be the same.
ACTIVATIONS: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray] | None] = {
    "linear": None,
    "relu": lambda x, out: np.maximum(x, 0.0, out=out),
    "tanh": np.tanh,
    "sigmoid": lambda x, out: np.divide(1.0, 1.0 + np.exp(-x), out),
    "elu": lambda x, out: np.add(np.maximum(x, 0.0), np.expm1(np.minimum(x, 0.0)), out),
    "silu": lambda x, out: np.divide(x, 1.0 + np.exp(-x), out),
    "softplus": lambda x, out: np.logaddexp(x, 0.0, out),
}

ELEMENTWISE: dict[str, Function] = {
    "Absolute": np.abs,
    "Cos": np.cos,
    "Exp": np.exp,
    "Log": np.log,
    "Negative": np.negative,
    "Relu": lambda x: np.maximum(x, 0.0),
    "Rsqrt": lambda x: 1.0 / np.sqrt(x),
    "Sigmoid": lambda x: 1.0 / (1.0 + np.exp(-x)),
    "Sin": np.sin,
    "Sqrt": np.sqrt,
    "Square": np.square,
    "Tanh": np.tanh,
    "ZerosLike": np.zeros_like,
    "Add": np.add,
    "Divide": np.divide,
    "GetItem": lambda x, key: x[key],
    "Matmul": np.matmul,
    "Maximum": np.maximum,
    "Minimum": np.minimum,
    "Multiply": np.multiply,
    "Subtract": np.subtract,
    "TrueDivide": np.divide,
}

# NumPy's counterpart of each function of `keras.ops`, by the settings of the operation.
FUNCTIONS: dict[str, Callable[[Any], Function]] = {
    "Cast": cast,
    "Clip": clip,
    "ConvertToTensor": cast,
    "Concatenate": lambda op: lambda arrays: np.concatenate(arrays, axis=op.axis),
    "ExpandDims": lambda op: lambda x: np.expand_dims(x, op.axis),
    "Max": reduction(np.maximum),
    "Mean": mean,
    "Min": reduction(np.minimum),
    "Moveaxis": lambda op: lambda x: np.moveaxis(x, op.source, op.destination),
    "ReLU": relu,
    "Reshape": reshape,
    "Softmax": softmax,
    "Split": split,
    "Squeeze": lambda op: lambda x: np.squeeze(x, axes(op.axis)),
    "Stack": lambda op: lambda arrays: np.stack(arrays, axis=op.axis),
    "Sum": reduction(np.add),
    "Transpose": lambda op: lambda x: np.transpose(x, op.axes),
    **{name: lambda _, f=function: f for name, function in ELEMENTWISE.items()},
}

# Layers by the name of their class, or of one from which they inherit.
LAYERS: dict[str, Callable[..., Bind]] = {
    "BatchNormalization": batch_norm,
    "Dense": dense,
    "Flatten": flatten,
    "LayerNormalization": layer_norm,
    "Rescaling": rescaling,
    "RunningNormalization": running_norm,
}
IDENTITIES = (  # unless they train
    "ActivityRegularization",
    "AlphaDropout",
    "Dropout",
    "GaussianDropout",
    "GaussianNoise",
)
