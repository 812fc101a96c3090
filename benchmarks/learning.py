"""How well it learns, over seeds: `learning`, `lunar-lander` and the same for PPO.

Each seed is one `kytolly train` with this project's settings for the task, in a process of its
own, two at a time. Two networks of each run are judged by 100 greedy episodes in fresh
environments: the best one (of the evaluations during training; the episodes here are others) and
the last one. The latter is what this program plays, from a run's newest checkpoint::

    python -m kytolly.benchmarks.learning RUN --episodes 100
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

from kytolly.agent.algorithms import make_config, part
from kytolly.benchmarks import suite
from kytolly.benchmarks.competitors import print_result
from kytolly.benchmarks.learning_curves import check_picture, evaluations, pictured
from kytolly.config.tuned import tuned_settings

AT_ONCE = 2  # processes
EPISODES = 100
RESAMPLES = 10_000
CONFIDENCE = 0.95


class Task(NamedTuple):
    """One environment and how long it may take.

    Attributes:
        env: Gymnasium id.
        goal: The return to compare with, and where it comes from.
        source: Of the goal.
        loop: Which loop trains.
        algorithm: dqn, ddqn or ppo.
        needs: Package without which there is no environment, and the extra that brings it.
        env_steps: Length of each run; None takes that of this project's settings for the task.
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
        own = tuned_settings(self.algorithm, self.env).get("total_env_steps")
        return self.env_steps or own or part(self.algorithm, "config")().total_env_steps


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
PPO_HALF_CHEETAH = Task(
    "HalfCheetah-v5",
    3000.0,
    source="this project's aim",
    loop="host",
    algorithm="ppo",
    needs=MUJOCO,
    env_steps=1_000_000,
)


def learning_table(options: suite.Options, watch: suite.Watch) -> suite.Report:
    """DQN on the classic tasks, 10 seeds each."""
    return table("Greedy returns of DQN", chosen(CLASSIC, options.env), 10, options, watch)


def lunar_lander_table(options: suite.Options, watch: suite.Watch) -> suite.Report:
    """DQN on LunarLander in the host loop, 5 seeds."""
    return table("Greedy returns of DQN, host loop", [LUNAR_LANDER], 5, options, watch)


def ppo_learning_table(options: suite.Options, watch: suite.Watch) -> suite.Report:
    """PPO on the classic tasks, 10 seeds each."""
    return table("Greedy returns of PPO", chosen(PPO_CLASSIC, options.env), 10, options, watch)


def ppo_lunar_lander_table(options: suite.Options, watch: suite.Watch) -> suite.Report:
    """PPO on LunarLander in the host loop, 5 seeds."""
    return table("Greedy returns of PPO, host loop", [PPO_LUNAR_LANDER], 5, options, watch)


def ppo_half_cheetah_table(options: suite.Options, watch: suite.Watch) -> suite.Report:
    """PPO on HalfCheetah in the host loop, 3 seeds."""
    return table("Greedy returns of PPO, host loop", [PPO_HALF_CHEETAH], 3, options, watch)


def chosen(tasks: Sequence[Task], env: str | None) -> list[Task]:
    """The task of that environment, or all; ValueError where there is none."""
    found = [task for task in tasks if env in (None, task.env)]
    if not found:
        known = [task.env for task in tasks]
        hint = "".join(
            f" Did you mean {near}?" for near in difflib.get_close_matches(str(env), known, 1, 0.4)
        )
        raise ValueError(f"env is {env!r}, expected one of {', '.join(known)}.{hint}")
    return found


def table(
    title: str, tasks: Sequence[Task], seeds: int, options: suite.Options, watch: suite.Watch
) -> suite.Report:
    """Train every seed of every task, and judge it."""
    check_picture(options.figure)
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
        "Best: the weights that did best in evaluations during training; last: those at the end. "
        f"Goal: {'; '.join(sorted({task.source for task in tasks}))}.",
        *failures(runs),
        *pictured(runs, options.figure),
    ]
    columns = ["", "weights", "IQM", "interval", "mean", "worst, best seed", "goal"]
    return suite.Report(title, columns, rows, notes, {"rows": data})


def trained(task: Task, seed: int, folder: Path, watch: suite.Watch) -> dict[str, Any]:
    """Train one seed, then play its last weights; a run that fails says why."""
    run_dir = folder / f"{task.env}-{seed}"
    arguments = ["train", task.algorithm, "--env", task.env, "--loop", task.loop,
                 "--seed", str(seed), "--total-env-steps", str(task.length()),
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
        "env_steps": task.length(),
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
    goals = {"best": f"{task.goal:g}", "last": ""}
    for weights, goal in goals.items():
        name = (
            f"{task.env}, {task.algorithm}, {task.length():,} env steps"
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


# --- the last weights ----------------------------------------------------------------------


def play_last(run: str, episodes: int) -> dict[str, Any]:
    """Greedy episodes with the weights in a run's newest checkpoint."""
    from kytolly.trainer import FINAL_SEED  # isort: skip  (checks the backend before Keras is imported)
    from kytolly.agent.factory import make_agent
    from kytolly.loop.world import choose_world
    from kytolly.record.checkpoint import restore
    from kytolly.record.run_folder import RunFolder

    folder = RunFolder.existing(run)
    settings, env = folder.read_settings()
    cfg = make_config(settings)
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
        prog="python -m kytolly.benchmarks.learning",
        description="play the last weights of a run greedily",
        allow_abbrev=False,
    )
    parser.add_argument("run", metavar="RUN", help="folder of the run")
    parser.add_argument("--episodes", type=int, default=EPISODES, help="episodes to play")
    arguments = parser.parse_args(argv)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    from kytolly.machine.configure import configure_gpu_optimization

    configure_gpu_optimization(verbose=False)
    print_result(play_last(arguments.run, arguments.episodes))
    return 0


if __name__ == "__main__":
    sys.exit(main())
