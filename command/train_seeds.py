"""`kytolly train --seeds`: the same training with several seeds, side by side in processes."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from collections.abc import Callable
from typing import TextIO

from kytolly.command.exits import BadInput, print_problem
from kytolly.command.options import Settings
from kytolly.command.result import print_line, print_table
from kytolly.config.run import RunConfig
from kytolly.config.tuned import tuned_line
from kytolly.experiment.processes import default_jobs
from kytolly.experiment.seed_statistics import interval_text
from kytolly.experiment.seeds import SeedGroup, SeedsResult

GivenConfig = Callable[[argparse.Namespace], tuple[RunConfig, str]]


def check_options(args: argparse.Namespace, flags: Settings) -> None:
    """Refuse options that do not go together with `--seeds`."""
    if "seed" in flags:
        raise BadInput("--seed and --seeds are both given. Give one of them.")
    if args.profile:
        raise BadInput("--profile times one run, and --seeds trains several. Leave one out.")
    if args.resume and flags:
        raise BadInput(
            f"--resume with --seeds continues with the group's own settings. Leave "
            f"--{next(iter(flags)).replace('_', '-')} out."
        )


def run(args: argparse.Namespace, flags: Settings, given_config: GivenConfig) -> int:
    """Train all seeds and print how they did.

    Args:
        args: The options of `kytolly train`.
        flags: The settings among them.
        given_config: Makes the config and the environment of a new run from the options.
    """
    check_options(args, flags)
    if args.resume:
        group = SeedGroup.resume(
            args.resume, args.algorithm, args.env, args.seeds, args.trust, print_line
        )
    else:
        cfg, env = given_config(args)
        group = SeedGroup.create(args.log_dir, cfg, env, args.seeds, args.init, print_line)
        tuned = "" if args.tuned is False else tuned_line(cfg, env)
        if tuned:
            print_line(f"kytolly: {tuned}")
    jobs = min(args.jobs or default_jobs(), max(1, len(group.waiting)))
    print_line(f"{len(group.waiting)} seeds to train, {jobs} at a time, in {group.folder}")
    try:
        result = group.train(jobs)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(
            f"{group.num_done()} of {len(group.seeds)} seeds are done, and the others are saved as "
            f"far as they came. {continue_words(group)}"
        ) from None
    print_seeds(result, sys.stderr if args.json else sys.stdout)
    if args.json:
        print(json.dumps(result))
    if not group.problems:
        return 0
    print_problem(
        f"{len(group.problems)} of {len(group.seeds)} seeds failed, for the reasons above; the "
        f"others are whole. {continue_words(group)}"
    )
    return 1


def continue_words(group: SeedGroup) -> str:
    """A sentence with the command that trains the seeds of a group that are not done."""
    seeds = ",".join(map(str, group.seeds))
    folder = shlex.quote(str(group.folder))
    return (
        f"Continue with `kytolly train {group.config.algorithm} --resume {folder} --seeds {seeds}`."
    )


def print_seeds(result: SeedsResult, file: TextIO) -> None:
    """Print one line for each seed, and what they are together."""
    rows = []
    for run in result["runs"]:
        if "best" not in run:
            rows.append([str(run["seed"]), "failed", "", "", ""])
            continue
        last = run.get("last")
        rows.append(
            [
                str(run["seed"]),
                f"{run['best']:.1f}",
                "" if last is None else f"{last:.1f}",
                f"{run.get('env_steps', 0):,}",
                f"{run.get('wall_seconds', 0.0):.1f}",
            ]
        )
    notes = [f"Seed {run['seed']}: {run['failed']}" for run in result["runs"] if "failed" in run]
    for name, words in (("best", "best weights"), ("last", "last evaluation")):
        if result[name]:
            text = interval_text(result[name])
            notes.append(f"Return of the {words}: {text}, interquartile mean and 95% interval")
    notes.append(
        f"{result['algorithm']} on {result['environment']}, {result['wall_seconds']:.1f} s"
    )
    if result["plot"]:
        notes.append(f"Plot: {result['plot']}")
    notes.append(f"Runs: {result['run_dir']}")
    print_table(["seed", "return", "last", "env steps", "seconds"], rows, notes, file)
