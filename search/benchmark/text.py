"""The table of `kytolly benchmark text`: each measure of text training on and off, and PyTorch."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

from kytolly.benchmarks.program import Result
from kytolly.benchmarks.suite import (
    CPU_ONLY,
    ChildFailed,
    Contender,
    Options,
    Report,
    Watch,
    one_core,
    run_module,
)

OURS = "kytolly.search.benchmark.text_training"
TORCH = "kytolly.search.benchmark.torch_rewriter"
# What a contender of the second comparison changes: (measure, on, off); the one not named is
# "as it is".
MEASURES = {
    "host batches": ("tables", "on the device", "batches from the host"),
    "graph executor": ("compiled step", "XLA", "graph executor"),
    "eager": ("compiled step", "XLA", "eager"),
    "a draw per step": ("scheduled sampling", "one mask of draws", "a draw per step"),
    "mixed_bfloat16": ("mixed precision", "mixed_bfloat16", "float32"),
    "4 parts": ("accumulation", "4 parts of 16 rows", "64 rows at once"),
    "1 update a call": ("updates a call", "16", "1"),
}
ADDED = ("mixed_bfloat16", "4 parts")  # the measure is on where the contender is not "as it is"


def text(options: Options, watch: Watch) -> Report:
    """Measure each way of training by turns, and the same network in PyTorch."""
    core = one_core()
    given = ["--collection", options.collection or "builtin", *(["--quick"] * options.quick)]
    repeats = ["--repeats", str(options.repeats)]
    watch.begin(4)
    with watch.turn("all pairs, and those of one bucket"):
        ours = run_module(OURS, [*given, *repeats], core, CPU_ONLY)
    others, absent = torch_runs(given, options, core, watch)
    rows = [*epoch_rows(ours["epoch"]), *bucket_rows(ours["bucket"])]
    rows += torch_rows(ours["epoch"], others)
    notes = [
        f"{ours['pairs']:,} pairs, vocabulary {ours['words']:,}; 2 x 256 LSTM units everywhere, "
        f"64 rows an update. Tokens are those of queries and targets, without padding. Median of "
        f"{options.repeats} turns" + (f", on core {core}." if core is not None else "."),
        "Ratios are of CPU time: seconds without the measure over seconds with it.",
        *(f"{name}: {why}." for name, why in absent.items()),
    ]
    columns = ["measure: with / without it", "tokens/CPU s", "without", "CPU ratio", "wall ratio"]
    title = "Training a query rewriter, each measure on and off"
    return Report(title, columns, [row.cells() for row in rows], notes, {**ours, "torch": others})


class Row:
    """A measure, on and off.

    Args:
        name: What is compared.
        tokens: Of an update.
        on, off: What was printed with it and without it.
    """

    def __init__(self, name: str, tokens: float, on: Result, off: Result):
        self.name, self.tokens, self.on, self.off = name, tokens, on, off

    def ratio(self, clock: str) -> float:
        """The seconds of an update without the measure, as a multiple of those with it."""
        return self.off[f"{clock}_seconds"] / self.on[f"{clock}_seconds"]

    def cells(self) -> list[str]:
        """The row for a reader."""
        speeds = [f"{self.tokens / side['cpu_seconds']:,.0f}" for side in (self.on, self.off)]
        return [self.name, *speeds, *(f"{self.ratio(clock):.2f}x" for clock in ("cpu", "wall"))]


def epoch_rows(measured: Result) -> list[Row]:
    """All pairs: everything against the old way, and buckets against one length."""
    tokens, (buckets, fixed, old) = measured["tokens_per_update"], measured["contenders"]
    words = [f"{side['name']} ({side['padding_share']:.0%} padding)" for side in (buckets, fixed)]
    return [
        Row(
            f"everything: {words[0]} / sorted batches, a draw per step, eager", tokens, buckets, old
        ),
        Row(f"bucketing: {words[0]} / {words[1]}", tokens, buckets, fixed),
    ]


def bucket_rows(measured: Result) -> list[Row]:
    """The pairs of one bucket: each measure alone."""
    tokens, (usual, *others) = measured["tokens_per_update"], measured["contenders"]
    rows = []
    for side in others:
        measure, on, off = MEASURES[side["name"]]
        pair = (side, usual) if side["name"] in ADDED else (usual, side)
        rows.append(Row(f"{measure}: {on} / {off}", tokens, *pair))
    return rows


def torch_rows(measured: Result, others: Sequence[Result]) -> list[Row]:
    """All pairs in the same buckets, against PyTorch."""
    tokens, ours = measured["tokens_per_update"], measured["contenders"][0]
    return [Row(f"Kytolly / {other['name']}", tokens, ours, other) for other in others]


def torch_runs(
    given: Sequence[str], options: Options, core: int | None, watch: Watch
) -> tuple[list[Result], dict[str, str]]:
    """PyTorch's seconds for the same batches, eager and compiled, and why it did not run."""
    results, absent = [], {}
    with tempfile.TemporaryDirectory() as folder:
        file = str(Path(folder) / "batches.npz")
        with watch.turn("batches for PyTorch"):
            run_module(OURS, [*given, "--export", file], core, CPU_ONLY)
        for name, more in (("PyTorch", ()), ("PyTorch, compiled", ("--compiled",))):
            arguments = ("--file", file, "--updates", "1" if options.quick else "16", *more)
            contender = Contender(name, TORCH, arguments, ("torch",))
            absent[name] = contender.why_absent()
            with watch.turn(name):
                try:
                    if not absent[name]:
                        results.append(
                            run_module(contender.module, contender.arguments, core, CPU_ONLY)
                        )
                except ChildFailed as error:
                    absent[name] = f"failed: {error}"
    return results, {name: why for name, why in absent.items() if why}
