"""`kytolly train --seeds`: the same training with several seeds, together or in processes."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from collections.abc import Callable
from typing import TextIO

from kytolly.command.cluster_options import check_cluster, folder_on_cluster, join_cluster
from kytolly.command.exits import BadInput, end_of_many
from kytolly.command.options import Settings
from kytolly.command.result import print_line, print_table
from kytolly.command.start import prepare_machine
from kytolly.config.run import RunConfig
from kytolly.config.tuned import tuned_line
from kytolly.experiment.members import apart_error, reason_apart
from kytolly.experiment.processes import default_jobs
from kytolly.experiment.seed_statistics import interval_text, return_text
from kytolly.experiment.seeds import SeedGroup, SeedsResult
from kytolly.experiment.together import (
    begin_process,
    default_parts,
    equal_parts,
    threads_of,
    train_elsewhere,
    train_part,
    train_processes,
    unfinished,
)
from kytolly.record.saved_run import trust_text

GivenConfig = Callable[[argparse.Namespace], tuple[RunConfig, str]]


def check_options(args: argparse.Namespace, flags: Settings) -> None:
    """Refuse options that do not go together with `--seeds`."""
    if "seed" in flags:
        raise BadInput("--seed and --seeds are both given. Give one of them.")
    check_cluster(args)
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
    if args.part_of:
        return run_part(args)
    if args.resume:
        group = SeedGroup.resume(
            args.resume, args.algorithm, args.env, args.seeds, args.trust, print_line
        )
        check_kept(args, group)
    else:
        cfg, env = given_config(args)
        reason = "" if args.apart else reason_apart(cfg, env)
        if reason:
            say_why_apart(reason, args, cfg, env, "seed")
        parts = None
        if reason is None:
            parts = default_parts(cfg, args.seeds, args.jobs)
        log_dir = folder_on_cluster(args, env)
        group = SeedGroup.create(log_dir, cfg, env, args.seeds, args.init, print_line, parts)
        say_tuned(args, cfg, env)
    try:
        result = train(group, args)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(
            f"{group.num_done()} of {len(group.seeds)} seeds are done, and the others are saved as "
            f"far as they came. {continue_words(group)}"
        ) from None
    print_seeds(result, sys.stderr if args.json else sys.stdout)
    if args.json:
        print(json.dumps(result))
    return end_of_many(len(group.problems), len(group.seeds), "seeds", continue_words(group))


def say_why_apart(
    reason: str, args: argparse.Namespace, cfg: RunConfig, env: str, what: str
) -> None:
    """Say why no program can hold all runs, each a `what`; an error with `--together`."""
    if args.together:
        from kytolly.loop.env_runner import make_env_runner

        make_env_runner(cfg, env).close()  # an unknown environment is another error
        raise apart_error(reason)
    print_line(f"{reason}: each {what} has a process of its own")


def say_tuned(args: argparse.Namespace, cfg: RunConfig, env: str) -> None:
    """Say that tuned settings are taken, if they are."""
    tuned = "" if args.tuned is False else tuned_line(cfg, env)
    if tuned:
        print_line(f"kytolly: {tuned}")


def train(group: SeedGroup, args: argparse.Namespace) -> SeedsResult:
    """Train the seeds that wait, as the group's file says: together or apart."""
    count, jobs = len(group.waiting), args.jobs
    if args.on:
        print_line(f"{count} seeds to train in {group.folder}")
        return group.train(lambda: train_on_cluster(group, args))
    if group.parts is None:
        jobs = min(jobs or default_jobs(), max(1, count))
        print_line(f"{count} seeds to train, {jobs} at a time, in {group.folder}")
        return group.train_apart(jobs)
    processes = max(1, len(unfinished(group, group.parts)))
    where = "one program" if processes == 1 else f"{processes} programs"
    print_line(f"{count} seeds to train together, in {where}, in {group.folder}")

    def work() -> None:
        begin_process(threads_of(group))
        prepare_machine(group.config)
        train_processes(group, print_line)

    return group.train(work)


def train_on_cluster(group: SeedGroup, args: argparse.Namespace) -> None:
    """Train the seeds that wait on the nodes; more than there is room for wait there.

    A new group is divided into a population for each run that there is room for.
    """
    with join_cluster(args) as cluster:
        if group.parts is None:
            return group.train_children(args.jobs or max(1, len(group.waiting)), cluster.start)
        if not args.resume:
            group.parts = equal_parts(group.seeds, args.jobs or cluster.slots)
            group.write_settings()
        programs = len(unfinished(group, group.parts))
        print_line(f"the seeds train together, in {programs} program{'s' * (programs > 1)}")
        train_elsewhere(group, args.jobs or max(1, programs), cluster.start, print_line)


def run_part(args: argparse.Namespace) -> int:
    """Train some seeds of a group in this process, which another one has started."""
    group = SeedGroup.part(args.part_of, args.seeds, args.init, print_line)
    begin_process(threads_of(group))
    prepare_machine(group.config)
    try:
        for part in unfinished(group, group.parts or []):  # one; none where all is done
            train_part(group, part, print_line)
    except KeyboardInterrupt:
        raise KeyboardInterrupt("Its seeds are saved as far as they came.") from None
    return 1 if group.problems else 0


def check_kept(args: argparse.Namespace, group: SeedGroup) -> None:
    """Refuse to continue a group in another way than it was begun."""
    flag = "--apart" if args.apart else "--together"
    if (args.apart and group.parts) or (args.together and group.parts is None):
        was = "together" if group.parts else "each in a process"
        raise BadInput(f"the seeds in {args.resume} were trained {was}. Leave {flag} out.")


def continue_words(group: SeedGroup) -> str:
    """A sentence with the command that trains the seeds of a group that are not done."""
    seeds = ",".join(map(str, group.seeds))
    words = f"kytolly train {group.config.algorithm} --resume {shlex.quote(str(group.folder))}"
    trust = trust_text(group.environment, group.config)
    return f"Continue with `{words} --seeds {seeds}{trust}`."


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
                return_text(run["best"]),
                "" if last is None else return_text(last),
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
