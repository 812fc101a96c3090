"""Stable-Baselines3's defaults on the tasks of the table `defaults`, kept as a file of results.

    python -m kytolly.benchmarks.competitors.sb3_defaults

It trains DQN and PPO with `MlpPolicy` and no other setting, several seeds of each task, one process
a run, and adds each run to `sb3_defaults.json`, which the table reads. Runs that are in the file
are not made again: delete it to measure anew. A run needs stable-baselines3, the environment's own
package and, for MinAtar, `minatar`.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
import itertools
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kytolly.benchmarks import suite
from kytolly.benchmarks.default_tasks import ALGORITHMS, TASKS, Task, make_env
from kytolly.benchmarks.program import Program, Result, require, run_program, versions
from kytolly.config.fields import setting
from kytolly.record.files import write_text

if TYPE_CHECKING:
    from stable_baselines3.common.base_class import BaseAlgorithm

FILE = Path(__file__).with_suffix(".json")
MODULE = "kytolly.benchmarks.competitors.sb3_defaults"
EPISODES = 100  # of the best and of the last weights
EVALUATIONS = 10  # during training, of 20 episodes each, among which the best weights are found
EVALUATION_EPISODES = 20
RANDOM = "random"
PACKAGES = ("stable-baselines3", "torch", "gymnasium", "numpy")


@dataclasses.dataclass(frozen=True, kw_only=True)
class SeedSettings:
    """One run, or all that the file lacks where no task is named."""

    task: str = setting("", "name of the task; all tasks that the file lacks without it")
    algorithm: str = setting("dqn", "dqn, ppo, or random for random play")
    seed: int = setting(1, "seed of the run")
    seeds: int = setting(5, "seeds of each task that the file shall hold")
    at_once: int = setting(1, "processes at a time")


def run(settings: SeedSettings) -> Result:
    """One run in this process, or the runs that the file lacks, each in its own."""
    if settings.task:
        task = next(task for task in TASKS if task.name == settings.task)
        if settings.algorithm == RANDOM:
            return {"return": random_return(task)}
        return train(task, settings.algorithm, settings.seed)
    return fill_file(settings.seeds, settings.at_once)


def train(task: Task, algorithm: str, seed: int) -> Result:
    """Train with the library's defaults; returns what the best and the last weights got."""
    torch, library = require("torch", "stable_baselines3")
    torch.set_num_threads(1)
    from stable_baselines3.common.callbacks import EvalCallback
    from stable_baselines3.common.env_util import make_vec_env

    env_steps = task.env_steps[algorithm]
    kind = {"dqn": library.DQN, "ppo": library.PPO}[algorithm]
    model = kind("MlpPolicy", make_vec_env(lambda: make_env(task)), seed=seed, device="cpu")
    evaluated = make_vec_env(lambda: make_env(task), n_envs=10, seed=10_000 + seed)
    with tempfile.TemporaryDirectory() as folder:
        best = EvalCallback(
            evaluated,
            n_eval_episodes=EVALUATION_EPISODES,
            eval_freq=env_steps // EVALUATIONS,
            best_model_save_path=folder,
            verbose=0,
        )
        model.learn(env_steps, callback=best)
        last = mean_return(task, model, seed)
        best_model = kind.load(f"{folder}/best_model", device="cpu")
        return {
            "last": last,
            "best": mean_return(task, best_model, seed),
            "env_steps": env_steps,
            "cpu_seconds": os.times().user,
            "versions": versions(*PACKAGES),
        }


def mean_return(task: Task, model: BaseAlgorithm, seed: int) -> float:
    """Mean over greedy episodes in fresh environments, in the environment's own rewards."""
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.evaluation import evaluate_policy

    env = make_vec_env(lambda: make_env(task), n_envs=10, seed=20_000 + seed)
    mean, _ = evaluate_policy(model, env, n_eval_episodes=EPISODES)
    return float(mean) / task.reward_scale


def random_return(task: Task) -> float:
    """Mean return of random actions over as many episodes."""
    env = make_env(task)
    env.action_space.seed(0)
    total = 0.0
    for episode in range(EPISODES):
        env.reset(seed=episode)
        ended = False
        while not ended:
            _, reward, terminated, truncated, _ = env.step(env.action_space.sample())
            total += float(reward)
            ended = terminated or truncated
    return total / EPISODES / task.reward_scale


def fill_file(seeds: int, at_once: int) -> Result:
    """Make the runs that the file lacks: all tasks of a seed, then the next; other units last."""
    table = json.loads(FILE.read_text()) if FILE.is_file() else {"random": {}, "runs": []}

    def add(missing: tuple[str, str, int]) -> None:
        algorithm, name, seed = missing
        words = ["--task", name, "--algorithm", algorithm, "--seed", str(seed)]
        try:
            result = suite.run_module(MODULE, words, environ={"OMP_NUM_THREADS": "1"})
        except suite.ChildFailed as error:
            print(f"{algorithm}, {name}, seed {seed}: {error}", file=sys.stderr)
            return
        if algorithm == RANDOM:
            table["random"][name] = result["return"]
        else:
            row = {"algorithm": algorithm, "task": name, "seed": seed, **result}
            table["runs"].append(row)
            print(row, file=sys.stderr)
        write_text(FILE, file_text(table))

    with concurrent.futures.ThreadPoolExecutor(at_once) as workers:
        list(workers.map(add, list(missing_runs(table, seeds))))
    return {"runs": len(table["runs"]), "file": str(FILE)}


def missing_runs(table: dict[str, Any], seeds: int) -> Iterator[tuple[str, str, int]]:
    """Algorithm, task and seed of what the file lacks."""
    done = {(row["algorithm"], row["task"], row["seed"]) for row in table["runs"]}
    for task in TASKS:
        if task.name not in table["random"]:
            yield RANDOM, task.name, 0
    for units, seed in itertools.product((False, True), range(1, 1 + seeds)):
        for task, algorithm in itertools.product(TASKS, ALGORITHMS):
            run = (algorithm, task.name, seed)
            if bool(task.units) == units and algorithm in task.env_steps and run not in done:
                yield run


def file_text(table: dict[str, Any]) -> str:
    """The file: a line for each run."""
    rows = sorted(table["runs"], key=lambda row: (row["algorithm"], row["task"], row["seed"]))
    lines = ",\n".join(json.dumps(row) for row in rows)
    random = json.dumps(table["random"], indent=1, sort_keys=True)
    return f'{{"random": {random},\n"runs": [\n{lines}\n]}}\n'


PROGRAM = Program(run, (SeedSettings,))

if __name__ == "__main__":
    sys.exit(run_program(PROGRAM, __doc__))
