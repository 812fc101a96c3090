"""A network's forward pass in NumPy, for acting on the host.

One observation through `model(obs)` costs 3 ms, through a `tf.function` 0.5 ms, and here about
10 microseconds: an environment on the host waits for nothing.

The network's `call` is traced once with symbolic tensors, as a Functional model is made. Each layer
and each function of `keras.ops` that is listed below has its counterpart in NumPy; a layer
that is not listed is traced in turn. So networks of ours, Functional and Sequential models and
other subclasses of yours need nothing of their own.
"""

from __future__ import annotations

import contextlib
import ctypes
import operator
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import keras
import numpy as np

from kytolly.model.numpy_memory import MEMORIES
from kytolly.model.numpy_operations import (
    FUNCTIONS,
    IDENTITIES,
    LAYERS,
    Bind,
    Function,
    Weights,
    convolution,
)

Obs = np.ndarray | Mapping[str, np.ndarray]  # [E, *obs]
INTEGERS = ("bool", "uint8", "int8", "int16", "int32", "int64")  # a layer does not cast them


class Step(NamedTuple):
    """One operation: `registers[output] = bind(weights)(*registers[inputs])`."""

    bind: Bind
    inputs: tuple[int, ...]
    output: int


class Program(NamedTuple):
    """The operations on an observation, in registers: the first ones hold its entries."""

    entries: tuple[tuple[str, np.dtype], ...]  # names in a Dict observation, "" without one
    constants: tuple[Step, ...]  # depend on weights only
    steps: tuple[Step, ...]
    make: Callable[..., Function]  # from what the constants and the steps are bound to
    has_convolutions: bool


class NumpyNetwork:
    """Params [E, P] of observations [E, *obs], from a copy of a network's weights.

    Args:
        program: What is computed.
        weights: Arrays in the order of `ordered_weights`. Kernels and biases of dense layers may be
            stacks [E, ...] for other weights in each of `E` rows; the output has such rows only.
    """

    def __init__(self, program: Program, weights: Weights):
        self.program = program
        self._use(weights)

    def take(self, packed: np.ndarray) -> None:
        """Use the weights [W] that lie end to end in the order of `ordered_weights`."""
        packed, weights, end = np.asarray(packed, np.float32), [], 0
        for weight in self.weights:
            begin, end = end, end + weight.size
            weights.append(packed[begin:end].reshape(weight.shape))
        self._use(weights)

    def with_weights(self, weights: Weights) -> NumpyNetwork:
        """The same network with other weights."""
        return NumpyNetwork(self.program, weights)

    def use_one_thread(self) -> None:
        """Let NumPy's OpenBLAS multiply matrices in one thread, from now on in this process.

        Its threads wait for each other in a busy loop. Beside those of a learner, or of another
        process, NatureCNN then takes 50 ms instead of 0.4. Dense layers alone are too small.
        """
        if not self.program.has_convolutions:
            return
        for path in Path(np.__file__).parent.parent.glob("numpy.libs/*openblas*"):
            with contextlib.suppress(OSError, AttributeError):
                ctypes.CDLL(str(path)).scipy_openblas_set_num_threads64_(1)

    def _use(self, weights: Weights) -> None:
        self.weights, known = weights, {}
        for step in self.program.constants:
            known[step.output] = step.bind(weights)(*(known[index] for index in step.inputs))
        functions = [step.bind(weights) for step in self.program.steps]
        self._forward = self.program.make(*known.values(), *functions)

    def __call__(self, obs: Obs) -> np.ndarray:
        """[E, P] float32."""
        parts = []
        for name, dtype in self.program.entries:
            part: Any = obs[name] if name else obs
            parts.append(part if part.dtype == dtype else part.astype(dtype))
        return self._forward(*parts)


