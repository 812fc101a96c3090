"""Trains one command with several seeds, one after the other in one process.

    python scripts/learning_seeds.py --solved 475 0-9 dqn --env CartPole-v1

What follows the seeds goes to `kytolly train`. The return of a seed is the mean of 100 greedy
episodes of its best weights, and of its last ones. Solved is the first evaluation during training
whose mean return is at least `--solved`, in env steps. Cheaper than `kytolly benchmark learning`,
which starts two processes for each seed.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kytolly.benchmarks.play_last import EPISODES, play_last
from kytolly.command.entry import main as run_command
from kytolly.command.options import seed_list
from kytolly.experiment.seed_statistics import interval_text, summary
from kytolly.record.metrics_file import evaluations


def train_seed(seed: int, flags: Sequence[str], folder: Path, solved: float) -> dict[str, Any]:
    """Train one seed and play its best and its last weights; ValueError where training fails."""
    run_dir, output = folder / str(seed), io.StringIO()
    command = ["train", *flags, "--seed", str(seed), "--log-dir", str(run_dir), "--json",
               "--reward-threshold", "none", "--final-evaluation-episodes",
               str(EPISODES)]  # fmt: skip
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(io.StringIO()) as errors:
        status = run_command(command)
    if status:
        raise ValueError(f"seed {seed} ended with status {status}: {errors.getvalue().strip()}")
    result = json.loads(output.getvalue().splitlines()[-1])
    reached = [steps for steps, mean in evaluations(run_dir) if mean >= solved]
    return {
        "seed": seed,
        "best": result["evaluation"]["return_mean"],
        "last": play_last(str(run_dir), EPISODES)["return_mean"],
        "solved": min(reached, default=None),
    }


def statistics_text(runs: Sequence[dict[str, Any]]) -> str:
    """The statistics over seeds as lines of text."""
    lines = []
    for weights in ("best", "last"):
        returns = summary([run[weights] for run in runs])
        lines.append(
            f"{weights} weights: IQM {interval_text(returns)}, mean {returns['mean']:.1f}, "
            f"worst {returns['worst']:.1f}, best {returns['best']:.1f}"
        )
    steps = [float("inf") if run["solved"] is None else run["solved"] for run in runs]
    lines.append(f"solved after: median {statistics.median(steps):,.0f}, last {max(steps):,.0f}")
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> int:
    """Train the seeds and print a line for each, then their statistics."""
    parser = argparse.ArgumentParser(
        prog="python scripts/learning_seeds.py",
        description="train several seeds in one process and play their best and last weights",
        allow_abbrev=False,
    )
    parser.add_argument("seeds", type=seed_list, help="seeds, such as 0-9 or 1,5")
    parser.add_argument(
        "--solved", type=float, default=float("inf"), help="return of a solved task"
    )
    parser.add_argument("flags", nargs=argparse.REMAINDER, help="what `kytolly train` gets")
    arguments = parser.parse_args(argv)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    runs = []
    with tempfile.TemporaryDirectory(prefix="kytolly-seeds-") as folder:
        for seed in arguments.seeds:
            runs.append(train_seed(seed, arguments.flags, Path(folder), arguments.solved))
            print(json.dumps(runs[-1]), flush=True)
    print(statistics_text(runs))
    return 0


if __name__ == "__main__":
    sys.exit(main())
