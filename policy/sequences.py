"""A network with a memory over sequences of env steps.

Rows lie sequence by sequence: row s * L + l is step l of sequence s. The memory is that before the
first step of each sequence, and becomes zero where an episode begins.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from kytolly.environment.fusion_barrier import on_gpu
from kytolly.environment.memory import FIRST, MEMORY
from kytolly.model.recurrent import MemoryNetwork, RecurrentNetwork, split_state

Step = Callable[[Any, tf.Tensor], tf.Tensor]  # inputs [n, ...], state [n, S] -> next state


class Unrolled:
    """Calls a network with a memory for rows of sequences.

    Called with a dict of observations [n * L, ...], its `first` [n * L] and its `memory` [n, S], it
    gives the outputs [n * L, ...] and the memory [n * L, S] after each step. `L` is known when the
    program is traced; rows that have a memory each are sequences of one step.
    """

    def __init__(self, network: RecurrentNetwork):
        self.network = network

    def __call__(self, obs: dict[str, tf.Tensor], **options: Any) -> tuple[Any, tf.Tensor]:
        """The outputs, and the memory after each row."""
        count, rows = obs[MEMORY].shape[0], obs[FIRST].shape[0]
        if count == rows:
            return self.network(obs, **options)
        before, after = self.states(obs)
        return self.network.outputs(split_state(obs)[0], before, after, **options), after

    def states(self, obs: dict[str, tf.Tensor]) -> tuple[tf.Tensor, tf.Tensor]:
        """[n * L, S] memory before and after each row."""
        network, memory = self.network, obs[MEMORY]
        length = obs[FIRST].shape[0] // memory.shape[0]
        inputs = network.inputs(split_state(obs)[0])
        inputs = tf.nest.map_structure(lambda part: by_time(part, length), inputs)
        first = by_time(obs[FIRST], length)
        if not isinstance(network, MemoryNetwork):
            states = looped_states(network.step, inputs, first, memory)
        elif network.memory.is_linear and on_gpu():
            real, imaginary = network.memory.factors()
            states = linear_states(real, imaginary, inputs, first, memory)
        else:
            states = stepped_states(network.memory, inputs, first, memory)
        before = tf.concat([memory[tf.newaxis], states[:-1]], axis=0)
        before = tf.where(first[..., tf.newaxis], 0.0, before)
        return by_sequence(before), by_sequence(states)


def by_time(rows: tf.Tensor, length: int) -> tf.Tensor:
    """[L, n, ...] from rows [n * L, ...]."""
    apart = tf.reshape(rows, [-1, length, *rows.shape[1:]])
    return tf.transpose(apart, [1, 0, *range(2, len(apart.shape))])


def by_sequence(steps: tf.Tensor) -> tf.Tensor:
    """[n * L, ...] rows from [L, n, ...]."""
    apart = tf.transpose(steps, [1, 0, *range(2, len(steps.shape))])
    return tf.reshape(apart, [-1, *steps.shape[2:]])


def looped_states(step: Step, inputs: Any, first: tf.Tensor, memory: tf.Tensor) -> tf.Tensor:
    """[L, n, S] states after each step of a user's network, one after the other.

    Args:
        step: Its step.
        inputs: A structure of [L, n, ...] tensors.
        first: [L, n] bool, an episode begins.
        memory: [n, S] before the first step.
    """
    length = int(first.shape[0])
    states, state = [], memory
    for time in range(length):
        state = tf.where(first[time][:, tf.newaxis], 0.0, state)
        now = tf.nest.map_structure(lambda part, time=time: part[time], inputs)
        state = tf.cast(step(now, state), tf.float32)
        states.append(state)
    return tf.stack(states)


def linear_states(
    real: tf.Tensor, imaginary: tf.Tensor, inputs: tf.Tensor, first: tf.Tensor, memory: tf.Tensor
) -> tf.Tensor:
    """[L, n, 2U] states of h[t] = factor h[t-1] + inputs[t], a complex number in each of `U` units.

    Solved by doubling as `policy.returns.weighted_sums`: after k passes each row has the sum over
    the 2**k steps up to it.

    Args:
        real: [U] part of the factor.
        imaginary: [U] the other one.
        inputs: [L, n, 2U] real parts, then imaginary ones.
        first: [L, n] bool, where an episode begins: nothing comes over from the step before.
        memory: [n, 2U] before the first step.
    """
    length, units = int(inputs.shape[0]), int(inputs.shape[-1]) // 2
    keeps = tf.where(first, 0.0, 1.0)[..., tf.newaxis]
    a, b = keeps * real, keeps * imaginary  # [L, n, U] factors on what came before
    x, y = inputs[..., :units], inputs[..., units:]
    p, q = memory[:, :units], memory[:, units:]
    before = tf.stack([a[0] * p - b[0] * q, a[0] * q + b[0] * p])
    x = tf.concat([x[:1] + before[:1], x[1:]], axis=0)
    y = tf.concat([y[:1] + before[1:], y[1:]], axis=0)
    distance = 1
    while distance < length:
        shift = [[distance, 0], [0, 0], [0, 0]]
        earlier_x, earlier_y = (tf.pad(part[:-distance], shift) for part in (x, y))
        x, y = x + a * earlier_x - b * earlier_y, y + a * earlier_y + b * earlier_x
        if 2 * distance < length:
            earlier_a, earlier_b = (tf.pad(part[:-distance], shift) for part in (a, b))
            a, b = a * earlier_a - b * earlier_b, a * earlier_b + b * earlier_a
        distance *= 2
    return tf.concat([x, y], axis=-1)


def stepped_states(layer: Any, inputs: tf.Tensor, first: tf.Tensor, memory: tf.Tensor) -> tf.Tensor:
    """[L, n, S] states after each step of a `model.recurrent.Memory`.

    Gradients go back step by step as they would by themselves; but those of the recurrent kernel,
    which each step would add to, are one product after the last step.

    Args:
        layer: The memory.
        inputs: [L, n, K] what each step takes.
        first: [L, n] bool, an episode begins.
        memory: [n, S] before the first step.
    """
    length, (count, size) = int(inputs.shape[0]), memory.shape
    units, dtype = layer.units, tf.float32
    kernel = tf.cast(tf.convert_to_tensor(layer.recurrent_kernel), dtype)
    width = int(kernel.shape[1])
    starts = tf.where(first, 0.0, 1.0)[..., tf.newaxis]  # [L, n, 1]
    others = [tf.cast(tf.convert_to_tensor(weight), dtype) for weight in layer.step_weights]

    def array(width: int) -> tf.TensorArray:
        return tf.TensorArray(dtype, length, element_shape=[count, width])

    @tf.custom_gradient
    def states_of(inputs: Any, memory: Any, kernel: Any, *others: Any) -> Any:
        def forward(time: Any, state: Any, states: Any) -> Any:
            state = tf.gather(starts, time) * state
            product = layer.shown(state) @ kernel
            state = layer.combine(tf.gather(inputs, time), product, state, *others)
            return time + 1, state, states.write(time, state)

        states = tf.while_loop(
            lambda time, *_: time < length, forward, (tf.constant(0), memory, array(size))
        )[-1].stack()

        def gradient(above: Any) -> Any:
            before = starts * tf.concat([memory[tf.newaxis], states[:-1]], axis=0)
            shown = before[..., :units]
            products = tf.reshape(tf.reshape(shown, [-1, units]) @ kernel, [length, count, width])

            turned = tf.transpose(kernel)

            def backward(back: Any, down: Any, of_inputs: Any, of_products: Any, sums: Any) -> Any:
                time = length - 1 - back
                parts = [tf.gather(part, time) for part in (inputs, products, before)]
                with tf.GradientTape() as tape:
                    tape.watch([*parts, *others])
                    after = layer.combine(*parts, *others)
                down += tf.gather(above, time)
                of_input, of_product, of_state, *weights = tape.gradient(
                    after, [*parts, *others], down, tf.UnconnectedGradients.ZERO
                )
                of_shown = of_product @ turned
                of_state += tf.pad(of_shown, [[0, 0], [0, size - units]])
                down = tf.gather(starts, time) * of_state
                return (
                    back + 1,
                    down,
                    of_inputs.write(time, of_input),
                    of_products.write(time, of_product),
                    [total + weight for total, weight in zip(sums, weights, strict=True)],
                )

            zeros = [tf.zeros_like(weight) for weight in others]
            begin = (tf.constant(0), tf.zeros_like(memory), array(inputs.shape[-1]), array(width))
            _, of_memory, of_inputs, of_products, sums = tf.while_loop(
                lambda back, *_: back < length, backward, (*begin, zeros)
            )
            flat = tf.reshape(of_products.stack(), [-1, width])
            of_kernel = tf.matmul(tf.reshape(shown, [-1, units]), flat, transpose_a=True)
            return of_inputs.stack(), of_memory, of_kernel, *sums

        return states, gradient

    return states_of(tf.cast(inputs, dtype), memory, kernel, *others)
