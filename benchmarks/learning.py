"""Returns over seeds: `learning`, `lunar-lander` and the same for PPO.

Each seed is one `kytolly train` with this project's settings for the task, in a process of its
own, two at a time. Two networks of each run then play 100 greedy episodes in fresh environments:
the best one of the evaluations during training, and the last one (`play_last`).
"""

from __future__ import annotations

import concurrent.futures
import importlib.util
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from kytolly.agent.algorithms import part
from kytolly.benchmarks import suite
from kytolly.benchmarks.play_last import EPISODES
from kytolly.config.tuned import tuned_settings
from kytolly.config.words import nearest
from kytolly.experiment.comparison import common_grid
from kytolly.experiment.plots import check_picture
from kytolly.experiment.seed_statistics import CONFIDENCE, RESAMPLES, summary
from kytolly.record.files import write_output
from kytolly.record.metrics_file import evaluations

AT_ONCE = 2  # processes


class Task(NamedTuple):
    """One environment and how long it may take.

    Attributes:
        env: Gymnasium id.
        goal: Return to compare with.
        source: Where the goal comes from.
        loop: Loop that trains.
        algorithm: dqn, ddqn or ppo.
        needs: Package without which there is no environment, and the extra that brings it.
        env_steps: Length of each run; None takes it from this project's settings for the task.
    """

    env: str
    goal: float
    source: str = "rl-baselines3-zoo, one run"
    loop: str = "auto"
    algorithm: str = "dqn"
    needs: tuple[str, str] | None = None
    env_steps: int | None = None

    def length(self) -> int:
        """Env steps of each run."""
        tuned = tuned_settings(self.algorithm, self.env).get("total_env_steps")
        return self.env_steps or tuned or part(self.algorithm, "config")().total_env_steps


BOX2D = ("Box2D", 'pip install "kytolly[box2d]"')
MUJOCO = ("mujoco", 'pip install "kytolly[mujoco]"')
CLASSIC = (
    Task("CartPole-v1", 500.0),
    Task("Acrobot-v1", -76.6, algorithm="ddqn"),
    Task("MountainCar-v0", -100.8),
)
LUNAR_LANDER = Task("LunarLander-v3", 154.0, loop="host", needs=BOX2D)
PPO_CLASSIC = (
    Task("CartPole-v1", 500.0, algorithm="ppo"),
    Task("Acrobot-v1", -73.5, algorithm="ppo"),
    Task("Pendulum-v1", -172.0, algorithm="ppo"),
    Task("MountainCarContinuous-v0", 88.0, algorithm="ppo"),
)
PPO_LUNAR_LANDER = Task("LunarLander-v3", 242.0, loop="host", algorithm="ppo", needs=BOX2D)
PPO_HALF_CHEETAH = Task("HalfCheetah-v5", 5819.0, loop="host", algorithm="ppo", needs=MUJOCO)
PPO_MUJOCO = (
    PPO_HALF_CHEETAH,
    PPO_HALF_CHEETAH._replace(env="Hopper-v5", goal=2410.0),
    PPO_HALF_CHEETAH._replace(env="Walker2d-v5", goal=3479.0),
    PPO_HALF_CHEETAH._replace(env="Ant-v5", goal=1327.0),
    PPO_HALF_CHEETAH._replace(env="Swimmer-v5", goal=282.0),
)


def learning_table(options: suite.Options, watch: suite.Watch) -> suite.Report:
    """Train DQN on the classic tasks, 10 seeds each."""
    return train_tasks(
        "Greedy returns of DQN", select_tasks(CLASSIC, options.env), 10, options, watch
    )


def lunar_lander_table(options: suite.Options, watch: suite.Watch) -> suite.Report:
    """Train DQN on LunarLander in the host loop, 5 seeds."""
    return train_tasks("Greedy returns of DQN, host loop", [LUNAR_LANDER], 5, options, watch)


def ppo_learning_table(options: suite.Options, watch: suite.Watch) -> suite.Report:
    """Train PPO on the classic tasks, 10 seeds each."""
    return train_tasks(
        "Greedy returns of PPO", select_tasks(PPO_CLASSIC, options.env), 10, options, watch
    )


