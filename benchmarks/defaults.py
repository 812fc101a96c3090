"""The table `defaults`: tasks that nobody tuned, against the defaults of Stable-Baselines3.

Each seed is one `kytolly train --no-tuned`, in a process of its own. Its best weights, by the
evaluations during training, and its last ones then play 100 greedy episodes in fresh environments.
Stable-Baselines3's numbers come from a file, which `competitors.sb3_defaults` makes with as many
env steps, seeds and episodes.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import importlib.util
import json
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from kytolly.agent.algorithms import ALGORITHMS
from kytolly.benchmarks import suite
from kytolly.benchmarks.default_tasks import TASKS, UNITS, Task
from kytolly.benchmarks.learning import AT_ONCE, run_seed
from kytolly.config.words import nearest
from kytolly.experiment.seed_statistics import (
    CONFIDENCE,
    improvement,
    interquartile_mean,
    interval_text,
    summary,
    tasks_interval,
)
from kytolly.machine.hardware import usable_cores
from kytolly.record.files import write_text

COMPETITOR = Path(__file__).parent / "competitors" / "sb3_defaults.json"
ON_POLICY = ("ppo", "ppo-kl")
SEEDS = 5
NEAR = 0.8  # of the goal: what evaluations after a solved one should stay above

Runs = list[dict[str, Any]]  # of a task, one for each seed


def defaults_table(options: suite.Options, watch: suite.Watch) -> suite.Report:
    """Train an algorithm on its tasks with its defaults; without a name, DQN and PPO."""
    names = [options.algorithm] if options.algorithm else ["dqn", "ppo"]
    for name in names:
        if name not in ALGORITHMS:
            raise ValueError(
                f"--algorithm is {name!r}, expected one of {', '.join(ALGORITHMS)}."
                + nearest(name, list(ALGORITHMS))
            )
    chosen = {name: tasks_of(name, options) for name in names}
    seeds = options.seeds or (1 if options.quick else SEEDS)
    theirs = read_competitor()
    watch.begin(seeds * sum(map(len, chosen.values())))
    rows: list[list[str]] = []
    data: list[dict[str, Any]] = []
    with kept_folder(options.log_dir) as folder:
        for name, tasks in chosen.items():
            runs = train_all(name, tasks, seeds, folder, options, watch)
            made = [task_result(task, name, runs[task.name], theirs) for task in tasks]
            rows += [[name], *map(task_cells, made)]
            total = total_result(name, made, theirs)
            rows.append(total_cells(total))
            data.append({**total, "tasks": made})
    notes = [
        f"Interquartile mean over {seeds} seeds of each run's mean over 100 greedy episodes, with "
        f"its {CONFIDENCE:.0%} bootstrap interval, no setting given. Better: the probability that "
        "a run's last weights beat those of Stable-Baselines3's defaults, with its interval. Of "
        f"the evaluations after the first that solves, falls are below {NEAR:.0%} of the goal.",
        "Normalized: 0 is random play, 1 counts as solved; the interquartile mean over all runs "
        "of all tasks that both have.",
        versions_note(theirs),
    ]
    columns = ["", "last", "best", "SB3's last", "SB3's best", "better", "falls"]
    return suite.Report("Defaults, no tuned settings", columns, rows, notes, {"rows": data})


# --- tasks and runs ------------------------------------------------------------------------


def competitor_of(algorithm: str) -> str:
    """The algorithm of Stable-Baselines3 that one of ours is compared with."""
    return "ppo" if algorithm in ON_POLICY else "dqn"


def tasks_of(algorithm: str, options: suite.Options) -> list[Task]:
    """The tasks of an algorithm that can be played here; ValueError where there is none."""
    known = [task for task in TASKS if competitor_of(algorithm) in task.env_steps]
    named = [task for task in known if options.env in (None, task.env)]
    if not named:
        envs = sorted({task.env for task in known})
        raise ValueError(
            f"--env is {options.env!r}, which {algorithm} has no task for, expected one of "
            f"{', '.join(envs)}.{nearest(options.env or '', envs)}"
        )
    able = [t for t in named if t.needs is None or importlib.util.find_spec(t.needs[0])]
    if not able and named[0].needs:
        raise ValueError(f"{named[0].env} is not installed: {named[0].needs[1]}")
    return able


def train_all(
    algorithm: str,
    tasks: Sequence[Task],
    seeds: int,
    folder: Path,
    options: suite.Options,
    watch: suite.Watch,
) -> dict[str, Runs]:
    """The runs of each task, by its name; those that the folder holds already are not repeated."""
    with concurrent.futures.ThreadPoolExecutor(min(AT_ONCE, usable_cores())) as workers:
        futures = {
            task.name: [
                workers.submit(train_seed, algorithm, task, seed, folder, options.quick, watch)
                for seed in range(1, 1 + seeds)
            ]
            for task in tasks
        }
        return {name: [f.result() for f in started] for name, started in futures.items()}


def train_seed(
    algorithm: str, task: Task, seed: int, folder: Path, quick: bool, watch: suite.Watch
) -> dict[str, Any]:
    """One run: as `learning.run_seed`, in the environment's own rewards."""
    run_dir = folder / algorithm / "".join(c if c.isalnum() else "-" for c in task.name) / str(seed)
    kept = run_dir.with_suffix(".json")
    if kept.is_file():
        with watch.turn(f"{algorithm}, {task.name}, seed {seed}: done before"):
            return json.loads(kept.read_text())
    env_steps = 2_000 if quick else task.env_steps[competitor_of(algorithm)]
    words = ["train", algorithm, "--no-tuned", "--env", task.env, "--seed", str(seed),
             "--total-env-steps", str(env_steps)]  # fmt: skip
    for name, value in task.kwargs.items():
        words += ["--env-kwargs", f"{name}={json.dumps(value)}"]
    if task.units:
        words += ["--wrapper", f"{UNITS[task.units].__module__}:{UNITS[task.units].__name__}"]
    shutil.rmtree(run_dir, ignore_errors=True)  # of a run that was stopped
    with watch.turn(f"{algorithm}, {task.name}, seed {seed}"):
        run = run_seed(words, seed, run_dir)
    if "failed" in run:
        return run
    scale = task.reward_scale
    run |= {weights: run[weights] / scale for weights in ("best", "last")}
    run["evaluations"] = [(steps, value / scale) for steps, value in run["evaluations"]]
    write_text(kept, json.dumps(run))
    return run


