"""One compiled function that goes on without XLA where XLA cannot compile it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf


class Program:
    """A `tf.function` with fixed input shapes, traced and compiled at its first call.

    Args:
        function: Plain function of tensors.
        signature: A TensorSpec, or a nest of them, for each argument.
        xla: Compile with XLA.
        device: Name of the device to run on, such as "/GPU:0".
    """

    def __init__(
        self,
        function: Callable[..., object],
        signature: Sequence[object],
        xla: bool,
        device: str | None = None,
    ):
        self.function, self.signature = function, list(signature)
        self.xla, self.device = xla, device
        self._ready: Callable[..., Any] | None = None

    def __call__(self, *args: object) -> Any:
        """Run; a program that XLA cannot compile is rebuilt without it, once, with a warning."""
        self.trace()
        try:
            return self.in_graph(*args)
        except tf.errors.OpError as error:
            from kytolly.loop.recovery import is_compile_error, warn_of_compile_error

            if not (self.xla and is_compile_error(error)):
                raise
            warn_of_compile_error(self.function, error)
            self.xla, self._ready = False, None
            return self(*args)

    def trace(self) -> Any:
        """The traced function; what was traced before is not traced anew."""
        if self._ready is None:
            with tf.device(self.device):
                self._ready = tf.function(
                    self._on_device,
                    jit_compile=self.xla or None,
                    autograph=False,
                    input_signature=self.signature,
                ).get_concrete_function()
        return self._ready

    def _on_device(self, *args: object) -> object:
        with tf.device(self.device):  # a graph does not take over the device around it
            return self.function(*args)

    def in_graph(self, *args: object) -> Any:
        """The program as part of a graph that is being traced, after its first own call."""
        if self._ready is None:
            raise RuntimeError("the program is not compiled, expected a call of it before")
        with tf.device(self.device):
            return self._ready(*args)