def ppo_lunar_lander_table(options: suite.Options, watch: suite.Watch) -> suite.Report:
    """Train PPO on LunarLander in the host loop, 5 seeds."""
    return train_tasks("Greedy returns of PPO, host loop", [PPO_LUNAR_LANDER], 5, options, watch)


def ppo_mujoco_table(options: suite.Options, watch: suite.Watch) -> suite.Report:
    """Train PPO on MuJoCo's tasks in the host loop, 5 seeds each."""
    tasks = select_tasks(PPO_MUJOCO, options.env)
    return train_tasks("Greedy returns of PPO, host loop", tasks, 5, options, watch)


def select_tasks(tasks: Sequence[Task], env: str | None) -> list[Task]:
    """The task of that environment, or all; ValueError where there is none."""
    chosen = [task for task in tasks if env in (None, task.env)]
    if not chosen:
        known = [task.env for task in tasks]
        raise ValueError(
            f"env is {env!r}, expected one of {', '.join(known)}.{nearest(env, known)}"
        )
    return chosen


def train_tasks(
    title: str, tasks: Sequence[Task], seeds: int, options: suite.Options, watch: suite.Watch
) -> suite.Report:
    """Train and play every seed of every task; returns the table."""
    check_picture(options.figure, "--figure")
    seeds = options.seeds or (seeds if not options.quick else 1)
    tasks = [t._replace(env_steps=2_000 if options.quick else t.length()) for t in tasks]
    able = [t for t in tasks if t.needs is None or importlib.util.find_spec(t.needs[0])]
    watch.begin(len(able) * seeds)
    with (
        tempfile.TemporaryDirectory(prefix="kytolly-learning-") as folder,
        concurrent.futures.ThreadPoolExecutor(AT_ONCE) as workers,
    ):
        futures = {
            task: [
                workers.submit(train_seed, task, seed, Path(folder), watch)
                for seed in range(1, 1 + seeds)
            ]
            for task in able
        }
        runs = {task.env: [f.result() for f in started] for task, started in futures.items()}
    rows = []
    data = []
    for task in tasks:
        if task not in able and task.needs:
            rows.append([f"{task.env}: {task.needs[1]}"])
            data.append({"environment": task.env, "missing": task.needs[1]})
            continue
        task_data = task_summary(task, runs[task.env])
        data.append({**task_data, "runs": runs[task.env]})
        rows.extend(cells(task, task_data))
    notes = [
        f"Interquartile mean over {seeds} seeds of each run's mean over {EPISODES} greedy "
        f"episodes, {CONFIDENCE:.0%} bootstrap interval over seeds ({RESAMPLES:,} resamples). "
        "Best: the weights with the best evaluation during training. Last: the weights at the end. "
        f"Goal: {'; '.join(sorted({task.source for task in tasks}))}.",
        *failures(runs),
        *save_curves(runs, options.figure),
    ]
    columns = ["", "weights", "IQM", "interval", "mean", "worst, best seed", "goal"]
    return suite.Report(title, columns, rows, notes, {"rows": data})


def train_seed(task: Task, seed: int, folder: Path, watch: suite.Watch) -> dict[str, Any]:
    """Train one seed, then play its last weights; a run that fails says why."""
    run_dir = folder / f"{task.env}-{seed}"
    words = ["train", task.algorithm, "--env", task.env, "--loop", task.loop,
             "--seed", str(seed), "--total-env-steps", str(task.length())]  # fmt: skip
    with watch.turn(f"{task.env}, seed {seed}"):
        return run_seed(words, seed, run_dir)


