"""How well it learns, over seeds: the tables `learning` and `lunar-lander`.

Each seed is one `kytolly train` with this project's settings for the task, in a process of its
own, two at a time. Two networks of each run are judged by 100 greedy episodes in fresh
environments: the best one (of the evaluations during training; the episodes here are others) and
the last one. The latter is what this program plays, from a run's newest checkpoint::

    python -m benchmarks.learning RUN --episodes 100
"""

from __future__ import annotations

import argparse
import concurrent.futures
import dataclasses
import difflib
import importlib.util
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks import suite
from benchmarks.competitors import print_result

AT_ONCE = 2  # processes
EPISODES = 100
RESAMPLES = 10_000
CONFIDENCE = 0.95


class Task(NamedTuple):
    """One environment and how long it may take.

    Attributes:
        env: Gymnasium id.
        env_steps: Length of each run.
        goal: The return to compare with, and where it comes from.
        source: Of the goal.
        loop: Which loop trains.
        algorithm: dqn or ddqn.
        needs: Package without which there is no environment, and the extra that brings it.
    """

    env: str
    env_steps: int
    goal: float
    source: str = "rl-baselines3-zoo, one run"
    loop: str = "auto"
    algorithm: str = "dqn"
    needs: tuple[str, str] | None = None


CLASSIC = (
    Task("CartPole-v1", 50_000, 500.0),
    Task("Acrobot-v1", 100_000, -76.6, algorithm="ddqn"),
    Task("MountainCar-v0", 120_000, -100.8),
)
LUNAR_LANDER = Task(
    "LunarLander-v3", 100_000, 154.0, loop="host", needs=("Box2D", 'pip install "kytolly[box2d]"')
)


def learning_table(options: suite.Options, watch: suite.Watch) -> suite.Report:
    """The classic tasks, 10 seeds each."""
    tasks = [task for task in CLASSIC if options.env in (None, task.env)]
    if not tasks:
        known = [task.env for task in CLASSIC]
        hint = "".join(
            f" Did you mean {near}?"
            for near in difflib.get_close_matches(str(options.env), known, 1, 0.4)
        )
        raise ValueError(f"env is {options.env!r}, expected one of {', '.join(known)}.{hint}")
    return table("Greedy returns of DQN", tasks, 10, options, watch)


def lunar_lander_table(options: suite.Options, watch: suite.Watch) -> suite.Report:
    """LunarLander in the host loop, 5 seeds."""
    return table("Greedy returns of DQN, host loop", [LUNAR_LANDER], 5, options, watch)


def table(
    title: str, tasks: Sequence[Task], seeds: int, options: suite.Options, watch: suite.Watch
) -> suite.Report:
    """Train every seed of every task, and judge it."""
    check_picture(options.figure)
    seeds = options.seeds or (seeds if not options.quick else 1)
    tasks = [t._replace(env_steps=2_000) for t in tasks] if options.quick else list(tasks)
    able = [t for t in tasks if t.needs is None or importlib.util.find_spec(t.needs[0])]
    watch.begin(len(able) * seeds)
    with (
        tempfile.TemporaryDirectory(prefix="kytolly-learning-") as folder,
        concurrent.futures.ThreadPoolExecutor(AT_ONCE) as workers,
    ):
        futures = {
            task: [
                workers.submit(trained, task, seed, Path(folder), watch)
                for seed in range(1, 1 + seeds)
            ]
            for task in able
        }
        runs = {task.env: [f.result() for f in started] for task, started in futures.items()}
    rows, data = [], []
    for task in tasks:
        if task not in able and task.needs:
            rows.append([f"{task.env}: {task.needs[1]}"])
            data.append({"environment": task.env, "missing": task.needs[1]})
            continue
        figures = judged(task, runs[task.env])
        data.append({**figures, "runs": runs[task.env]})
        rows.extend(cells(task, figures))
    notes = [
        f"Interquartile mean over {seeds} seeds of each run's mean over {EPISODES} greedy "
        f"episodes, {CONFIDENCE:.0%} bootstrap interval over seeds ({RESAMPLES:,} resamples). "
        "Best: the weights that did best in evaluations during training; last: those at the end.",
        *failures(runs),
        *pictured(runs, options.figure),
    ]
    columns = ["", "weights", "IQM", "interval", "mean", "worst, best seed", "goal"]
    return suite.Report(title, columns, rows, notes, {"rows": data})


