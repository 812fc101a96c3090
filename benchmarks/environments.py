"""Speed and memory for several numbers of environments: `environments`, `ppo-environments`."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from kytolly.benchmarks import suite

NUM_ENVS = (1, 4, 16, 64, 256, 1024, 4096)
PPO_ROLLOUTS = {  # num_envs: (env steps of each per rollout, minibatches)
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
TITLE = "{}'s device loop on CartPole-v1, environments stepped together"


class Point(NamedTuple):
    """One row: the number of environments, the program's other words, and its first cells."""

    num_envs: int
    arguments: tuple[str, ...]
    shown: tuple[str, ...]


def environments(options: suite.Options, watch: suite.Watch) -> suite.Report:
    """Measure DQN's device loop with 1 to 4,096 environments."""
    points = []
    for num_envs in NUM_ENVS:
        count = options.count(max(50_000, 1_000 * num_envs))
        arguments = ("dqn", "--env-steps", count, "--train-interval", str(10 * num_envs),
                     "--buffer", "100000")  # fmt: skip
        points.append(Point(num_envs, arguments, (f"{num_envs:,}",)))
    names = ("environments",)
    report = measure_points(names, points, None, options, watch)
    note = (
        f"Median of {options.repeats} runs, all cores free. One update of 128 rows every 10 steps "
        "of all environments, buffer 100,000. Memory is the whole process's, with TensorFlow."
    )
    return report._replace(title=TITLE.format("DQN"), notes=[note])


def ppo_environments(options: suite.Options, watch: suite.Watch) -> suite.Report:
    """Measure PPO's device loop with 1 to 16,384 environments."""
    points = []
    for num_envs, (steps, minibatches) in PPO_ROLLOUTS.items():
        rows = num_envs * steps
        count = options.count(max(200_000, 4 * rows))
        arguments = ("ppo", "--env-steps", count, "--num-steps", str(steps), "--minibatches",
                     str(minibatches))  # fmt: skip
        shown = (f"{num_envs:,} x {steps}", f"{rows // minibatches:,}")
        points.append(Point(num_envs, arguments, shown))
    core = suite.one_core()
    names = ("environments x steps", "batch")
    report = measure_points(names, points, core, options, watch)
    where = "all cores free" if core is None else f"pinned to core {core}"
    notes = [
        f"Median of {options.repeats} turns, the rows in turn, {where}, 4 epochs. Environments x "
        "steps is one rollout; batch is the rows of one update. Memory is the whole process's, "
        "with TensorFlow and the compiler.",
        *speed_and_memory(report.data["rows"]),
    ]
    return report._replace(title=TITLE.format("PPO"), notes=notes)


def measure_points(
    names: Sequence[str],
    points: Sequence[Point],
    core: int | None,
    options: suite.Options,
    watch: suite.Watch,
) -> suite.Report:
    """Let the points take turns; returns a table of one row each, without title and notes.

    Args:
        names: Columns of the points' `shown`.
        points: The rows.
        core: Core that every process is pinned to, or None.
        options: Options of the command line.
        watch: Shows progress.
    """
    contenders = [
        suite.Contender(
            f"{point.num_envs} environments",
            "kytolly.benchmarks.loops",
            (*point.arguments, "--num-envs", str(point.num_envs)),
        )
        for point in points
    ]
    by_name, _ = suite.run_in_turns(
        contenders, options.repeats, watch, core, all_ours=True, environ={}
    )
    runs = dict(zip((point.num_envs for point in points), by_name.values(), strict=True))
    rows = []
    data = []
    columns = []
    for point in points:
        medians = suite.medians(runs[point.num_envs], "env_steps")
        peaks = [run["peak_memory_mib"] for run in runs[point.num_envs]]
        known = [peak for peak in peaks if peak is not None]
        peak = statistics.median(known) if known else None
        cells = suite.cells(medians, "env_steps")
        columns = [*names, *cells, "peak MiB"]
        memory = "unknown" if peak is None else f"{peak:,.0f}"
        rows.append([*point.shown, *cells.values(), memory])
        row = {"num_envs": point.num_envs, **medians, "peak_memory_mib": peak}
        data.append({**row, "runs": runs[point.num_envs]})
    return suite.Report("", columns, rows, [], {"rows": data, "core": core})


def speed_and_memory(rows: Sequence[Mapping[str, float]]) -> list[str]:
    """Sentences: the fall of the speed after its best, and the growth of memory."""
    lines = [
        speed_fall(rows, clock, name)
        for clock, name in (("wall", "wall time"), ("cpu", "CPU time"))
    ]
    peaks = [(row["num_envs"], row["peak_memory_mib"]) for row in rows]
    if all(peak is not None for _, peak in peaks) and len(peaks) > 1:
        base = peaks[0][1]
        grown = ", ".join(f"{num_envs:,}: {peak - base:+,.0f}" for num_envs, peak in peaks[1:])
        lines.append(f"MiB of peak memory beyond the first row, for each num_envs: {grown}.")
    return lines


def speed_fall(rows: Sequence[Mapping[str, float]], clock: str, name: str) -> str:
    """One sentence on the speed after its best, in wall or in CPU time."""
    best, fall, where = largest_fall([1 / row[f"{clock}_microseconds"] for row in rows])
    begin = f"In {name} the best speed is at {rows[best]['num_envs']:,} environments"
    if where is None:
        return f"{begin}, the most measured."
    verdict = "more" if fall > ALLOWED_FALL else "not more"
    return (
        f"{begin}; after it the lowest is {max(fall, 0.0):.1%} below, at "
        f"{rows[where]['num_envs']:,} environments: {verdict} than {ALLOWED_FALL:.0%}."
    )


def largest_fall(speeds: Sequence[float]) -> tuple[int, float, int | None]:
    """Place of the best speed, the largest share lost after it, and the place of that loss."""
    best = max(range(len(speeds)), key=speeds.__getitem__)
    later = range(best + 1, len(speeds))
    if not later:
        return best, 0.0, None
    where = min(later, key=speeds.__getitem__)
    return best, 1.0 - speeds[where] / speeds[best], where
