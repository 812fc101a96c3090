"""`kytolly train --pbt`: population-based training in one program."""

from __future__ import annotations

import argparse
import dataclasses
import json
import shlex
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kytolly.agent.algorithms import make_config
from kytolly.command.exits import BadInput, end_of_many
from kytolly.command.options import Settings
from kytolly.command.result import print_line, print_table
from kytolly.command.start import prepare_machine
from kytolly.config.files import read_settings
from kytolly.config.run import RunConfig
from kytolly.config.words import path_text
from kytolly.experiment.members import GROUP_FILE, member_names
from kytolly.experiment.pbt import PopulationBased, config_for_pbt
from kytolly.record.files import write_text
from kytolly.record.run_folder import RunFolder, versions, yaml_text
from kytolly.record.saved_run import read_result

MEMBERS = 16
INTERVALS = 20  # in a run
WINNER = "winner.yaml"

GivenConfig = Callable[[argparse.Namespace], tuple[RunConfig, str]]


def run(args: argparse.Namespace, flags: Settings, given_config: GivenConfig) -> int:
    """Train the population and print how its members did.

    Args:
        args: The options of `kytolly train`.
        flags: The settings among them.
        given_config: Makes the config and the environment of a new run from the options.
    """
    for flag, value in {
        "--seeds": args.seeds,
        "--profile": args.profile,
        "--init": args.init,
    }.items():
        if value:
            raise BadInput(f"{flag} and --pbt do not go together. Leave one out.")
    folder, cfg, env, size, interval = (
        resumed(args, flags) if args.resume else begun(args, flags, given_config)
    )
    with folder:
        try:
            return train(folder, cfg, env, PopulationBased(cfg, size, interval, folder.path), args)
        except ValueError:
            folder.remove_if_empty()
            raise
        except KeyboardInterrupt:
            raise KeyboardInterrupt(
                f"The members are saved as far as they came. {continue_words(folder, cfg)}"
            ) from None


def begun(
    args: argparse.Namespace, flags: Settings, given_config: GivenConfig
) -> tuple[RunFolder, RunConfig, str, int, int]:
    """A new population: folder, config, environment, members, interval."""
    cfg, env = given_config(args)
    cfg = with_entropy(config_for_pbt(cfg, flags), env)
    size = args.population or MEMBERS
    interval = args.interval or max(1, cfg.total_env_steps // INTERVALS)
    folder = RunFolder.create(args.log_dir, f"{env}_{cfg.algorithm}_pbt")
    return folder, cfg, env, size, interval


def resumed(
    args: argparse.Namespace, flags: Settings
) -> tuple[RunFolder, RunConfig, str, int, int]:
    """The population in a folder."""
    given = next(iter([*flags, *(n for n in ("population", "interval") if getattr(args, n))]), "")
    if given:
        raise BadInput(
            f"--resume with --pbt goes on with the population's own settings. Leave "
            f"--{given.replace('_', '-')} out."
        )
    file = Path(args.resume) / GROUP_FILE
    settings, beside = read_settings(file) if file.is_file() else ({}, {})
    numbers = beside.get("pbt")
    if not numbers or set(numbers) != {"population", "interval"}:
        raise BadInput(
            f"{path_text(args.resume)} is not of a training with --pbt, expected the folder of "
            "one. Give that, or leave --pbt out."
        )
    cfg, env = make_config(settings), beside.get("environment", "")
    if cfg.algorithm != args.algorithm or args.env not in (None, env):
        raise BadInput(
            f"{args.algorithm} is asked for, and the population in {path_text(args.resume)} is "
            f"{cfg.algorithm} on {env}. Change one of them."
        )
    folder = RunFolder(Path(args.resume)).lock_folder()
    return folder, cfg, env, numbers["population"], numbers["interval"]


def with_entropy(cfg: RunConfig, env: str) -> RunConfig:
    """The config with the weight of the entropy that fits the actions, where it has none."""
    if getattr(cfg, "entropy_coef", 0.0) is not None:
        return cfg
    from kytolly.agent.algorithms import part
    from kytolly.loop.env_runner import make_env_runner

    runner = make_env_runner(cfg, env)
    distribution: Any = part(cfg.algorithm, "policy").distribution_for(cfg, runner.spec)
    runner.close()
    return dataclasses.replace(cfg, **{"entropy_coef": distribution.entropy_coef})


def train(
    folder: RunFolder, cfg: RunConfig, env: str, pbt: PopulationBased, args: argparse.Namespace
) -> int:
    """Train the members, write the winner's schedules and print the table."""
    from kytolly.experiment.members import prepare_population

    began = time.perf_counter()
    prepare_machine(cfg)
    configs = pbt.configs()
    folders = [folder.path / name for name in member_names([one.seed for one in configs])]
    training = prepare_population(
        configs, env, folders, print_line, resume=bool(args.resume), pbt=pbt
    )
    if not args.resume:
        beside = {"environment": env, "versions": versions()}
        beside |= {"pbt": {"population": pbt.size, "interval": pbt.interval}}
        write_text(folder.path / GROUP_FILE, yaml_text(cfg, beside))
    print_line(
        f"{pbt.size} members, which change {', '.join(pbt.names)} every {pbt.interval:,} env "
        f"steps, in {folder.path}"
    )
    training.train()
    results = [read_result(path) for path in folders]
    scores = {
        member: result["evaluation"]["return_mean"]
        for member, result in enumerate(results)
        if result is not None
    }
    if not scores:
        raise ValueError("no member has a result; the reasons are above")
    best = max(scores, key=lambda member: scores[member])
    winner = pbt.winner(best, training.configs)
    write_text(folder.path / WINNER, yaml_text(winner, {"environment": env}))
    summary = {
        "algorithm": cfg.algorithm,
        "environment": env,
        "wall_seconds": time.perf_counter() - began,
        "run_dir": str(folder.path),
        "members": [
            {"run_dir": str(path), "return": scores.get(member)}
            for member, path in enumerate(folders)
        ],
        "winner": str(folders[best]),
        "schedules": winner.schedules,
    }
    folder.write_result(summary)
    rows = [
        [path.name, f"{scores[member]:.1f}" if member in scores else "failed"]
        for member, path in enumerate(folders)
    ]
    notes = [
        f"{len(pbt.events)} times weak members continued from strong ones: the lines of pbt.jsonl",
        f"{folders[best].name} is the best; its numbers, as schedules: {folder.path / WINNER}",
        f"One run repeats them: kytolly train {cfg.algorithm} --env {env} --no-tuned --config "
        f"{shlex.quote(str(folder.path / WINNER))}",
    ]
    print_table(["member", "return"], rows, notes, sys.stderr if args.json else sys.stdout)
    if args.json:
        print(json.dumps(summary))
    return end_of_many(len(training.problems), pbt.size, "members", continue_words(folder, cfg))


def continue_words(folder: RunFolder, cfg: RunConfig) -> str:
    """A sentence with the command that goes on with a population."""
    path = shlex.quote(str(folder.path))
    return f"Continue with `kytolly train {cfg.algorithm} --pbt --resume {path}`."