def numpy_network(network: keras.Model, obs_spec: Any) -> NumpyNetwork | None:
    """The network in NumPy, or None where it has operations that are not known here.

    Before it is trusted it is compared with the network on random observations, with weights other
    than those of the trace: they tell what was read while tracing, and would never change. A
    network whose call changes variables, as random numbers do, is left to TensorFlow.

    Args:
        network: Built Keras model whose output, or first output, is [B, P].
        obs_spec: Shape and dtype of one observation, or a dict of them.
    """
    weights = ordered_weights(network)
    if network.dtype_policy.compute_dtype != "float32" or any(
        w.dtype != "float32" for w in weights
    ):
        return None
    try:
        program = trace(network, obs_spec)
        inference = NumpyNetwork(program, [np.asarray(weight) for weight in weights])
        return inference if _agrees(inference, network, obs_spec) else None
    except Exception:  # a layer of the user's may raise anything where it meets a symbolic tensor
        return None


def ordered_weights(network: keras.Model) -> list[keras.Variable]:
    """The weights of a network: those that are trained, then the others."""
    return [*network.trainable_variables, *network.non_trainable_weights]


def acting_outputs(network: keras.Model) -> Callable[..., Any]:
    """The function of a network of which NumPy computes the first output: its call, mostly."""
    return getattr(network, "packed_outputs", network.call)


class Constant(keras.KerasTensor):
    """An array that a network brings into its trace, so that what follows from it is traced too."""

    def __init__(self, value: np.ndarray):
        super().__init__(value.shape, str(value.dtype))
        self.value = value


def trace(network: keras.Model, obs_spec: Any) -> Program:
    """The operations of a network's first output; an exception where one is not known."""
    is_dict = isinstance(obs_spec, Mapping)
    entries = sorted(obs_spec.items()) if is_dict else [("", obs_spec)]
    tensors = {
        name: keras.KerasTensor((None, *spec.shape), spec.dtype.name) for name, spec in entries
    }
    tracer = _Tracer(ordered_weights(network))
    known = {id(tensor): tracer.new_register() for tensor in tensors.values()}
    with keras.StatelessScope() as scope:  # what a call assigns, or adds to the losses, is dropped
        outputs = acting_outputs(network)(tensors if is_dict else tensors[""])
        output = tracer.register(keras.tree.flatten(outputs)[0], known)
    if scope.state_mapping:
        raise NotImplementedError("a call that changes variables")
    names = tuple((name, np.dtype(spec.dtype.as_numpy_dtype)) for name, spec in entries)
    return tracer.program(names, output)


