"""Trains one command with several seeds, one after the other in one process.

    python scripts/learning_seeds.py --solved 475 0-9 dqn --env CartPole-v1

With `--on CLUSTER` the seeds train on the nodes of a Ray cluster, as by `kytolly train --seeds`.
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
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from kytolly.benchmarks.play_last import EPISODES, play_last
from kytolly.command.entry import main as run_command
from kytolly.command.options import seed_list
from kytolly.experiment.seed_statistics import interval_text, summary
from kytolly.record.metrics_file import evaluations
from kytolly.record.saved_run import read_result

WHOLE = ("--json", "--reward-threshold", "none", "--final-evaluation-episodes", str(EPISODES))


def train_seed(seed: int, flags: Sequence[str], folder: Path, solved: float) -> dict[str, Any]:
    """Train one seed and play its best and its last weights; ValueError where training fails."""
    run_dir = folder / f"seed-{seed}"
    train(["train", *flags, "--seed", str(seed), "--log-dir", str(run_dir), *WHOLE], f"seed {seed}")
    return seed_result(seed, run_dir, solved)


def train_on(
    cluster: str, seeds: Sequence[int], flags: Sequence[str], folder: Path, solved: float
) -> Iterator[dict[str, Any]]:
    """As `train_seed` for all seeds, which train on the nodes of a cluster and are played here."""
    group = ["--seeds", ",".join(map(str, seeds)), "--on", cluster, "--log-dir", str(folder / "g")]
    train(["train", *flags, *group, *WHOLE], "the training")
    for seed in seeds:
        yield seed_result(seed, folder / f"g/seed-{seed}", solved)


def train(command: Sequence[str], name: str) -> None:
    """Run a command of `kytolly` without its output; ValueError gives its errors."""
    output, errors = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors):
        status = run_command(command)
    if status:
        raise ValueError(f"{name} ended with status {status}: {errors.getvalue().strip()}")


def seed_result(seed: int, run_dir: Path, solved: float) -> dict[str, Any]:
    """How a seed did: its best weights, its last ones, and the env steps until it was solved."""
    result = read_result(run_dir) or {}
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
    parser.add_argument("--on", metavar="CLUSTER", help="train on the nodes of a Ray cluster")
    parser.add_argument("seeds", type=seed_list, help="seeds, such as 0-9 or 1,5")
    parser.add_argument(
        "--solved", type=float, default=float("inf"), help="return of a solved task"
    )
    parser.add_argument("flags", nargs=argparse.REMAINDER, help="what `kytolly train` gets")
    arguments = parser.parse_args(argv)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    runs = []
    with tempfile.TemporaryDirectory(prefix="kytolly-seeds-") as folder:
        seeds, rest = arguments.seeds, (arguments.flags, Path(folder), arguments.solved)
        done = (train_seed(seed, *rest) for seed in seeds)
        for run in train_on(arguments.on, seeds, *rest) if arguments.on else done:
            runs.append(run)
            print(json.dumps(run), flush=True)
    print(statistics_text(runs))
    return 0


if __name__ == "__main__":
    sys.exit(main())
