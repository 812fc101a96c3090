"""Seconds from the start of a process to a solved CartPole: the table `start`.

The process is `kytolly train`, as a user starts it: importing TensorFlow, tracing, compiling,
learning, evaluating and saving are all inside. Solved is a mean return of at least `SOLVED` over
100 greedy episodes.
"""

from __future__ import annotations

import math
import statistics
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kytolly.benchmarks import suite

SOLVED = 475.0
SEEDS = 5
FLAGS = ("--env", "CartPole-v1", "--reward-threshold", str(SOLVED), "--evaluation-episodes", "100")


def start_table(options: suite.Options, watch: suite.Watch) -> suite.Report:
    """Time a first start with an empty compile cache, then one start for each seed."""
    seeds = range(1, 1 + (options.seeds or SEEDS))
    watch.begin(1 + len(seeds))
    flags = (*FLAGS, "--total-env-steps", "3000") if options.quick else FLAGS
    with tempfile.TemporaryDirectory(prefix="kytolly-start-") as folder:
        with watch.turn("first start, empty compile cache"):
            first = time_start(Path(folder), 0, flags)
        warm = []
        for seed in seeds:
            with watch.turn(f"seed {seed}, warm compile cache"):
                warm.append(time_start(Path(folder), seed, flags))
    rows = [row("empty cache, seed 0", first)]
    rows += [row(f"warm cache, seed {start['seed']}", start) for start in warm]
    middle = {name: median([start[name] for start in warm]) for name in ("solved", "exited")}
    cells = [seconds(middle["solved"]), seconds(middle["exited"])]
    rows.append([f"warm cache, median of {len(warm)}", *cells, "", "", "", ""])
    notes = [
        "Wall seconds from before the process starts. Solved: the end of the evaluation that "
        "stopped training, when best.keras was written. Exited: after the final evaluation and "
        "all saving. A start that does not solve the task counts as endless."
    ]
    title = "kytolly train dqn " + " ".join(flags)
    columns = [
        "start",
        "solved",
        "exited",
        "compile s",
        "env steps",
        "solving return",
        "final return",
    ]
    return suite.Report(title, columns, rows, notes, {"first": first, "warm": warm, **middle})


def time_start(folder: Path, seed: int, flags: tuple[str, ...]) -> dict[str, Any]:
    """Start, train and exit once; the compile cache lies in `folder`."""
    run_dir = folder / f"seed{seed}"
    arguments = ("train", "dqn", *flags, "--seed", str(seed), "--log-dir", str(run_dir), "--json")
    cache = {"KYTOLLY_COMPILE_CACHE": str(folder / "cache"), "TF_XLA_FLAGS": ""}
    stamp = time.time()
    begin = time.perf_counter()
    result = suite.run_module(suite.COMMAND, arguments, None, cache)
    exited = time.perf_counter() - begin
    solved = result["stopped_by"] == "reward_threshold"
    return {
        "seed": seed,
        "solved": (run_dir / "best.keras").stat().st_mtime - stamp if solved else None,
        "exited": exited if solved else None,
        "wall_seconds": exited,
        "solving_return": solving_return(run_dir),
        "result": result,
    }


def solving_return(run_dir: Path) -> float | None:
    """Mean return of the last evaluation during training."""
    from kytolly.record.metrics_file import evaluations

    returns = evaluations(run_dir)
    return returns[-1][1] if returns else None


def median(values: list[float | None]) -> float | None:
    """Median in which None is endless; None where the median is."""
    middle = statistics.median(math.inf if value is None else value for value in values)
    return middle if math.isfinite(middle) else None


def seconds(value: float | None) -> str:
    """Seconds for the reader."""
    return "not solved" if value is None else f"{value:.1f}"


def row(name: str, start: Mapping[str, Any]) -> list[str]:
    """One start for the reader."""
    result, solving = start["result"], start["solving_return"]
    return [
        name,
        seconds(start["solved"]),
        seconds(start["exited"]),
        f"{result['compile_seconds']:.1f}",
        f"{result['env_steps']:,}",
        "" if solving is None else f"{solving:.1f}",
        f"{result['evaluation']['return_mean']:.1f}",
    ]
