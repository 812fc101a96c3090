"""`kytolly tune`: searches an algorithm's settings with Optuna, each trial a run of its own."""

from __future__ import annotations

import argparse
import datetime
import functools
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from kytolly.command import train
from kytolly.command.cluster_options import add_cluster_options, check_cluster, join_cluster
from kytolly.command.exits import BadInput
from kytolly.command.options import environment, path, positive, seconds, seed_list
from kytolly.command.result import print_line, print_table
from kytolly.command.start import prepare_machine

if TYPE_CHECKING:
    from kytolly.experiment.cluster import Cluster
    from kytolly.experiment.tuning import RunTrials, TuningResult

DEFAULT_TRIALS = 30
DEFAULT_MEMBERS = 8
SUFFIXES = (".db", ".sqlite", ".sqlite3")
SHOWN_TRIALS = 10  # in the table at the end


def add_options(parser: argparse.ArgumentParser, words: Sequence[str]) -> None:
    """Add the options of `kytolly tune`, and a flag for every setting of the algorithm."""
    train.refuse_only_in_python(words[1:2])
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.description = (
        "Search the settings of an algorithm. A setting that is given by a flag or in --config is\n"
        "not searched. --seed is the seed of the search; each trial trains with another one.\n"
        "`kytolly tune ALGO --help` shows all settings of one algorithm."
    )
    add = parser.add_argument
    add("algorithm", metavar="ALGO", help="algorithm to tune")
    add("--env", type=environment, help="Gymnasium id, such as CartPole-v1")
    add("--config", metavar="FILE", type=path, help="YAML file with settings that are not searched")
    add(
        "--trials",
        metavar="N",
        type=positive,
        default=DEFAULT_TRIALS,
        help=f"trials of the study, those of earlier commands included; default {DEFAULT_TRIALS}",
    )
    add(
        "--study",
        metavar="FILE",
        type=path,
        help="SQLite file of a study, continued if it exists; default: a new one in runs/",
    )
    add("--timeout", metavar="SECONDS", type=seconds, help="after which no trial begins")
    add(
        "--jobs",
        metavar="N",
        type=positive,
        help=f"trials at a time; default: one a core, with --together {DEFAULT_MEMBERS}",
    )
    add(
        "--together",
        action="store_true",
        help="train the trials of --jobs in one program, where they differ by plain numbers; the "
        "weaker half ends after a quarter, and once more after half of a run",
    )
    add_cluster_options(parser)
    add("--part-of", metavar="STUDY", type=path, help=argparse.SUPPRESS)  # a child process
    add("--part", metavar="TRIALS", type=seed_list, help=argparse.SUPPRESS)
    parser.set_defaults(
        preset=None, tuned=None, defaults=None, resume=None, log_dir=None, trust=False
    )
    algorithm = next((word for word in words if word in train.ALGORITHMS), None)
    train.add_settings(parser, algorithm)


def run(args: argparse.Namespace) -> int:
    """Search, and print the best trials."""
    from kytolly.config.files import read_settings
    from kytolly.config.search_space import SEARCH_SPACES, search_space
    from kytolly.experiment.processes import default_jobs
    from kytolly.experiment.study import import_optuna
    from kytolly.experiment.tuning import TuningStopped, tune

    train.check_algorithm(args.algorithm, list(SEARCH_SPACES))
    if args.part_of:
        return run_part(args)
    check_cluster(args)
    cfg, env = train.given_config(args)
    given = set(train.given_flags(args))
    if args.config:
        given |= set(read_settings(args.config)[0])
    space = search_space(cfg.algorithm, given)
    import_optuna()
    file = study_file(args.study, env, cfg.algorithm, args.cluster_dir or "runs")
    options = (file, cfg, env, space, args.trials)
    rest = (args.timeout, print_line)
    try:
        if args.on:
            with join_cluster(args) as cluster:
                jobs, run_trials = trials_on_cluster(cluster, args)
                result = tune(*options, jobs, *rest, run_trials)
        elif args.together:
            from kytolly.experiment.trial_populations import train_populations

            prepare_machine(cfg)
            result = tune(*options, args.jobs or DEFAULT_MEMBERS, *rest, train_populations)
        else:
            result = tune(*options, args.jobs or default_jobs(), *rest)
    except TuningStopped as stop:
        raise KeyboardInterrupt(
            f"{len(stop.result['trials'])} of {args.trials} trials are in {file}. The same command "
            f"with --study {file} continues."
        ) from None
    print_tuning(result, sys.stderr if args.json else sys.stdout)
    if args.json:
        print(json.dumps(result))
    return 0 if result["best"] else 1


