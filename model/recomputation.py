"""Layers whose activations are computed again for the gradient, instead of kept in memory."""

from __future__ import annotations

from typing import Any

import keras


def call_with_recomputation(layer: keras.Layer, *inputs: Any, **options: Any) -> Any:
    """The result of `layer(*inputs, **options)`, with the same gradient, in less memory.

    Of the layer's activations only its inputs are kept; the gradient computes the others again,
    with the same draws of dropout. `keras.RematScope` does the same where a layer is called outside
    a graph; within a compiled program it fails, since its function takes keywords.

    Args:
        layer: A layer or a model that is built; else it is called as it is.
        inputs: Tensors through which the gradient flows.
        options: Other arguments, such as `training` or a mask; no gradient flows through them.

    Source: Chen et al. 2016, "Training Deep Nets with Sublinear Memory Cost", arXiv:1604.06174.
    """
    if not layer.built:
        return layer(*inputs, **options)
    weights, others = layer.trainable_variables, layer.non_trainable_variables
    # Read once: what runs again must see what was seen first, above all the state of dropout.
    states = [(variable, keras.ops.copy(variable)) for variable in others]
    after: list[Any] = []

    def compute(*tensors: Any) -> Any:
        known = list(zip(weights, tensors[len(inputs) :], strict=True))
        with keras.StatelessScope(state_mapping=[*known, *states]) as scope:
            outputs = layer(*tensors[: len(inputs)], **options)
        if not after:
            after.extend(scope.get_current_value(variable) for variable in others)
        return outputs

    values = [keras.ops.convert_to_tensor(weight) for weight in weights]
    outputs = keras.remat(compute)(*inputs, *values)
    for variable, value in zip(others, after, strict=True):
        variable.assign(value)
    return outputs
