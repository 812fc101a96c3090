"""`kytolly train --pbt`: population-based training, in one program or in processes."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import shlex
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from kytolly.command.cluster_options import check_cluster, folder_on_cluster, join_cluster
from kytolly.command.exits import BadInput, end_of_many
from kytolly.command.options import Settings
from kytolly.command.result import print_line, print_table
from kytolly.command.start import prepare_machine
from kytolly.command.train_seeds import say_why_apart
from kytolly.config.files import read_settings
from kytolly.config.run import RunConfig
from kytolly.config.words import path_text
from kytolly.experiment.members import GROUP_FILE, member_names, reason_apart, shared_yaml_text
from kytolly.experiment.pbt import PopulationBased, config_for_pbt
from kytolly.experiment.processes import default_jobs
from kytolly.experiment.seed_statistics import return_text
from kytolly.experiment.seeds import shared_settings
from kytolly.record.files import write_text
from kytolly.record.run_folder import RunFolder, versions
from kytolly.record.saved_run import read_result, trust_text

if TYPE_CHECKING:
    from kytolly.experiment.pbt_processes import MemberProcesses
    from kytolly.experiment.population import PopulationTraining

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
    check_cluster(args)
    task = resumed(args, flags) if args.resume else begun(args, flags, given_config)
    folder = task.folder
    with folder:
        try:
            pbt = PopulationBased(task.config, task.size, task.interval, folder.path)
            return train(task, pbt, args)
        except ValueError:
            remove_if_untrained(folder)
            raise
        except KeyboardInterrupt:
            raise KeyboardInterrupt(
                f"The members are saved as far as they came. {continue_words(task)}"
            ) from None


class Task(NamedTuple):
    """A population-based training.

    Attributes:
        folder: The population's, which this process holds.
        config, environment: What all members begin with.
        size, interval: As of `PopulationBased`.
        apart: Each member has a process, and they train in rounds.
    """

    folder: RunFolder
    config: RunConfig
    environment: str
    size: int
    interval: int
    apart: bool


def begun(args: argparse.Namespace, flags: Settings, given_config: GivenConfig) -> Task:
    """A new population."""
    cfg, env = given_config(args)
    interval = args.interval or max(1, cfg.total_env_steps // INTERVALS)
    cfg = with_entropy(config_for_pbt(cfg, interval, flags), env)
    reason = "" if args.apart or args.on else reason_apart(cfg, env)
    if reason or (args.on and args.together):
        say_why_apart(reason or "--on gives each member to some node", args, cfg, env, "member")
    size = args.population or MEMBERS
    log_dir = folder_on_cluster(args, env)
    folder = RunFolder.create(log_dir, f"{env}_{cfg.algorithm}_pbt")
    return Task(folder, cfg, env, size, interval, reason is not None)


def resumed(args: argparse.Namespace, flags: Settings) -> Task:
    """The population in a folder."""
    given = next(iter([*flags, *(n for n in ("population", "interval") if getattr(args, n))]), "")
    if given:
        raise BadInput(
            f"--resume with --pbt goes on with the population's own settings. Leave "
            f"--{given.replace('_', '-')} out."
        )
    file = Path(args.resume) / GROUP_FILE
    beside = read_settings(file)[1] if file.is_file() else {}
    numbers = beside.get("pbt")
    if not numbers or set(numbers) - {"apart"} != {"population", "interval"}:
        raise BadInput(
            f"{path_text(args.resume)} is not of a training with --pbt, expected the folder of "
            "one. Give that, or leave --pbt out."
        )
    cfg, env, _ = shared_settings(file, args.trust)
    if cfg.algorithm != args.algorithm or args.env not in (None, env):
        raise BadInput(
            f"{args.algorithm} is asked for, and the population in {path_text(args.resume)} is "
            f"{cfg.algorithm} on {env}. Change one of them."
        )
    apart = bool(numbers.get("apart"))
    for flag, other in {
        "--on": args.on,
        "--apart": args.apart,
        "--together": args.together,
    }.items():
        if other and apart == (flag == "--together"):
            was = "each in a process" if apart else "in one program"
            raise BadInput(
                f"the members in {path_text(args.resume)} were trained {was}. Leave {flag} out."
            )
    folder = RunFolder(Path(args.resume)).lock_folder()
    return Task(folder, cfg, env, numbers["population"], numbers["interval"], apart)


def remove_if_untrained(folder: RunFolder) -> None:
    """Remove what was written where no member began, so that the folder can be used again."""
    if not any(folder.path.glob("*/config.yaml")):
        for path in [*folder.path.glob("*.log"), folder.path / GROUP_FILE]:
            path.unlink(missing_ok=True)
        folder.remove_if_empty()


def with_entropy(cfg: RunConfig, env: str) -> RunConfig:
    """The config with the weight of the entropy that fits the actions, where it has none."""
    if getattr(cfg, "entropy_coef", 0.0) is not None:
        return cfg
    from kytolly.agent.algorithms import part
    from kytolly.loop.env_runner import configured_source, make_env_runner

    runner = make_env_runner(dataclasses.replace(cfg, actors=None), configured_source(cfg, env))
    distribution: Any = part(cfg.algorithm, "policy").distribution_for(cfg, runner.spec)
    runner.close()
    return dataclasses.replace(cfg, **{"entropy_coef": distribution.entropy_coef})


def train(task: Task, pbt: PopulationBased, args: argparse.Namespace) -> int:
    """Train the members, write the winner's schedules and print the table."""
    began = time.perf_counter()
    folder, cfg, env = task.folder, task.config, task.environment
    folders = [folder.path / name for name in member_names([one.seed for one in pbt.configs()])]
    with contextlib.ExitStack() as leaving:
        if task.apart:
            training = member_processes(task, pbt, folders, args, leaving)
        else:
            training = one_program(task, pbt, folders, bool(args.resume))
        if not args.resume:
            beside: dict[str, Any] = {"environment": env, "versions": versions()}
            beside["pbt"] = {"population": pbt.size, "interval": pbt.interval}
            beside["pbt"] |= {"apart": 1} if task.apart else {}
            write_text(folder.path / GROUP_FILE, shared_yaml_text(cfg, beside))
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
    write_text(folder.path / WINNER, shared_yaml_text(winner, {"environment": env}))
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
        [path.name, return_text(scores[member]) if member in scores else "failed"]
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
    return end_of_many(len(training.problems), pbt.size, "members", continue_words(task))