def trained(task: Task, seed: int, folder: Path, watch: suite.Watch) -> dict[str, Any]:
    """Train one seed, then play its last weights; a run that fails says why."""
    run_dir = folder / f"{task.env}-{seed}"
    arguments = ["train", task.algorithm, "--env", task.env, "--loop", task.loop,
                 "--seed", str(seed), "--total-env-steps", str(task.env_steps),
                 "--reward-threshold", "none", "--final-evaluation-episodes",
                 str(EPISODES), "--log-dir", str(run_dir), "--json"]  # fmt: skip
    with watch.turn(f"{task.env}, seed {seed}"):
        try:
            result = suite.child("cli", arguments)
            last = suite.child("benchmarks.learning", [str(run_dir), "--episodes", str(EPISODES)])
        except suite.ChildFailed as error:
            return {"seed": seed, "failed": str(error)}
    return {
        "seed": seed,
        "best": result["evaluation"]["return_mean"],
        "last": last["return_mean"],
        "evaluations": evaluations(run_dir),
        "result": result,
    }


def judged(task: Task, runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The figures of one task over its seeds that did not fail."""
    done = [run for run in runs if "failed" not in run]
    found: dict[str, Any] = {
        "environment": task.env,
        "algorithm": task.algorithm,
        "env_steps": task.env_steps,
    }
    found |= {"goal": task.goal, "goal_source": task.source, "seeds": len(done)}
    for weights in ("best", "last"):
        returns = [run[weights] for run in done]
        found[weights] = summary(returns) if returns else None
    return found


def summary(returns: Sequence[float]) -> dict[str, Any]:
    """Interquartile mean with its bootstrap interval, and plainer figures, over seeds."""
    low, high = interval(returns)
    return {
        "interquartile_mean": interquartile_mean(returns),
        "interval": [low, high],
        "mean": float(np.mean(returns)),
        "worst": min(returns),
        "best": max(returns),
        "returns": list(returns),
    }


def interquartile_mean(returns: Sequence[float]) -> float:
    """Mean without the lowest and the highest quarter.

    Source: Agarwal et al. 2021, arXiv:2108.13264, "Deep Reinforcement Learning at the Edge of the
    Statistical Precipice".
    """
    from scipy import stats

    return float(stats.trim_mean(np.asarray(returns, float), 0.25))


def interval(returns: Sequence[float]) -> tuple[float, float]:
    """Percentile bootstrap interval of the interquartile mean; one seed has none."""
    values = np.asarray(returns, float)
    if len(values) == 1:
        return values[0].item(), values[0].item()
    draws = np.random.default_rng(0).integers(len(values), size=(RESAMPLES, len(values)))
    from scipy import stats

    means = stats.trim_mean(values[draws], 0.25, axis=1)
    low, high = np.quantile(means, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return float(low), float(high)


def cells(task: Task, figures: Mapping[str, Any]) -> list[list[str]]:
    """A task's rows for the reader: best weights, last weights."""
    rows = []
    goals = {"best": f"{task.goal:g} ({task.source})", "last": ""}
    for weights, goal in goals.items():
        name = (
            f"{task.env}, {task.algorithm}, {task.env_steps:,} env steps"
            if weights == "best"
            else ""
        )
        got = figures[weights]
        if got is None:
            rows.append([name, weights, "every seed failed", "", "", "", goal])
            continue
        low, high = got["interval"]
        shown = [f"{got['interquartile_mean']:.1f}", f"{low:.1f}, {high:.1f}", f"{got['mean']:.1f}"]
        rows.append([name, weights, *shown, f"{got['worst']:.1f}, {got['best']:.1f}", goal])
    return rows


def failures(runs: Mapping[str, Sequence[Mapping[str, Any]]]) -> list[str]:
    """A line for each seed that is not in the figures."""
    return [
        f"Left out: {env}, seed {run['seed']} failed: {run['failed']}"
        for env, all_seeds in runs.items()
        for run in all_seeds
        if "failed" in run
    ]


# --- learning curves -----------------------------------------------------------------------


def evaluations(run_dir: Path) -> list[tuple[int, float]]:
    """Env steps and mean return of every evaluation during a run."""
    from callback.csv_log import NAME, read_rows

    column = "evaluation_return_mean"
    rows = read_rows(run_dir / NAME)
    return [(int(row["env_steps"]), float(row[column])) for row in rows if row.get(column)]


def check_picture(path: str | None) -> None:
    """Refuse a place where no picture can be saved, before hours are spent on it."""
    from matplotlib.figure import Figure

    if path is None:
        return
    known, found = Figure().canvas.get_supported_filetypes(), Path(path).suffix[1:].lower()
    if found not in known:
        raise ValueError(
            f"--figure is {path!r}, expected the name of a picture that ends with "
            f"{', '.join(f'.{name}' for name in sorted(known))}."
        )
    try:
        Path(path).expanduser().absolute().parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(
            f"--figure {path} cannot be written ({error.strerror}). Choose another folder."
        ) from None


def pictured(runs: Mapping[str, Sequence[Mapping[str, Any]]], path: str | None) -> list[str]:
    """Save the picture where it was asked for; returns the line that says so."""
    curves = {
        env: [run["evaluations"] for run in all_seeds if run.get("evaluations")]
        for env, all_seeds in runs.items()
    }
    curves = {env: found for env, found in curves.items() if found}
    if path is None or not curves:
        return []
    make_figure(curves).savefig(Path(path).expanduser(), dpi=150, bbox_inches="tight")
    return [f"Learning curves: {path}"]


def on_one_grid(curves: Sequence[Sequence[tuple[int, float]]]) -> tuple[np.ndarray, np.ndarray]:
    """Env steps [T] and returns [N, T] of N runs, each as far as the shortest went.

    Runs of one task evaluate at the same env steps; where one does not, its returns are
    interpolated.
    """
    arrays = [np.asarray(curve, float) for curve in curves]
    end = min(array[-1, 0] for array in arrays)
    grid = arrays[0][:, 0]
    grid = grid[grid <= end]
    return grid, np.stack([np.interp(grid, array[:, 0], array[:, 1]) for array in arrays])


def make_figure(curves: Mapping[str, Sequence[Sequence[tuple[int, float]]]]) -> Any:
    """One panel for each environment: every seed, their median and their quartiles."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.6 * len(curves), 3.4))
    panels = figure.subplots(1, len(curves), squeeze=False)[0]
    for panel, (env, found) in zip(panels, curves.items(), strict=True):
        env_steps, returns = on_one_grid(found)
        low, middle, high = np.quantile(returns, [0.25, 0.5, 0.75], axis=0)
        for one in returns:
            panel.plot(env_steps, one, color="tab:gray", linewidth=0.6, alpha=0.6)
        panel.fill_between(env_steps, low, high, color="tab:blue", alpha=0.25, linewidth=0)
        panel.plot(env_steps, middle, color="tab:blue", linewidth=1.8)
        panel.set_title(f"{env}, {len(found)} seeds: all, median, quartiles", fontsize=9)
        panel.set_xlabel("env steps")
        panel.grid(alpha=0.3)
    panels[0].set_ylabel("mean return of an evaluation")
    figure.tight_layout()
    return figure


# --- the last weights ----------------------------------------------------------------------


def play_last(run: str, episodes: int) -> dict[str, Any]:
    """Greedy episodes with the weights in a run's newest checkpoint."""
    from trainer import FINAL_SEED  # isort: skip  (checks the backend before Keras is imported)
    from agent.factory import make_agent
    from callback.checkpoint import restore
    from callback.run_folder import RunFolder
    from loop.world import choose_world

    folder = RunFolder.existing(run)
    cfg, env = folder.read_config()
    world = choose_world(cfg, env)
    agent = make_agent(cfg, world.spec)
    loop = world.loop(agent, None)
    try:
        checkpoint = restore(folder.path, {"agent": agent, **loop.trackables})
        judge = world.evaluator(
            agent.policy.network, episodes, cfg.seed + FINAL_SEED, xla=cfg.xla, device=None
        )
        found = dataclasses.asdict(judge.evaluate())
    finally:
        loop.close()
    found.pop("returns")
    return {**found, "env_steps": int(agent.env_steps.numpy()), "checkpoint": checkpoint}


def main(argv: list[str] | None = None) -> int:
    """Play a run's last weights and print the figures as one line of JSON."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.learning",
        description="play the last weights of a run greedily",
        allow_abbrev=False,
    )
    parser.add_argument("run", metavar="RUN", help="folder of the run")
    parser.add_argument("--episodes", type=int, default=EPISODES, help="episodes to play")
    arguments = parser.parse_args(argv)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    from gpu_optimize import configure_gpu_optimization

    configure_gpu_optimization(verbose=False)
    print_result(play_last(arguments.run, arguments.episodes))
    return 0


if __name__ == "__main__":
    sys.exit(main())
