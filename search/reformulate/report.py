"""The result of a run for a reader: lines, times for TensorBoard, and a plot of expected gains."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from matplotlib.figure import Figure

from kytolly.record.files import write_file
from kytolly.search.reformulate.gain_fitting import GainTest
from kytolly.search.reformulate.selection import evidence_text
from kytolly.search.reformulate.term_report import term_lines

REST = "other"
WIDTH = 100
BINS, PICTURE = 10, "calibration.png"
SYSTEMS = {
    "bm25": "BM25",
    "rm3": "RM3",
    "rocchio": "Rocchio",
    "boosted": "boosted terms",
    "agent": "agent",
    "fused": "BM25 + {fusion:g} cosines",
    "agent_fused": "agent + {fusion:g} cosines",
    "ceiling": "greedy ceiling",
    "ceiling_mined": "greedy ceiling, mined",
    "ceiling_as_many": "greedy ceiling, as many",
}


def phase_rows(seconds: Mapping[str, float], total: float) -> dict[str, dict[str, float]]:
    """Phase -> its seconds and share of the whole run; "other" is what no phase has."""
    rest = max(total - sum(seconds.values()), 0.0)
    return {
        name: {"seconds": spent, "share": spent / total}
        for name, spent in {**seconds, REST: rest}.items()
    }


def write_phases(run_dir: Path, summary: Mapping[str, Any]) -> None:
    """Write the seconds of the phases for TensorBoard, beside the run's metrics."""
    metrics = {
        f"phase_{kind}/{name.replace(' ', '_')}": value
        for name, row in summary["phases"].items()
        for kind, value in row.items()
    }
    for name, rate in rates(summary).items():
        metrics[f"rates/{name.replace(' ', '_')}"] = rate
    writer = tf.summary.create_file_writer(str(run_dir), filename_suffix=".phases")
    with writer.as_default(step=summary["env_steps"]):
        for name, value in metrics.items():
            tf.summary.scalar(name, value)
    writer.close()


def rates(summary: Mapping[str, Any]) -> dict[str, float]:
    """Device utilization and hit rates of caches, if they are known; all from 0 to 1."""
    shares = {
        "device utilization": summary.get("device_utilization"),
        "embedding cache hit rate": summary["embedding_cache"]["hit_rate"],
    }
    return {name: rate for name, rate in shares.items() if rate is not None}


def lines(summary: Mapping[str, Any], styled: bool = False) -> Iterator[str]:
    """A run's result for a reader; `styled`: with the signs that make a terminal's text bold."""
    for kind in ("fused", "plain") if summary["fusion"] else ("plain",):
        choice = summary["choices"][kind]
        base = f"BM25 + {summary['fusion']:g} cosines" if kind == "fused" else "BM25"
        yield f"{summary['metric']} over {base}: {evidence_text(choice)}"
        rows = summary.get("gains", {}).get(kind, {})
        for split in ("train", "dev"):
            if split not in rows:
                continue
            yield f"Expected gains over {base}, {split}: {GainTest(**rows[split]).text()}"
    yield f"Network: {summary['network']}; {summary['env_steps']:,} env steps of PPO"
    counts = summary["queries"]
    for split in ("train", "dev"):
        yield (
            f"Queries for {split}: {counts[split]:,}, of which {counts[f'{split}_skipped']} have "
            f"no token or candidate, {counts[f'{split}_without_relevant']} no relevant document"
        )
    if "test" in summary:
        yield from test_lines(summary["test"], styled)
    yield "Time:"
    for name, row in summary["phases"].items():
        yield f"  {name:<30} {row['seconds']:>8.1f} s {row['share']:>6.1%}"
    yield from loop_lines(summary)
    cache = summary["embedding_cache"]
    yield (
        f"Embedding cache: {cache['hits']:,} of {cache['hits'] + cache['misses']:,} texts were "
        f"there ({cache['hit_rate']:.1%})"
    )
    yield f"Run: {summary['run_dir']}"


