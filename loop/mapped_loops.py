"""Loops within a function that is mapped over agents, for a GPU.

`tf.vectorized_map` gives every loop a flag that says whether any agent is still in it, and puts its
body into a condition: no compiler knows the length of such a loop, and a GPU's host waits at each
turn. Loops whose length all agents share stay here what they were. TensorFlow has no public place
for that, so one entry of its table of converters is replaced while a program is traced.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.python.ops.parallel_for import pfor

OPERATIONS = ("While", "StatelessWhile")


@contextlib.contextmanager
def shared_loops_stay() -> Iterator[None]:
    """Within, `tf.vectorized_map` leaves the loops that end for all at once as they are."""
    converters = pfor._pfor_converter_registry
    before = {name: converters[name] for name in OPERATIONS}
    converters.update(dict.fromkeys(OPERATIONS, _convert))
    try:
        yield
    finally:
        converters.update(before)


class _LengthDiffers(Exception):
    """A loop ends earlier for some agents than for others."""


def _convert(loop: Any) -> list[Any]:
    """The results of a loop, each wrapped with whether it has a row for each agent."""
    has_rows = [one.is_stacked for one in loop.inputs]
    try:
        while True:
            mapped = _MappedLoop(loop, has_rows)
            function = tf.function(mapped.run, autograph=False).get_concrete_function()
            if mapped.has_rows == has_rows:
                break
            has_rows = mapped.has_rows
    except _LengthDiffers:
        return pfor.WhileV2(loop)()
    return [pfor.wrap(one, rows) for one, rows in zip(function(), has_rows, strict=True)]


class _MappedLoop:
    """A loop whose turns are mapped over agents.

    Args:
        loop: What TensorFlow's converters get.
        has_rows: Which of the values that the loop carries have a row for each agent.

    Attributes:
        has_rows: The same after `run`, with those that get rows within a turn: if there are any,
            the loop has to be made anew.
    """

    def __init__(self, loop: Any, has_rows: list[bool]):
        self.loop, self.given, self.has_rows = loop, has_rows, has_rows
        agents = tf.get_static_value(loop.pfor.loop_len_vector)
        rows = [None if agents is None else int(agents[0])]
        self.shapes = [
            tf.TensorShape([*rows, *one.shape]) if own else one.shape
            for one, own in zip(loop.op.outputs, has_rows, strict=True)
        ]

    def run(self) -> list[tf.Tensor]:
        """What the loop carries after its last turn."""
        inputs = [self._as_given(*pair) for pair in zip(self.loop.inputs, self.given, strict=True)]
        return list(tf.while_loop(self._goes_on, self._turn, inputs, shape_invariants=self.shapes))

    def _goes_on(self, *values: tf.Tensor) -> tf.Tensor:
        (result,) = self._call("cond", values)
        if result.is_stacked:
            raise _LengthDiffers
        return result.t

    def _turn(self, *values: tf.Tensor) -> list[tf.Tensor]:
        results = self._call("body", values)
        self.has_rows = [
            before or now.is_stacked for before, now in zip(self.given, results, strict=True)
        ]
        if self.has_rows != self.given:  # this loop will not run
            return list(values)
        after = [self._as_given(*pair) for pair in zip(results, self.given, strict=True)]
        for one, shape in zip(after, self.shapes, strict=True):
            one.set_shape(shape)
        return after

    def _call(self, name: str, values: Sequence[tf.Tensor]) -> list[Any]:
        loop, own = self.loop, self.loop.pfor
        function = loop.op.graph._get_function(tf.compat.as_bytes(loop.get_attr(name).name))
        mapped = pfor.PFor(
            loop_var=own.loop_var,
            loop_len=own.loop_len_vector[0],
            pfor_ops=function.graph.get_operations(),
            fallback_to_while_loop=own.fallback_to_while_loop,
            all_indices=own.all_indices,
            all_indices_partitioned=own.all_indices_partitioned,
            pfor_config=own.pfor_config,
        )
        wrapped = [pfor.wrap(one, rows) for one, rows in zip(values, self.given, strict=True)]
        return pfor._convert_function_call(function, mapped, wrapped)

    def _as_given(self, one: Any, rows: bool) -> tf.Tensor:
        """A wrapped value with a row for each agent, where it is said to have them."""
        if one.is_stacked or not rows:
            return one.t
        return pfor._stack(one.t, self.loop.pfor.loop_len_vector[0]).t