@contextlib.contextmanager
def kept_folder(path: str | None) -> Iterator[Path]:
    """The folder of the runs; without a path one that is removed at the end."""
    if path is not None:
        Path(path).mkdir(parents=True, exist_ok=True)
        yield Path(path)
        return
    with tempfile.TemporaryDirectory(prefix="kytolly-defaults-") as folder:
        yield Path(folder)


# --- results -------------------------------------------------------------------------------


def read_competitor() -> dict[str, Any]:
    """The file of Stable-Baselines3's results."""
    return json.loads(COMPETITOR.read_text())


def versions_note(theirs: Mapping[str, Any]) -> str:
    """The versions that the competitor's results come from."""
    made = {tuple(sorted(run["versions"].items())) for run in theirs["runs"]}
    texts = [", ".join(f"{name} {version}" for name, version in one) for one in sorted(made)]
    return f"Stable-Baselines3's runs: {'; '.join(texts)}."


def task_result(
    task: Task, algorithm: str, runs: Runs, theirs: Mapping[str, Any]
) -> dict[str, Any]:
    """A task's statistics, ours and theirs."""
    name = competitor_of(algorithm)
    done = [run for run in runs if "failed" not in run]
    other = [r for r in theirs["runs"] if (r["algorithm"], r["task"]) == (name, task.name)]
    result: dict[str, Any] = {
        "task": task.name,
        "algorithm": algorithm,
        "env_steps": task.env_steps[name],
        "goal": task.goal,
        "failed": [run["failed"] for run in runs if "failed" in run],
        "falls": falls(task.goal, [run["evaluations"] for run in done]),
    }
    for weights in ("last", "best"):
        for side, rows in (("ours", done), ("theirs", other)):
            values = [row[weights] for row in rows]
            result[f"{side}_{weights}"] = summary(values) if values else None
    if done and other:
        pair = [run["last"] for run in done], [run["last"] for run in other]
        result |= improvement([pair])
    return result