def loop_lines(summary: Mapping[str, Any]) -> Iterator[str]:
    """Device utilization, and with a profile what its rows mean."""
    busy, profile = summary.get("device_utilization"), summary.get("loop_profile")
    yield f"Device utilization in the loop: {'unknown' if busy is None else f'{busy:.0%}'}"
    if profile is None:
        return
    if profile["scale"] is not None:
        yield (
            "  The loop is one program. Its forward, search and update were timed apart, and their "
            f"times scaled by {profile['scale']:.2f} to add up to the time of the loop"
        )
    moved = profile["transferred_bytes"]
    copied = f"{moved / 2**20:,.1f} MiB" if moved else "none, they are in the processor's memory"
    yield f"  Tables copied to the device: {copied}"


def test_lines(test: Mapping[str, Any], styled: bool = False) -> Iterator[str]:
    """Test metrics for a reader, at most `WIDTH` columns wide."""
    unchanged = f"{test['unchanged_plain']:,} left unchanged"
    if test["fusion"]:
        unchanged += f" ({test['unchanged']:,} where cosines count)"
    yield (
        f"Test: {test['queries']:,} queries, {unchanged}, "
        f"{test['without_relevant']} without a relevant document"
    )
    for metric in test["systems"]["bm25"]:
        yield ""
        yield from metric_table(test, metric, styled)
    share = test["share_of_ceiling"]
    if share is not None:
        yield ""
        yield f"The agent reaches {share:.0%} of the ceiling's gain over BM25 in {test['metric']}"
    for name, settings in test["tuned"].items():
        values = ", ".join(f"{key} {value}" for key, value in settings.items())
        yield f"{SYSTEMS[name]}, tuned on dev queries: {values}"
    if drifted := test.get("drifted"):
        yield from drift_lines(drifted, test["fusion"])
    for name, row in test.get("gains", {}).items():
        if row is not None:
            system = SYSTEMS[name].format(fusion=test["fusion"])
            yield f"Expected gains of {system}: {GainTest(**row).text()}"
    if terms := test.get("terms"):
        yield from term_lines(terms, test["metric"], terms["used"])


def drift_lines(drifted: Mapping[str, int], fusion: float) -> Iterator[str]:
    """How many of the best documents hold no rare word of their query, with the agent and without.

    Args:
        drifted: System -> their number.
        fusion: Weight of the cosines; 0: only searches without them count.
    """
    pairs = [("agent", "bm25"), ("agent_fused", "fused")][: 2 if fusion else 1]
    yield "Documents among the first ten that hold no rare typed word:"
    for system, base in pairs:
        ratio = drifted[system] / max(drifted[base], 1)
        yield (
            f"  {SYSTEMS[system].format(fusion=fusion)} {drifted[system]:,}, "
            f"{SYSTEMS[base].format(fusion=fusion)} {drifted[base]:,} ({ratio:.2f}x)"
        )


def metric_table(test: Mapping[str, Any], metric: str, styled: bool) -> Iterator[str]:
    """Lines of the table of one metric; cosines of weight 0 have no rows."""
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column(metric, no_wrap=True)
    for column in ("mean", "difference (95% interval)", "changed", "helped", "hurt"):
        table.add_column(column, justify="right", no_wrap=True)
    for name, rows in test["systems"].items():
        if name in ("fused", "agent_fused") and not test["fusion"]:
            continue
        if (
            name.startswith("ceiling") and metric != test["metric"]
        ):  # it is that of the run's metric
            continue
        row = rows[metric]
        label = SYSTEMS[name].format(fusion=test["fusion"])
        if row["queries"] < test["queries"]:
            label += f", {row['queries']} queries"
        cells = difference_cells(row["over_bm25"]) if "over_bm25" in row else []
        table.add_row(label, f"{row['mean']:.4f}", *cells)
        if "over_fused" in row:
            over = SYSTEMS["fused"].format(fusion=test["fusion"])
            table.add_row(f"  over {over}", "", *difference_cells(row["over_fused"]))
        if "over_mined" in row:
            table.add_row("  over that of mined terms", "", *difference_cells(row["over_mined"]))
    console = Console(file=io.StringIO(), width=WIDTH, force_terminal=styled, highlight=False)
    with console.capture() as capture:
        console.print(table)
    yield from (line.rstrip() for line in capture.get().splitlines())