def trials_on_cluster(cluster: Cluster, args: argparse.Namespace) -> tuple[int, RunTrials]:
    """How many trials train at a time, or in a population, and what trains them on the nodes."""
    if args.together:
        from kytolly.experiment.trial_populations import train_elsewhere

        run = functools.partial(train_elsewhere, jobs=cluster.slots, start=cluster.start)
        return args.jobs or DEFAULT_MEMBERS, run
    from kytolly.experiment.tuning import TrialRuns

    run = functools.partial(TrialRuns.run, start=cluster.start)
    return args.jobs or cluster.slots, run


def run_part(args: argparse.Namespace) -> int:
    """Train a population of trials in this process, which another one has started."""
    from kytolly.agent.algorithms import make_config
    from kytolly.config.files import read_settings
    from kytolly.experiment.trial_populations import train_part

    folder = Path(args.part_of)
    prepare_machine(make_config(read_settings(folder / f"trial-{args.part[0]}.yaml")[0]))
    try:
        return 1 if train_part(folder, args.part, print_line) else 0
    except KeyboardInterrupt:
        raise KeyboardInterrupt("Its trials are saved as far as they came.") from None


def study_file(given: str | None, env: str, algorithm: str, folder: str = "runs") -> Path:
    """The study's file; its name without the end is the folder of the trials."""
    from kytolly.record.run_folder import path_part

    if given is None:
        moment = datetime.datetime.now().strftime("%Y%m%d-%H%M%S")
        return Path(folder) / f"{path_part(env)}_{algorithm}_tune_{moment}.db"
    if Path(given).suffix not in SUFFIXES or Path(given).is_dir():
        raise BadInput(
            f"--study is {given!r}, expected the name of a file that ends with "
            f"{', '.join(SUFFIXES)}, such as {Path(given).stem or 'study'}.db. Change it."
        )
    return Path(given)


def print_tuning(result: TuningResult, file: TextIO) -> None:
    """Print the best trials, and what to do with them."""
    from kytolly.experiment.seed_statistics import return_text
    from kytolly.experiment.tuning import params_text

    complete = [
        (trial["value"], trial["number"], params_text(trial["params"]))
        for trial in result["trials"]
        if trial["state"] == "complete" and trial["value"] is not None
    ]
    complete.sort(key=lambda row: -row[0])
    rows = [
        [str(number), return_text(value), settings]
        for value, number, settings in complete[:SHOWN_TRIALS]
    ]
    count: dict[str, int] = dict.fromkeys(("complete", "pruned", "failed"), 0)
    for trial in result["trials"]:
        count[trial["state"]] += 1
    words = ", ".join(f"{number} {name}" for name, number in count.items())
    notes = [f"{len(result['trials'])} trials: {words}, in {result['wall_seconds']:.1f} s"]
    if result["best"]:
        notes.append(
            f"Best settings: {result['best']['config']}. Their return is of one seed, and the best "
            f"of many: train several with `kytolly train {result['algorithm']} --env "
            f"{result['environment']} --config {result['best']['config']} --seeds 0-9`."
        )
    if result["plot"]:
        notes.append(f"Plot: {result['plot']}")
    notes.append(f"Study: {result['study']}")
    print_table(["trial", "return", "settings"], rows, notes, file, text_column=2)
