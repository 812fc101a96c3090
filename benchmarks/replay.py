"""Prioritized replay: what drawing rows by priority and giving them new priorities costs.

One layout of the sums, in one compiled program whose turns draw a batch or update it::

    python -m kytolly.benchmarks.replay --rows 1000000 --width 8
"""

from __future__ import annotations

import dataclasses
import statistics
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from kytolly.benchmarks import suite
from kytolly.benchmarks.loops import configure_without_cache
from kytolly.benchmarks.program import Program, Result, Span, run_program
from kytolly.config.fields import setting

if TYPE_CHECKING:
    import tensorflow as tf

ROWS = (10_000, 1_000_000, 10_000_000)
LAYOUTS = {"binary tree": 2, "tree of 8 children": 8, "tree of 32 children": 32, "two levels": 0}
BATCH = 128
PARTS = ("draw", "update")


def replay(options: suite.Options, watch: suite.Watch) -> suite.Report:
    """Measure layouts of the sums of priorities at several sizes of the memory."""
    contenders = {}
    for rows in ROWS[: 1 if options.quick else None]:
        for name, children in LAYOUTS.items():
            width = children or round(rows**0.5)
            turns = options.count(1_000 if width <= 32 else 10)
            words = ("--rows", str(rows), "--width", str(width), "--turns", turns)
            contenders[rows, name] = suite.Contender(
                f"{rows:,} rows, {name}", "kytolly.benchmarks.replay", words
            )
    core = suite.one_core()
    by_name, _ = suite.run_in_turns(
        list(contenders.values()), options.repeats, watch, core, all_ours=True
    )
    runs = dict(zip(contenders, by_name.values(), strict=True))
    table = []
    data = []
    for (rows, name), measured in runs.items():
        median = {part: statistics.median(run[part] for run in measured) for part in PARTS}
        both = sum(median.values())
        cells = [*median.values(), both]
        table.append([f"{rows:,}", name, *(f"{number:,.1f}" for number in cells)])
        data.append({"rows": rows, "layout": name, **median, "runs": measured})
    notes = [
        f"Median of {options.repeats} turns, {suite.pinned_to(core)}. CPU microseconds for "
        f"{BATCH} rows in a compiled loop: to draw them, to give them new priorities."
    ]
    columns = ["rows of the memory", "layout", "draw", "update", "both"]
    return suite.Report("Prioritized replay", columns, table, notes, {"rows": data, "core": core})


@dataclasses.dataclass(frozen=True, kw_only=True)
class Layout:
    """A layout of the sums, and how long it is measured."""

    rows: int = setting(1_000_000, "rows of the memory")
    width: int = setting(8, "children of a node")
    turns: int = setting(2_000, "batches")


def measure(layout: Layout) -> Result:
    """The layout, and CPU microseconds of each of `PARTS`."""
    configure_without_cache()
    import tensorflow as tf

    from kytolly.agent.priority_tree import PriorityTree
    from kytolly.agent.randomness import RandomStream, uniform

    rows, turns = layout.rows, layout.turns
    tree = PriorityTree(rows, layout.width)
    stream = RandomStream(0)
    microseconds = {}
    random = tf.random.Generator.from_seed(0)
    tree.fill(random.uniform([rows], 0.01, 1.0))
    table = tf.reshape(uniform(stream.random_bits(64 * BATCH)), [64, BATCH])

    def draw(numbers: tf.Tensor, last: tf.Tensor) -> tf.Tensor:
        share = (tf.range(BATCH, dtype=tf.float64) + tf.cast(numbers, tf.float64)) / BATCH
        return tree.draw(share)[0] + 0 * last

    def update(numbers: tf.Tensor, last: tf.Tensor) -> tf.Tensor:
        tree.set(tf.cast(numbers * rows, tf.int32), numbers + 0.01)
        return last

    for name, part in zip(PARTS, (draw, update), strict=True):

        def work(
            count: tf.Tensor, part: Callable[[tf.Tensor, tf.Tensor], tf.Tensor] = part
        ) -> tf.Tensor:
            def turn(done: tf.Tensor, last: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
                return done + 1, part(tf.gather(table, tf.math.floormod(done, 64)), last)

            start = (tf.constant(0), tf.zeros([BATCH], tf.int32))
            return tf.while_loop(lambda done, _: done < count, turn, start)[1]

        signature = [tf.TensorSpec([], tf.int32)]
        program = tf.function(work, jit_compile=True, autograph=False, input_signature=signature)
        program(tf.constant(1))
        with Span() as span:
            program(tf.constant(turns)).numpy()
        microseconds[name] = span.cpu_seconds / turns * 1e6
    return {**dataclasses.asdict(layout), **microseconds}


PROGRAM = Program(measure, (Layout,))

if __name__ == "__main__":
    sys.exit(run_program(PROGRAM, __doc__))
