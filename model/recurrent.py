"""Networks with a memory: one step of them, from an observation and a state to the next state.

Time is not here: `policy.sequences` repeats the step.
"""

from __future__ import annotations

import math
from typing import cast

import keras
from keras import ops

MEMORY, FIRST = "agent_memory", "agent_first"  # entries as in `environment.memory`
OBSERVATION = "observation"


class Memory(keras.layers.Layer):
    """A layer that remembers: `state` [B, S] and what is new [B, K] make the next state.

    A step is `combine(inputs, state @ recurrent_kernel, state)`, elementwise but for the product.

    Args:
        units: `U`, numbers that it shows; its state may be larger.
        span: Env steps that it remembers at the start, at most; None: as the kind's paper has it.
    """

    states_per_unit = 1
    gates = 1
    is_linear = False  # sequences may be solved by doubling

    def __init__(self, units: int, span: int | None = None, **kwargs):
        super().__init__(**kwargs)
        self.units, self.span = units, span

    @property
    def state_units(self):
        """`S`, numbers of the state."""
        return self.states_per_unit * self.units

    @property
    def step_weights(self):
        """Further weights of `combine`, which takes them as arguments."""
        return ()

    def build(self, input_shape):
        width = self.gates * self.units
        glorot, orthogonal = keras.initializers.GlorotUniform(), keras.initializers.Orthogonal()

        def blocks(initializer):
            return lambda shape, dtype=None: ops.concatenate(
                [initializer((shape[0], self.units), dtype) for _ in range(self.gates)], axis=-1
            )

        self.kernel = self.add_weight((input_shape[-1], width), blocks(glorot), name="kernel")
        self.recurrent_kernel = self.add_weight(
            (self.units, width), blocks(orthogonal), name="recurrent_kernel"
        )
        self.bias = self.add_weight((width,), self.first_bias, name="bias")

    def first_bias(self, shape, dtype=None):
        """The bias at the start."""
        return ops.zeros(shape, dtype)

    def log_spans(self, dtype=None):
        """[U] logarithms of the steps in which units forget, drawn evenly between 1 and `span`.

        Source: Tallec & Ollivier 2018, arXiv:1804.11188, equation 16 ("chrono initialization").
        """
        return ops.log(keras.random.uniform((self.units,), 1.0, self.span, dtype=dtype))

    def inputs(self, features):
        """[B, K] what a step takes of features [B, F]; for all steps of a sequence at once."""
        return features @ self.kernel + self.bias

    def shown(self, state):
        """[B, U] the part of a state [B, S] that other layers, and the next step, read."""
        return state

    def combine(self, inputs, recurrent, state, *weights):
        """[B, S] next state, from [B, K] inputs, [B, K] products and [B, S] the state."""
        raise NotImplementedError

    def call(self, features, state):
        """[B, S] next state, from features [B, F] and a state [B, S]."""
        return self.step(ops.cast(self.inputs(features), "float32"), state)

    def step(self, inputs, state):
        """[B, S] next state."""
        recurrent = self.shown(state) @ self.recurrent_kernel
        return self.combine(inputs, recurrent, state, *self.step_weights)

    def get_config(self):
        return {**super().get_config(), "units": self.units, "span": self.span}


@keras.saving.register_keras_serializable(package="kytolly")
class GRUMemory(Memory):
    """Gated recurrent unit, whose reset gate acts after the product, as in cuDNN.

    Source: Cho et al. 2014, arXiv:1406.1078; the product's place as in `keras.layers.GRU` with
    `reset_after`.
    """

    gates = 3

    def first_bias(self, shape, dtype=None):
        if self.span is None:
            return super().first_bias(shape, dtype)
        return ops.concatenate([self.log_spans(dtype), ops.zeros((2 * self.units,), dtype)])

    def build(self, input_shape):
        super().build(input_shape)
        self.reset_bias = self.add_weight((self.units,), "zeros", name="reset_bias")

    @property
    def step_weights(self):
        return (self.reset_bias,)

    def combine(self, inputs, recurrent, state, reset_bias):
        units = self.units
        gates = ops.sigmoid(inputs[:, : 2 * units] + recurrent[:, : 2 * units])
        update, reset = gates[:, :units], gates[:, units:]
        proposed = inputs[:, 2 * units :] + reset * (recurrent[:, 2 * units :] + reset_bias)
        return update * state + (1.0 - update) * ops.tanh(proposed)