class _Tracer:
    """Follows symbolic tensors back to the inputs of a network, and lists what lies between."""

    def __init__(self, weights: Sequence[keras.Variable]):
        self.places = {id(weight): index for index, weight in enumerate(weights)}
        self.steps: list[Step] = []
        self.count = 0
        self.divided: dict[int, tuple[int, float]] = {}  # registers by a number, for convolutions
        self.casts: dict[int, int] = {}  # registers of numbers before they were cast
        self.has_convolutions = False
        self._alive: list[Any] = []  # tensors are known by their ids

    def new_register(self) -> int:
        """A place for one more array."""
        self.count += 1
        return self.count - 1

    def step(self, bind: Bind, *inputs: int) -> int:
        """The register of the output of one more operation."""
        self.steps.append(Step(bind, inputs, self.new_register()))
        return self.steps[-1].output

    def register(self, tensor: Any, known: dict[int, int]) -> int:
        """The register of a tensor after the steps; `known` has those of the inputs."""
        if id(tensor) not in known:
            self._alive.append(tensor)
            if isinstance(tensor, Constant):
                known[id(tensor)] = self.step(lambda _: lambda: tensor.value)
            elif keras.utils.is_keras_tensor(tensor):
                history: Any = tensor._keras_history
                node = history.operation._inbound_nodes[history.node_index]
                outputs = self._operation(history.operation, node, known)
                known |= {id(out): r for out, r in zip(node.outputs, outputs, strict=True)}
            else:
                value = np.asarray(tensor)
                known[id(tensor)] = self.step(lambda _: lambda: value)
        return known[id(tensor)]

    def _operation(self, operation: Any, node: Any, known: dict[int, int]) -> list[int]:
        """The registers of an operation's outputs."""
        arguments = (node.arguments.args, node.arguments.kwargs)
        inputs = [self.register(tensor, known) for tensor in node.arguments.keras_tensors]
        if not isinstance(operation, keras.layers.Layer):
            return self._function(operation, node, inputs)
        for kind in known_classes(operation):
            if kind.__name__ in IDENTITIES:
                return inputs[:1]
            if kind.__name__ == "Conv2D":
                return [self._convolution(operation, inputs[0])]
            if kind.__name__ in MEMORIES:
                return [self.step(MEMORIES[kind.__name__](operation, self.places), *inputs)]
            if kind.__name__ in LAYERS:
                bind, source = LAYERS[kind.__name__](operation, self.places), inputs[0]
                if kind.__name__ != "Flatten" and node.arguments.keras_tensors[0].dtype in INTEGERS:
                    source = self.step(float32, source)
                return [self.step(bind, source)]
        inner: dict[int, int] = {}

        def renamed(argument: Any) -> Any:
            if not keras.utils.is_keras_tensor(argument):
                return argument
            fresh = keras.KerasTensor(argument.shape, argument.dtype)
            self._alive.append(fresh)
            inner[id(fresh)] = self.register(argument, known)
            return fresh

        fresh_arguments: Any = keras.tree.map_structure(renamed, arguments)
        args, kwargs = fresh_arguments
        kwargs.pop("training", None)  # not every `call` takes it
        outputs = operation.call(*args, **kwargs)
        return [self.register(tensor, inner) for tensor in keras.tree.flatten(outputs)]

    def _convolution(self, layer: keras.layers.Conv2D, source: int) -> int:
        """The register of a convolution's outputs; it casts and divides images itself."""
        self.has_convolutions = True
        source, divisor = self.divided.get(source, (source, 1.0))
        return self.step(convolution(layer, self.places, divisor), self.casts.get(source, source))

    def _function(self, operation: Any, node: Any, inputs: list[int]) -> list[int]:
        """The registers of the outputs of a function of `keras.ops`."""
        name, args = type(operation).__name__, node.arguments.args
        first = node.arguments.keras_tensors[0]
        if any(keras.utils.is_keras_tensor(x) for x in keras.tree.flatten(node.arguments.kwargs)):
            raise NotImplementedError(name)
        if name in ("Cast", "ConvertToTensor") and operation.dtype in (None, first.dtype):
            return inputs
        if name == "Reshape" and tuple(operation.newshape[1:]) == tuple(first.shape[1:]):
            return inputs
        function = FUNCTIONS[name](operation)
        if isinstance(args[0], (list, tuple)):
            if not all(keras.utils.is_keras_tensor(tensor) for tensor in args[0]):
                raise NotImplementedError(name)
            outputs = self.step(lambda _: lambda *arrays: function(arrays), *inputs)
        else:
            outputs = self.step(self._filled(function, args), *inputs)
        if name not in ("Cast", "ConvertToTensor") and self._widens(node, args):
            outputs = self.step(float32, outputs)
        if name in ("Cast", "ConvertToTensor") and operation.dtype == "float32":
            self.casts[outputs] = inputs[0]
        if name in ("Divide", "TrueDivide") and isinstance(args[1], (int, float)):
            self.divided[outputs] = inputs[0], float(args[1])
        if len(node.outputs) == 1:
            return [outputs]
        return [
            self.step(lambda _, part=part: operator.itemgetter(part), outputs)
            for part in range(len(node.outputs))
        ]

    def _widens(self, node: Any, args: Sequence[Any]) -> bool:
        """True where NumPy may give float64 for Keras's float32: of integers or of float64."""
        dtypes = {keras.backend.standardize_dtype(x.dtype) for x in args if hasattr(x, "dtype")}
        wide = dtypes != {"float32"}
        return wide and [x.dtype for x in node.outputs] == ["float32"]

    def _filled(self, function: Function, args: Sequence[Any]) -> Bind:
        """A function of those of its arguments that are symbolic; the others are known."""
        values = [arg.numpy() if keras.ops.is_tensor(arg) else arg for arg in args]
        symbolic = [keras.utils.is_keras_tensor(arg) for arg in args]
        if all(symbolic):
            return lambda weights: function
        places = [self.places.get(id(arg)) for arg in args]

        def bind(weights: Weights) -> Function:
            known = [
                value if place is None else weights[place]
                for value, place in zip(values, places, strict=True)
            ]
            if symbolic == [True, False]:
                return lambda array, other=known[1]: function(array, other)
            if symbolic == [False, True]:
                return lambda array, other=known[0]: function(other, array)
            raise NotImplementedError(function)

        return bind

    def program(self, entries: tuple[tuple[str, np.dtype], ...], output: int) -> Program:
        """The steps that an output needs, as one function."""
        needed, fixed = {output}, set()
        for step in reversed(self.steps):
            if step.output in needed:
                needed.update(step.inputs)
        steps = [step for step in self.steps if step.output in needed]
        for step in steps:
            if fixed.issuperset(step.inputs):
                fixed.add(step.output)
        constants = tuple(step for step in steps if step.output in fixed)
        steps = tuple(step for step in steps if step.output not in fixed)
        make = straight_line(len(entries), constants, steps, output)
        return Program(entries, constants, steps, make, self.has_convolutions)


