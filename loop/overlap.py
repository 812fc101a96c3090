"""Learning in a graph that runs beside Python, which collects.

A call from Python costs more than the update in it. So the learner is one call for many blocks of
rows: a graph that loops over blocks and, between two of them, hands the acting weights to the
collector and takes the rows that were collected at the same time. Python's lock is free while it
learns.

The weights that collect a block are those from before the previous block was learned from: acting
lags behind learning by one block, whatever the machine's speed, so a run depends on its seed alone.
"""

from __future__ import annotations

import queue
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
import tensorflow as tf

from kytolly.loop.learn import LoopMetrics
from kytolly.loop.program import Program


class Overlap:
    """Runs a compiled learner beside a collector.

    Args:
        program: (count, *columns) -> (metrics, weights), called with count 1 for each block.
        specs: TensorSpecs of the columns.
    """

    def __init__(self, program: Program, specs: list[tf.TensorSpec]):
        self.program, self.specs = program, specs
        self._graph: Any = None
        self._idle_seconds = 0.0
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="kytolly-learner")
        self._rows: queue.SimpleQueue = queue.SimpleQueue()
        self._weights: queue.SimpleQueue = queue.SimpleQueue()

    def run(
        self,
        blocks: int,
        collect: Callable[[], list[np.ndarray]],
        take: Callable[[np.ndarray], None],
        begin: Callable[[], None] | None = None,
    ) -> LoopMetrics:
        """Collect so many blocks and learn from them.

        Args:
            blocks: How many.
            collect: Returns the columns of the next block.
            take: Gets the weights to act with.
            begin: Begins the next block, which `collect` waits for: where collecting goes on
                elsewhere, a block is begun before the previous one has come, as soon as its weights
                are there. They are the same as without.
        """
        if self._graph is None:
            self._graph = tf.function(
                self._learn_blocks, autograph=False, input_signature=[tf.TensorSpec([], tf.int32)]
            ).get_concrete_function()
        offered = self._weights  # a late callback must not reach the queue of the next call
        learner: Future = self._thread.submit(lambda: self._graph(tf.constant(blocks)))
        learner.add_done_callback(lambda _: offered.put(None))  # wakes us if it failed
        try:
            if begin is not None:
                begin()
            for block in range(blocks):
                rows = collect() if begin is None else []
                weights = offered.get()
                if weights is None:
                    raise learner.exception() or RuntimeError("the learner ended early")
                take(weights)
                if begin is not None:
                    if block + 1 < blocks:
                        begin()
                    rows = collect()
                self._rows.put(rows)
                # The learner needs Python's lock to take the rows, and would get it only once the
                # next block is collected: without this pause the two take turns.
                time.sleep(1e-5)
            return learner.result()[0]
        except BaseException:
            self._rows.put(None)
            learner.exception()
            raise
        finally:
            self._rows, self._weights = queue.SimpleQueue(), queue.SimpleQueue()

    def take_idle_seconds(self) -> float:
        """Seconds that the learner has waited for rows since the last call."""
        seconds, self._idle_seconds = self._idle_seconds, 0.0
        return seconds

    def close(self) -> None:
        """End the learning thread."""
        self._thread.shutdown(wait=True)

    def _next_rows(self, weights: np.ndarray) -> list[np.ndarray]:
        """Called by the learner between two blocks."""
        self._weights.put(weights)
        began = time.perf_counter()
        rows = self._rows.get()
        self._idle_seconds += time.perf_counter() - began
        if rows is None:
            raise StopIteration("collecting ended")  # the one that TensorFlow does not print
        return rows

    def _learn_blocks(self, blocks: tf.Tensor) -> tuple[LoopMetrics, tf.Tensor]:
        nothing = [tf.zeros(spec.shape, spec.dtype) for spec in self.specs]
        begin = self.program.in_graph(tf.constant(0), *nothing)

        def learn_block(
            done: tf.Tensor, metrics: LoopMetrics, weights: tf.Tensor
        ) -> tuple[tf.Tensor, LoopMetrics, tf.Tensor]:
            columns = tf.numpy_function(
                self._next_rows, [weights], [spec.dtype for spec in self.specs]
            )
            for column, spec in zip(columns, self.specs, strict=True):
                column.set_shape(spec.shape)
            with tf.control_dependencies(columns):  # else counters count rows that never came
                sums, weights = self.program.in_graph(tf.constant(1), *columns)
            return done + 1, metrics.plus(sums), weights

        return tf.while_loop(
            lambda done, *_: done < blocks,
            learn_block,
            (tf.constant(0), *begin),
            parallel_iterations=1,
        )[1:]
