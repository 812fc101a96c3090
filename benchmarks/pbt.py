"""Population-based training against random search and the tuned settings: the table `pbt`.

All sides take the same env steps in all. Random search is the same population without the choices:
its members begin with the same numbers and go on to the end, and the best one counts. The tuned
settings are one run. What each side ends with plays episodes that decided nothing before.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from kytolly.benchmarks import suite
from kytolly.experiment.seed_statistics import interval_text, probability_of_improvement, summary

ENVS = ("Acrobot-v1", "Pendulum-v1")
MEMBERS, ENV_STEPS, INTERVAL = 32, 1_000_000, 4_096
SEEDS = 5
EPISODES = 200
PLAY_SEED = 10_000  # of no evaluation during training


def pbt_table(options: suite.Options, watch: suite.Watch) -> suite.Report:
    """Train all sides on each environment with each seed."""
    envs = [env for env in ENVS if options.env in (None, env)]
    if not envs:
        raise ValueError(f"env is {options.env!r}, expected one of {', '.join(ENVS)}.")
    seeds = options.seeds or (1 if options.quick else SEEDS)
    members, total = (2, 20_000) if options.quick else (MEMBERS, ENV_STEPS)
    each = ("--total-env-steps", str(total // members), "--evaluation-episodes", "50")
    often = ("--evaluation-interval-env-steps", str(INTERVAL))
    population = ("--pbt", "--population", str(members), *each, *often)
    sides = {
        "population-based": (*population, "--interval", str(INTERVAL)),
        "random search": (*population, "--interval", str(total)),
        "tuned settings": ("--total-env-steps", str(total), "--reward-threshold", "none"),
    }
    watch.begin(len(envs) * seeds * len(sides))
    rows: list[list[str]] = []
    data: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="kytolly-pbt-") as folder:
        for env in envs:
            returns: dict[str, list[float]] = {name: [] for name in sides}
            for seed in range(1, 1 + seeds):
                for name, words in sides.items():
                    with watch.turn(f"{env}, {name}, seed {seed}"):
                        run_dir = Path(folder) / f"{env}-{name.replace(' ', '-')}-{seed}"
                        returns[name].append(trained(env, seed, words, run_dir))
            for name, values in returns.items():
                shown, numbers = row(env, name, values, returns["population-based"])
                rows.append(shown)
                data.append(numbers)
    notes = [
        f"{total:,} env steps a side and seed: {members} members of {total // members:,}, or one "
        f"run. Mean return of {EPISODES} episodes that decided nothing before, over {seeds} seeds: "
        "interquartile mean, 95% bootstrap interval. The last column is the probability that "
        "population-based training of one seed is above this side with another."
    ]
    columns = ["", "side", "IQM, interval", "worst, best seed", "P(above)"]
    title = "PPO: population-based training against the same env steps without"
    return suite.Report(title, columns, rows, notes, {"rows": data})


def trained(env: str, seed: int, words: tuple[str, ...], run_dir: Path) -> float:
    """Mean return of what a side ends with."""
    command = ("train", "ppo", "--env", env, "--seed", str(seed), *words)
    result = suite.run_module(suite.COMMAND, [*command, "--log-dir", str(run_dir), "--json"])
    best = result.get("winner", str(run_dir))
    played = ("evaluate", best, "--episodes", str(EPISODES), "--seed", str(PLAY_SEED), "--json")
    return suite.run_module(suite.COMMAND, played)["evaluation"]["return_mean"]


def row(
    env: str, name: str, values: list[float], ours: list[float]
) -> tuple[list[str], dict[str, Any]]:
    """A side's cells and numbers."""
    got = summary(values)
    above = None if values is ours else float(probability_of_improvement(ours, values))
    shown = [
        env if values is ours else "",
        name,
        interval_text(got),
        f"{got['worst']:.1f}, {got['best']:.1f}",
        "" if above is None else f"{above:.2f}",
    ]
    return shown, {"environment": env, "side": name, "returns": values, **got, "above": above}