def known_classes(layer: keras.layers.Layer) -> Sequence[type]:
    """The classes of a layer by which it may be known; none where its `call` is the user's."""
    classes = type(layer).__mro__
    defining = next(kind for kind in classes if "call" in vars(kind))
    if defining.__module__.partition(".")[0] in ("keras", "kytolly"):
        return classes
    if any(kind.__name__ == "NoisyDense" for kind in classes):  # its weights are stacks with noise
        raise NotImplementedError(defining.__name__)
    return ()


def float32(weights: Weights) -> Function:
    """A cast, for NumPy would go on in float64 with integers."""
    return lambda x: x.astype(np.float32, copy=False)


def straight_line(
    num_entries: int, constants: Sequence[Step], steps: Sequence[Step], output: int
) -> Callable[..., Function]:
    """Makes a function of entries that calls one step after another, from constants and steps.

    It is compiled from text, as `collections.namedtuple` is: a loop over steps and registers takes
    as long as a small network's products.
    """
    given = [f"r{step.output}" for step in constants] + [f"f{step.output}" for step in steps]
    lines = [
        f"r{step.output} = f{step.output}({', '.join(f'r{index}' for index in step.inputs)})"
        for step in steps
    ]
    entries = ", ".join(f"r{index}" for index in range(num_entries))
    body = "".join(f"  {line}\n" for line in [*lines, f"return r{output}"])
    text = f"def make({', '.join(given)}):\n def forward({entries}):\n{body} return forward\n"
    namespace: dict[str, Any] = {}
    exec(text, namespace)
    return namespace["make"]


def _agrees(inference: NumpyNetwork, network: keras.Model, obs_spec: Any) -> bool:
    """True if both give the same, for one row and for many, with other weights than now."""
    rng = np.random.default_rng(0)

    def other(weight: np.ndarray) -> np.ndarray:
        size = rng.uniform(0.0, 1.0, weight.shape).astype(np.float32)
        # A small weight becomes a larger one, else its part in the outputs could go unseen.
        return np.where(np.abs(weight) < 1e-3, 0.1 * size, weight * (0.5 + size))

    weights = [other(weight) for weight in inference.weights]
    candidate = inference.with_weights(weights)
    return all(_agrees_on(rows, candidate, network, obs_spec, rng) for rows in (8, 1))


def _agrees_on(
    rows: int,
    candidate: NumpyNetwork,
    network: keras.Model,
    obs_spec: Any,
    rng: np.random.Generator,
) -> bool:
    obs = keras.tree.map_structure(
        lambda spec: rng.normal(size=(rows, *spec.shape)).astype(spec.dtype.as_numpy_dtype),
        obs_spec,
    )
    mapping = zip(ordered_weights(network), candidate.weights, strict=True)
    with keras.StatelessScope(list(mapping)):
        expected = np.asarray(keras.tree.flatten(acting_outputs(network)(obs))[0])
    params = candidate(obs)
    size = float(np.abs(expected).max())
    return (
        params.shape == expected.shape
        and params.dtype == np.float32
        and np.allclose(params, expected, 1e-3, 1e-3 * size)
    )