@keras.saving.register_keras_serializable(package="kytolly")
class LSTMMemory(Memory):
    """Long short-term memory; its state is the output, then the cell.

    Source: Hochreiter & Schmidhuber 1997; the forget gate begins open, as in Jozefowicz et al.
    2015.
    """

    states_per_unit = 2
    gates = 4

    def first_bias(self, shape, dtype=None):
        zeros = ops.zeros((self.units,), dtype)
        if self.span is None:
            write, keep = zeros, ops.ones((self.units,), dtype)
        else:
            keep = self.log_spans(dtype)
            write = -keep
        return ops.concatenate([write, keep, zeros, zeros])  # input, forget, output, proposal

    def shown(self, state):
        return state[:, : self.units]

    def combine(self, inputs, recurrent, state):
        units = self.units
        summed = inputs + recurrent
        gates = ops.sigmoid(summed[:, : 3 * units])
        proposed = ops.tanh(summed[:, 3 * units :])
        cell = gates[:, units : 2 * units] * state[:, units:] + gates[:, :units] * proposed
        return ops.concatenate([gates[:, 2 * units :] * ops.tanh(cell), cell], axis=-1)


@keras.saving.register_keras_serializable(package="kytolly")
class LRUMemory(Memory):
    """Linear recurrent unit: `U` complex numbers that decay and turn, each by itself.

    Its state has the real parts, then the imaginary ones. As the step is linear, a sequence is
    solved by doubling, in log T passes.

    Args:
        units, span: As of any memory.
        min_radius, max_radius: Between which the decay per step begins, evenly by area; not with
            a span.

    Source: Orvieto et al. 2023, arXiv:2303.06349, sections 3.3 and 3.4.
    """

    states_per_unit = 2
    is_linear = True

    def __init__(
        self, units: int, span=None, min_radius: float = 0.9, max_radius: float = 0.999, **kwargs
    ):
        super().__init__(units, span, **kwargs)
        self.min_radius, self.max_radius = min_radius, max_radius

    def build(self, input_shape):
        low, high = self.min_radius**2, self.max_radius**2

        def radii(shape, dtype=None):
            if self.span is not None:
                return -self.log_spans(dtype)
            share = keras.random.uniform(shape, dtype=dtype)
            return ops.log(-0.5 * ops.log(low + share * (high - low)))

        def phases(shape, dtype=None):
            return ops.log(keras.random.uniform(shape, 1e-3, math.pi / 10, dtype=dtype))

        scale = keras.initializers.RandomNormal(stddev=1.0 / math.sqrt(2.0 * input_shape[-1]))
        self.kernel = self.add_weight((input_shape[-1], 2 * self.units), scale, name="kernel")
        self.log_decay = self.add_weight((self.units,), radii, name="log_decay")
        self.log_phase = self.add_weight((self.units,), phases, name="log_phase")

    @property
    def recurrent_kernel(self):
        """[U, 0]: no product."""
        return ops.zeros((self.units, 0))

    @property
    def step_weights(self):
        return self.factors()

    def factors(self):
        """[U] real and [U] imaginary parts of what a state is multiplied by in a step."""
        radius, phase = ops.exp(-ops.exp(self.log_decay)), ops.exp(self.log_phase)
        return radius * ops.cos(phase), radius * ops.sin(phase)

    def inputs(self, features):
        # Scaled so that a state's size does not depend on how slowly it decays: equation 7.
        scale = ops.sqrt(1.0 - ops.exp(-2.0 * ops.exp(self.log_decay)))
        return (features @ self.kernel) * ops.concatenate([scale, scale])

    def shown(self, state):
        return state[:, : self.units]

    def combine(self, inputs, recurrent, state, real, imaginary):
        a, b = state[:, : self.units], state[:, self.units :]
        turned = ops.concatenate([real * a - imaginary * b, real * b + imaginary * a], axis=-1)
        return turned + inputs

    def get_config(self):
        own = {"min_radius": self.min_radius, "max_radius": self.max_radius}
        return {**super().get_config(), **own}


KINDS = {"gru": GRUMemory, "lstm": LSTMMemory, "lru": LRUMemory}


def split_state(obs):
    """The observation as the environment has it, and [B, S] the state, of a dict with both."""
    seen = {name: part for name, part in obs.items() if name not in (MEMORY, FIRST)}
    return (seen[OBSERVATION] if list(seen) == [OBSERVATION] else seen), obs[MEMORY]


class RecurrentNetwork(keras.Model):
    """A network that remembers: a dict with `memory` [B, S] -> (outputs, next memory [B, S]).

    A step has three parts, of which only the second has to be taken one after the other:
    `inputs(obs)`, `step(inputs, state)` and `outputs(obs, before, after)`.
    """

    def call(self, obs, training: bool = False):
        seen, before = split_state(obs)
        after = self.next_state(seen, before)
        return self.outputs(seen, before, after, training=training), after

    def next_state(self, obs, state):
        """[B, S] the state after one step."""
        return self.step(self.inputs(obs), state)

    def packed_outputs(self, obs):
        """[B, P + S] params and next memory side by side, for inference in NumPy."""
        outputs, memory = self.call(obs)
        return ops.concatenate([keras.tree.flatten(outputs)[0], memory], axis=-1)


