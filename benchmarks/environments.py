"""Speed and memory by the number of environment copies: `environments`, `ppo-environments`."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from kytolly.benchmarks import suite

COPIES = (1, 4, 16, 64, 256, 1024, 4096)
PPO_ROLLOUTS = {  # copies: (env steps of each per rollout, minibatches)
    1: (128, 1),
    4: (128, 4),
    16: (128, 4),
    64: (128, 8),
    256: (64, 16),
    1024: (16, 16),
    4096: (16, 64),
    16384: (16, 256),
}
ALLOWED_FALL = 0.1


class Point(NamedTuple):
    """One row: how many copies, the flags of the program besides, and its first cells."""

    copies: int
    arguments: tuple[str, ...]
    shown: tuple[str, ...]


def environments(options: suite.Options, watch: suite.Watch) -> suite.Report:
    """DQN's device loop by the number of environment copies."""
    points = []
    for copies in COPIES:
        steps = options.count(max(50_000, 1_000 * copies))
        arguments = (
            "--env-steps",
            steps,
            "--train-interval",
            str(10 * copies),
            "--buffer",
            "100000",
        )
        points.append(Point(copies, arguments, (f"{copies:,}",)))
    report = by_copies("benchmarks.dqn", ("copies",), points, None, options, watch)
    note = (
        f"Median of {options.repeats} runs, all cores free. One update of 128 rows every 10 steps "
        "of all copies, buffer 100,000. Memory is the whole process's, TensorFlow included."
    )
    title = "DQN's device loop on CartPole-v1, by environment copies stepped together"
    return report._replace(title=title, notes=[note])


def ppo_environments(options: suite.Options, watch: suite.Watch) -> suite.Report:
    """PPO's device loop by the number of environment copies."""
    points = []
    for copies, (steps, minibatches) in PPO_ROLLOUTS.items():
        rows = copies * steps
        count = options.count(max(200_000, 4 * rows))
        arguments = ("--env-steps", count, "--num-steps", str(steps), "--minibatches",
                     str(minibatches))  # fmt: skip
        points.append(
            Point(copies, arguments, (f"{copies:,} x {steps}", f"{rows // minibatches:,}"))
        )
    core = suite.one_core()
    names = ("copies x steps", "batch")
    report = by_copies("benchmarks.ppo", names, points, core, options, watch)
    where = "all cores free" if core is None else f"pinned to core {core}"
    notes = [
        f"Median of {options.repeats} turns, the rows in turn, {where}, 4 epochs. Copies x "
        "steps is one rollout, batch the rows of an update. Memory is the whole process's, "
        "TensorFlow and the compiler included.",
        *judgement(report.data["rows"]),
    ]
    title = "PPO's device loop on CartPole-v1, by environment copies stepped together"
    return report._replace(title=title, notes=notes)


def by_copies(
    program: str,
    names: Sequence[str],
    points: Sequence[Point],
    core: int | None,
    options: suite.Options,
    watch: suite.Watch,
) -> suite.Report:
    """A table of one row for each point, which take turns; title and notes are the caller's.

    Args:
        program: Module that is measured.
        names: Columns of the points' `shown`.
        points: The rows.
        core: That every process is pinned to, or None.
        options: Of the command line.
        watch: Shows progress.
    """
    watch.begin(options.repeats * len(points))
    runs: dict[int, list[dict[str, Any]]] = {point.copies: [] for point in points}
    for turn in range(options.repeats):
        for point in points:
            arguments = ("--num-envs", str(point.copies), *point.arguments)
            with watch.turn(f"{point.copies} copies, {turn + 1} of {options.repeats}"):
                runs[point.copies].append(suite.child(program, arguments, core))
    rows, data, columns = [], [], []
    for point in points:
        figures = suite.medians(runs[point.copies], "env_steps")
        peaks = [run["peak_memory_mib"] for run in runs[point.copies]]
        peak = statistics.median(peaks) if None not in peaks else None
        cells = suite.cells(figures, "env_steps")
        columns = [*names, *cells, "peak MiB"]
        memory = "unknown" if peak is None else f"{peak:,.0f}"
        rows.append([*point.shown, *cells.values(), memory])
        found = {"num_envs": point.copies, **figures, "peak_memory_mib": peak}
        data.append({**found, "runs": runs[point.copies]})
    return suite.Report("", columns, rows, [], {"rows": data, "core": core})


def judgement(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Whether the speed falls after its best, and how memory grows, in words."""
    lines = [
        falling(rows, kind, name) for kind, name in (("wall", "wall time"), ("cpu", "CPU time"))
    ]
    peaks = [(row["num_envs"], row["peak_memory_mib"]) for row in rows]
    if all(peak is not None for _, peak in peaks) and len(peaks) > 1:
        base = peaks[0][1]
        grown = ", ".join(f"{copies:,}: {peak - base:+,.0f}" for copies, peak in peaks[1:])
        lines.append(f"MiB of peak memory beyond those of the first row, by copies: {grown}.")
    return lines


def falling(rows: Sequence[Mapping[str, Any]], kind: str, name: str) -> str:
    """One sentence on the speed after its best, by wall or by CPU time."""
    best, fall, where = largest_fall([1 / row[f"{kind}_microseconds"] for row in rows])
    begin = f"By {name} the best speed is at {rows[best]['num_envs']:,} copies"
    if where is None:
        return f"{begin}, the most measured."
    verdict = "more" if fall > ALLOWED_FALL else "not more"
    return (
        f"{begin}; after it the lowest is {max(fall, 0.0):.1%} below, at "
        f"{rows[where]['num_envs']:,} copies: {verdict} than {ALLOWED_FALL:.0%}."
    )


def largest_fall(speeds: Sequence[float]) -> tuple[int, float, int | None]:
    """Place of the best speed, the largest share lost after it, and the place of that."""
    best = max(range(len(speeds)), key=speeds.__getitem__)
    later = range(best + 1, len(speeds))
    if not later:
        return best, 0.0, None
    where = min(later, key=speeds.__getitem__)
    return best, 1.0 - speeds[where] / speeds[best], where