def falls(goal: float, runs: Sequence[Sequence[tuple[int, float]]]) -> list[int]:
    """Evaluations far below the goal after one that reached it, and all of those after one."""
    least = goal - (1 - NEAR) * abs(goal)
    low = count = 0
    for evaluated in runs:
        returns = [value for _, value in evaluated]
        first = next((i for i, value in enumerate(returns) if value >= goal), len(returns))
        after = returns[first + 1 :]
        low, count = low + sum(value < least for value in after), count + len(after)
    return [low, count]


def total_result(
    algorithm: str, made: Sequence[Mapping[str, Any]], theirs: Mapping[str, Any]
) -> dict[str, Any]:
    """The statistics over all tasks that both sides have."""
    both = [result for result in made if result["ours_last"] and result["theirs_last"]]
    total: dict[str, Any] = {"algorithm": algorithm, "num_tasks": len(both)}
    if not both:
        return total
    for side in ("ours", "theirs"):
        scores = [
            normalized(result[f"{side}_last"]["returns"], theirs["random"][result["task"]], result)
            for result in both
        ]
        low, high = tasks_interval(scores)
        mean = interquartile_mean(np.concatenate(scores).tolist())
        total[side] = {"interquartile_mean": mean, "interval": [low, high]}
    pairs = [(r["ours_last"]["returns"], r["theirs_last"]["returns"]) for r in both]
    total |= improvement(pairs)
    total["below"] = [r["task"] for r in both if r["probability_interval"][1] < 0.5]
    return total


def normalized(returns: Sequence[float], random: float, result: Mapping[str, Any]) -> np.ndarray:
    """Returns as shares of the way from random play to what counts as solved."""
    return (np.asarray(returns) - random) / (result["goal"] - random)


# --- cells ---------------------------------------------------------------------------------


def task_cells(result: Mapping[str, Any]) -> list[str]:
    """A task's row for the reader."""
    digits = 2 if abs(result["goal"]) < 10 else 1
    shown: list[str] = []
    for side in ("ours", "theirs"):
        last, best = (result[f"{side}_{weights}"] for weights in ("last", "best"))
        mean = f"{best['interquartile_mean']:,.{digits}f}" if best else ""
        shown += [interval_text(last, digits) if last else "", mean]
    low, count = result["falls"]
    name = f"{result['task']}, {result['env_steps'] // 1_000}k"
    failed = f" ({len(result['failed'])} failed: {result['failed'][0]})" if result["failed"] else ""
    better = probability_text(result) if "probability_of_improvement" in result else ""
    return [name + failed, *shown, better, f"{low} of {count}"]


def total_cells(total: Mapping[str, Any]) -> list[str]:
    """The row of all tasks for the reader."""
    name = f"normalized, {total['num_tasks']} tasks"
    if not total["num_tasks"]:
        return [name]
    ours, theirs = (
        "{:.2f} ({:.2f}, {:.2f})".format(one["interquartile_mean"], *one["interval"])
        for one in (total["ours"], total["theirs"])
    )
    below = f"below on {', '.join(total['below'])}" if total["below"] else "nowhere below"
    return [name, ours, "", theirs, "", probability_text(total), below]


def probability_text(result: Mapping[str, Any]) -> str:
    """The probability of improvement and its interval."""
    low, high = result["probability_interval"]
    return f"{result['probability_of_improvement']:.2f} ({low:.2f}, {high:.2f})"