@keras.saving.register_keras_serializable(package="kytolly")
class MemoryNetwork(RecurrentNetwork):
    """Features, a memory of them, and a network that reads it.

    Args:
        memory: A `Memory`.
        head: Network [B, W] -> outputs, of the numbers that the memory shows.
        features: Layer in front, such as `model.observation_features.ObservationFeatures`.
        encoder_units: Widths of dense layers between features and memory.
    """

    def __init__(self, memory, head, features, encoder_units=(), **kwargs):
        super().__init__(**kwargs)

        def made(part):
            is_config = isinstance(part, dict)
            return keras.saving.deserialize_keras_object(part) if is_config else part

        self.memory, self.head, self.features = made(memory), made(head), made(features)
        self.encoder_units = tuple(encoder_units)
        self.encoder = [keras.layers.Dense(units, "relu") for units in self.encoder_units]

    @property
    def state_units(self):
        """`S`, numbers that it remembers."""
        return self.memory.state_units

    def build(self, input_shape):
        seen, _ = split_state(input_shape)
        if not self.features.built:
            self.features.build(seen)
        width = self.features.compute_output_shape(seen)[1]
        for layer in self.encoder:
            layer.build((None, width))
            width = layer.units
        shown = self.memory.state_units if self.memory.is_linear else self.memory.units
        if not self.memory.built:
            self.memory.build((None, width))
        if not self.head.built:
            self.head.build((None, shown))

    @property
    def learns_scale(self):
        """True where the head's values are in units that change while it learns."""
        return getattr(self.head, "learns_scale", False)

    @property
    def reward_scale(self):
        """The head's."""
        return self.head.reward_scale

    def encoded(self, obs):
        """[B, F] what the memory gets of an observation."""
        features = ops.cast(self.features(obs), self.compute_dtype)
        for layer in self.encoder:
            features = layer(features)
        return features

    def inputs(self, obs):
        """[B, K] what a step takes of an observation."""
        return ops.cast(self.memory.inputs(self.encoded(obs)), "float32")

    def step(self, inputs, state):
        """[B, S] the next state."""
        return self.memory.step(inputs, state)

    def next_state(self, obs, state):
        """[B, S] the state after one step, by the memory as a layer, which NumPy knows whole."""
        return self.memory(self.encoded(obs), state)

    def outputs(self, obs, before, after, training: bool = False):
        """The head's."""
        shown = after if self.memory.is_linear else self.memory.shown(after)
        return self.head(ops.cast(shown, self.compute_dtype), training=training)

    def update_statistics(self, obs):
        """Count the rows of observations into the normalization's statistics, if there are any."""
        self.features.update(split_state(obs)[0])

    def get_config(self):
        own = {
            "memory": keras.saving.serialize_keras_object(self.memory),
            "head": keras.saving.serialize_keras_object(self.head),
            "features": keras.saving.serialize_keras_object(self.features),
            "encoder_units": self.encoder_units,
        }
        return {**super().get_config(), **own}


@keras.saving.register_keras_serializable(package="kytolly")
class CustomMemoryNetwork(RecurrentNetwork):
    """A user's model of one step: `model(obs, state) -> (outputs, state)`, with states [B, S].

    Args:
        model: The user's.
        state_units: `S`.
    """

    def __init__(self, model, state_units, **kwargs):
        super().__init__(**kwargs)
        is_config = isinstance(model, dict)
        self.model = keras.saving.deserialize_keras_object(model) if is_config else model
        self.state_units = state_units

    def build(self, input_shape):
        rows = keras.tree.map_shape_structure(lambda shape: ops.zeros((1, *shape[1:])), input_shape)
        self.model(*split_state(rows))

    def call(self, obs, training: bool = False):
        return self.model(*split_state(obs))  # one call gives both

    def inputs(self, obs):
        """The observation."""
        return obs

    def step(self, inputs, state):
        """The model's next state."""
        return self.model(inputs, state)[1]

    def outputs(self, obs, before, after, training: bool = False):
        """The model's outputs, of the state before the step."""
        return self.model(obs, before)[0]

    def update_statistics(self, obs):
        """Pass the rows of observations on to the model's own method."""
        self.model.update_statistics(split_state(obs)[0])

    def get_config(self):
        model = cast(dict, keras.saving.serialize_keras_object(self.model))
        model.pop("build_config", None)  # Keras builds models of one argument; see `build`
        return {**super().get_config(), "model": model, "state_units": self.state_units}
