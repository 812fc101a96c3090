"""Prioritized replay: what drawing rows by priority and giving them new priorities costs.

One layout of the sums, in one compiled program whose turns draw a batch or update it::

    python -m kytolly.benchmarks.replay --rows 1000000 --width 8
"""

from __future__ import annotations

import argparse
import statistics
import sys
from typing import Any

from kytolly.benchmarks import suite
from kytolly.benchmarks.competitors import Span, print_result
from kytolly.benchmarks.loop_timing import configure_without_cache

ROWS = (10_000, 1_000_000, 10_000_000)
LAYOUTS = {"binary tree": 2, "tree of 8 children": 8, "tree of 32 children": 32, "two levels": 0}
BATCH = 128
PARTS = ("draw", "update")


def replay(options: suite.Options, watch: suite.Watch) -> suite.Report:
    """Measure layouts of the sums of priorities at several sizes of the memory."""
    points = [(rows, name) for rows in ROWS[: 1 if options.quick else None] for name in LAYOUTS]
    runs: dict[tuple[int, str], list[dict[str, Any]]] = {point: [] for point in points}
    core = suite.one_core()
    watch.begin(options.repeats * len(points))
    for turn in range(options.repeats):
        for rows, name in points:
            width = LAYOUTS[name] or round(rows**0.5)
            turns = options.count(1_000 if width <= 32 else 10)
            words = ("--rows", str(rows), "--width", str(width), "--turns", turns)
            with watch.turn(f"{rows:,} rows, {name}, {turn + 1} of {options.repeats}"):
                module = "kytolly.benchmarks.replay"
                measured = suite.run_module(module, words, core, suite.CPU_ONLY)
                runs[rows, name].append(measured)
    table = []
    data = []
    for (rows, name), measured in runs.items():
        median = {part: statistics.median(run[part] for run in measured) for part in PARTS}
        both = sum(median.values())
        cells = [*median.values(), both]
        table.append([f"{rows:,}", name, *(f"{number:,.1f}" for number in cells)])
        data.append({"rows": rows, "layout": name, **median, "runs": measured})
    where = "no core" if core is None else f"core {core}"
    notes = [
        f"Median of {options.repeats} turns, each process pinned to {where}. CPU microseconds for "
        f"{BATCH} rows in a compiled loop: to draw them, to give them new priorities."
    ]
    columns = ["rows of the memory", "layout", "draw", "update", "both"]
    return suite.Report("Prioritized replay", columns, table, notes, {"rows": data, "core": core})


def measure(rows: int, width: int, turns: int) -> dict[str, float]:
    """CPU microseconds of each of `PARTS`."""
    import tensorflow as tf

    from kytolly.agent.priority_tree import PriorityTree
    from kytolly.agent.randomness import RandomStream, uniform

    tree = PriorityTree(rows, width)
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

        def work(count: tf.Tensor, part: Any = part) -> tf.Tensor:
            def turn(done: Any, last: Any) -> Any:
                return done + 1, part(tf.gather(table, done % 64), last)

            start = (tf.constant(0), tf.zeros([BATCH], tf.int32))
            return tf.while_loop(lambda done, _: done < count, turn, start)[1]

        signature = [tf.TensorSpec([], tf.int32)]
        program = tf.function(work, jit_compile=True, autograph=False, input_signature=signature)
        program(tf.constant(1))
        with Span() as span:
            program(tf.constant(turns)).numpy()
        microseconds[name] = span.cpu_seconds / turns * 1e6
    return microseconds


def main(argv: list[str] | None = None) -> int:
    """Run the program."""
    parser = argparse.ArgumentParser(prog="python -m kytolly.benchmarks.replay")
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows of the memory")
    parser.add_argument("--width", type=int, default=8, help="children of a node")
    parser.add_argument("--turns", type=int, default=2_000, help="batches")
    options = parser.parse_args(argv)
    configure_without_cache()
    print_result({**vars(options), **measure(options.rows, options.width, options.turns)})
    return 0


if __name__ == "__main__":
    sys.exit(main())