def difference_cells(row: Mapping[str, float]) -> list[str]:
    """Cells of a difference: with its interval, and shares of queries."""
    interval = f"{row['difference']:+.4f} ({row['low']:+.4f} to {row['high']:+.4f})"
    return [interval, *(f"{row[name]:.0%}" for name in ("changed", "helped", "hurt"))]


class CalibrationBins(NamedTuple):
    """Queries in bins of equal size, by the gain that the network expects.

    Attributes:
        queries: Numbers of queries.
        expected: Mean gains that the network expects.
        gain: Mean gains of its proposals.
        error: Standard errors of `gain`.
        changed: Shares of queries that the run changes.
    """

    queries: list[int]
    expected: list[float]
    gain: list[float]
    error: list[float]
    changed: list[float]


def bin_means(expected: np.ndarray, gain: np.ndarray, changed: np.ndarray) -> CalibrationBins:
    """Bins, as even as possible, of [q] queries; fewer than `BINS` where there are fewer queries.

    Args:
        expected: [q] gains that the network expects.
        gain: [q] gains of its proposals.
        changed: [q] bool, true where the run changes the query.
    """
    order = np.argsort(expected, kind="stable")
    bins = np.array_split(order, min(BINS, len(order)))
    return CalibrationBins(
        queries=[len(rows) for rows in bins],
        expected=[float(expected[rows].mean()) for rows in bins],
        gain=[float(gain[rows].mean()) for rows in bins],
        error=[float(gain[rows].std() / np.sqrt(len(rows))) for rows in bins],
        changed=[float(changed[rows].mean()) for rows in bins],
    )


def plot_calibration(bins: CalibrationBins, metric: str) -> Figure:
    """Plot expected beside true gains, and the share of queries that are changed."""
    figure = Figure(figsize=(6, 5.5), layout="constrained")
    gains, shares = figure.subplots(2, 1, sharex=True, height_ratios=[3, 1])
    total = sum(bins.queries)
    whole = sum(n * share for n, share in zip(bins.queries, bins.changed, strict=True)) / total
    gains.set_title(f"{total} queries, {whole:.0%} of them changed")
    ends = [min(bins.expected), max(bins.expected)]
    gains.plot(ends, ends, color="0.6", lw=1.2, ls=":", label="as expected")
    gains.errorbar(
        bins.expected,
        bins.gain,
        yerr=bins.error,
        color="tab:blue",
        marker="o",
        ms=4,
        lw=1.5,
        capsize=2,
        label="true gain: mean and standard error",
    )
    gains.axhline(0.0, color="0.3", lw=0.8)
    gains.set_ylabel(f"true gain in {metric}")
    gains.legend(frameon=False)
    shares.plot(bins.expected, bins.changed, color="tab:blue", marker="o", ms=4, lw=1.5)
    shares.set(
        xlabel=f"expected gain in {metric}, mean of a bin", ylabel="changed", ylim=(-0.05, 1.05)
    )
    for ax in (gains, shares):
        ax.grid(alpha=0.25)
        ax.spines[["top", "right"]].set_visible(False)
    return figure


def save_calibration(path: Path, bins: CalibrationBins, metric: str) -> Path:
    """Save the plot; returns its path."""
    picture = io.BytesIO()
    plot_calibration(bins, metric).savefig(picture, dpi=120, format="png")
    return write_file(path, lambda to: to.write_bytes(picture.getvalue()))