def run_seed(words: Sequence[str], seed: int, run_dir: Path) -> dict[str, Any]:
    """Run `kytolly train` to the end and play both networks; a run that fails says why.

    Args:
        words: The command line after `kytolly`, without the options of every run here.
        seed: The run's, for the result.
        run_dir: Folder of the run.
    """
    whole = ["--reward-threshold", "none", "--final-evaluation-episodes", str(EPISODES)]
    try:
        result = suite.run_module(
            suite.COMMAND, [*words, *whole, "--log-dir", str(run_dir), "--json"]
        )
        last = suite.run_module(
            "kytolly.benchmarks.play_last", [str(run_dir), "--episodes", str(EPISODES), "--trust"]
        )
    except suite.ChildFailed as error:
        return {"seed": seed, "failed": str(error)}
    return {
        "seed": seed,
        "best": result["evaluation"]["return_mean"],
        "last": last["return_mean"],
        "evaluations": evaluations(run_dir),
        "result": result,
    }


def task_summary(task: Task, runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """One task's statistics over its seeds that did not fail."""
    done = [run for run in runs if "failed" not in run]
    result: dict[str, Any] = {
        "environment": task.env,
        "algorithm": task.algorithm,
        "env_steps": task.length(),
    }
    result |= {"goal": task.goal, "goal_source": task.source, "seeds": len(done)}
    for weights in ("best", "last"):
        returns = [run[weights] for run in done]
        result[weights] = summary(returns) if returns else None
    return result


def cells(task: Task, result: Mapping[str, Any]) -> list[list[str]]:
    """A task's rows for the reader: best weights, last weights."""
    rows = []
    goals = {"best": f"{task.goal:g}", "last": ""}
    for weights, goal in goals.items():
        name = (
            f"{task.env}, {task.algorithm}, {task.length():,} env steps"
            if weights == "best"
            else ""
        )
        got = result[weights]
        if got is None:
            rows.append([name, weights, "every seed failed", "", "", "", goal])
            continue
        low, high = got["interval"]
        shown = [f"{got['interquartile_mean']:.1f}", f"{low:.1f}, {high:.1f}", f"{got['mean']:.1f}"]
        rows.append([name, weights, *shown, f"{got['worst']:.1f}, {got['best']:.1f}", goal])
    return rows


def failures(runs: Mapping[str, Sequence[Mapping[str, Any]]]) -> list[str]:
    """A line for each seed that is not in the table."""
    return [
        f"Left out: {env}, seed {run['seed']} failed: {run['failed']}"
        for env, all_seeds in runs.items()
        for run in all_seeds
        if "failed" in run
    ]


def save_curves(runs: Mapping[str, Sequence[Mapping[str, Any]]], path: str | None) -> list[str]:
    """Save the plot if a path is given; returns the line that says so."""
    curves = {
        env: [run["evaluations"] for run in all_seeds if run.get("evaluations")]
        for env, all_seeds in runs.items()
    }
    curves = {env: seeds for env, seeds in curves.items() if seeds}
    if path is None or not curves:
        return []
    figure = make_plot(curves)
    write_output(
        Path(path).expanduser(), lambda to: figure.savefig(to, dpi=150, bbox_inches="tight")
    )
    return [f"Learning curves: {path}"]


def make_plot(curves: Mapping[str, Sequence[Sequence[tuple[int, float]]]]) -> Any:
    """One panel for each environment: every seed, their median and their quartiles."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.6 * len(curves), 3.4))
    panels = figure.subplots(1, len(curves), squeeze=False)[0]
    for panel, (env, evaluated) in zip(panels, curves.items(), strict=True):
        env_steps, returns = common_grid(evaluated)
        low, middle, high = np.quantile(returns, [0.25, 0.5, 0.75], axis=0)
        for one in returns:
            panel.plot(env_steps, one, color="tab:gray", linewidth=0.6, alpha=0.6)
        panel.fill_between(env_steps, low, high, color="tab:blue", alpha=0.25, linewidth=0)
        panel.plot(env_steps, middle, color="tab:blue", linewidth=1.8)
        panel.set_title(f"{env}, {len(evaluated)} seeds: all, median, quartiles", fontsize=9)
        panel.set_xlabel("env steps")
        panel.grid(alpha=0.3)
    panels[0].set_ylabel("mean return of an evaluation")
    figure.tight_layout()
    return figure