def one_program(
    task: Task, pbt: PopulationBased, folders: list[Path], resume: bool
) -> PopulationTraining:
    """The members in one program of this process."""
    from kytolly.experiment.members import prepare_population

    prepare_machine(task.config)
    return prepare_population(
        pbt.configs(), task.environment, folders, print_line, resume=resume, pbt=pbt
    )


def member_processes(
    task: Task,
    pbt: PopulationBased,
    folders: list[Path],
    args: argparse.Namespace,
    leaving: contextlib.ExitStack,
) -> MemberProcesses:
    """The members in processes, here or on the nodes of a cluster, which `leaving` leaves."""
    from kytolly.experiment.pbt_processes import MemberProcesses

    options = (pbt, task.environment, folders, print_line)
    if not args.on:
        return MemberProcesses(*options, args.jobs or default_jobs())
    cluster = leaving.enter_context(join_cluster(args))
    return MemberProcesses(*options, args.jobs or pbt.size, cluster.start)


def run_member(args: argparse.Namespace, cfg: RunConfig, env: str) -> int:
    """Train one member for a round in this process, which another one has started."""
    from kytolly.experiment.pbt_member import Member
    from kytolly.trainer import Trainer

    prepare_machine(cfg)
    member = Member(args.until)
    try:
        trainer = Trainer(args.resume or args.log_dir, progress=False)
        trainer.train(cfg, env, [member], resume=bool(args.resume)).require_written()
    except KeyboardInterrupt:
        if not member.round_ended:
            raise
    return 0


def continue_words(task: Task) -> str:
    """A sentence with the command that goes on with a population."""
    path = shlex.quote(str(task.folder.path)) + trust_text(task.environment, task.config)
    return f"Continue with `kytolly train {task.config.algorithm} --pbt --resume {path}`."
