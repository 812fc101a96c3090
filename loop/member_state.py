"""The variables of an agent and its environments as arguments and results of a function.

A function that reads and assigns variables cannot be mapped over agents. Traced within
`MemberState.replaced`, the same code reads tensors in place of the variables, and what it assigns
is a result.
"""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf

_active: contextvars.ContextVar[MemberState | None] = contextvars.ContextVar("active", default=None)
METHODS = "value read_value _dense_var_to_tensor sparse_read assign assign_add assign_sub "
METHODS += "scatter_nd_update"


@contextlib.contextmanager
def replaced_methods(
    replacements: Iterable[tuple[tf.Variable, Mapping[str, Callable[..., Any]]]],
) -> Iterator[None]:
    """Within, variables have these `METHODS` in place of their own."""
    pairs = list(replacements)
    try:
        for variable, methods in pairs:
            vars(variable).update(methods)
        yield
    finally:
        for variable, methods in pairs:
            for name in methods:
                vars(variable).pop(name, None)


class MemberState:
    """The variables of one agent, and the tensors that stand for them while a program is traced.

    Args:
        variables: All that the traced code reads or assigns.
    """

    def __init__(self, variables: Sequence[tf.Variable]):
        self.variables = list(variables)
        self.values: list[tf.Tensor] = []  # in the order of the variables

    @contextlib.contextmanager
    def replaced(self, values: Sequence[tf.Tensor]) -> Iterator[None]:
        """Within, the variables have these values; `values` then are what was assigned."""
        self.values = list(values)
        token = _active.set(self)
        methods = [self._methods(*pair) for pair in enumerate(self.variables)]
        try:
            with replaced_methods(zip(self.variables, methods, strict=True)):
                yield
        finally:
            _active.reset(token)

    def _methods(self, index: int, variable: tf.Variable) -> dict[str, Callable[..., Any]]:
        """The methods of a variable that reads and writes `values` instead."""
        dtype = variable.dtype

        def read(*args: Any, **options: Any) -> tf.Tensor:
            return self.values[index]

        def convert(dtype: Any = None, name: Any = None, as_ref: bool = False) -> tf.Tensor:
            value = self.values[index]
            return value if dtype is None else tf.cast(value, dtype)

        def gather(indices: tf.Tensor, name: Any = None) -> tf.Tensor:
            return tf.gather(self.values[index], indices)

        def assign(value: Any, *args: Any, **options: Any) -> tf.Tensor:
            value = tf.convert_to_tensor(value, dtype_hint=dtype)
            self.values[index] = tf.ensure_shape(tf.cast(value, dtype), variable.shape)
            return self.values[index]

        def add(delta: Any, *args: Any, **options: Any) -> tf.Tensor:
            return assign(self.values[index] + tf.cast(delta, dtype))

        def subtract(delta: Any, *args: Any, **options: Any) -> tf.Tensor:
            return assign(self.values[index] - tf.cast(delta, dtype))

        def scatter(indices: Any, updates: Any, name: Any = None) -> tf.Tensor:
            return assign(tf.tensor_scatter_nd_update(self.values[index], indices, updates))

        methods = (read, read, convert, gather, assign, add, subtract, scatter)
        return dict(zip(METHODS.split(), methods, strict=True))


def replaced_state() -> MemberState:
    """The state whose variables are replaced where this is called."""
    state = _active.get()
    if state is None:
        raise RuntimeError("no variables are replaced, expected a loop within MemberState.replaced")
    return state


def loop_with_state(
    condition: Callable[..., Any], body: Callable[..., tuple[Any, ...]], carried: tuple[Any, ...]
) -> tuple[Any, ...]:
    """`tf.while_loop` of a body that assigns variables which are replaced."""
    state = replaced_state()

    def turn(*values: Any) -> tuple[Any, ...]:
        *now, state.values = values
        now = body(*now)
        return (*now, list(state.values))

    *after, state.values = tf.while_loop(
        lambda *values: condition(*values[:-1]), turn, (*carried, list(state.values))
    )
    return tuple(after)


def loop_while_active(
    condition: Callable[..., Any],
    body: Callable[..., tuple[Any, ...]],
    carried: tuple[tf.Tensor, tf.Tensor, Any],
) -> tuple[Any, ...]:
    """`loop_with_state` of an index, a flag, and results.

    Some agents may go on while others have stopped: for those whose flag is false a turn changes
    nothing.
    """
    state = replaced_state()

    def turn(index: tf.Tensor, active: tf.Tensor, results: Any) -> tuple[tf.Tensor, Any, Any]:
        before = list(state.values)
        index, again, after = body(index, active, results)
        if again is active:  # whatever happens
            return index, active, after
        state.values = [
            new if new is old else tf.where(active, new, old)
            for new, old in zip(state.values, before, strict=True)
        ]
        after = tf.nest.map_structure(lambda new, old: tf.where(active, new, old), after, results)
        return index, active & again, after

    return loop_with_state(lambda index, *_: condition(index, True, None), turn, carried)
