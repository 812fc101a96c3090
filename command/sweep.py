"""`kytolly sweep`: all combinations of given settings, with several seeds each."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
import time
from collections.abc import Sequence
from typing import Any, TextIO

from kytolly.agent.algorithms import ALGORITHMS
from kytolly.command import train
from kytolly.command.cluster_options import (
    add_cluster_options,
    check_cluster,
    folder_on_cluster,
    join_cluster,
)
from kytolly.command.exits import BadInput, end_of_many
from kytolly.command.options import (
    Repeatable,
    Settings,
    add_trust,
    config_fields,
    flag_value,
    seed,
    seed_list,
)
from kytolly.command.result import print_line, print_table
from kytolly.command.start import prepare_machine
from kytolly.command.train_seeds import say_tuned, say_why_apart
from kytolly.config.words import nearest, value_text
from kytolly.experiment.processes import default_jobs
from kytolly.experiment.seed_statistics import SeedSummary, return_text
from kytolly.experiment.sweep import (
    Plan,
    Sweep,
    SweepResult,
    combined_configs,
    default_processes,
    dividing_settings,
    program_groups,
    reason_sweep_apart,
    settings_label,
    waits,
)
from kytolly.experiment.together import begin_process
from kytolly.machine.hardware import usable_cores
from kytolly.record.saved_run import trust_text

NO_VALUES = ("seed", "env_kwargs", "wrappers")  # settings that no value here can be


def add_options(parser: argparse.ArgumentParser, words: Sequence[str]) -> None:
    """Add the options of `kytolly sweep`, and a flag for every setting of the algorithm."""
    train.refuse_only_in_python(words[1:2])
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.description = (
        "Train all combinations of the values that --set gives, each with all --seeds, and\n"
        "compare them. Where the environment exists as tensor code, runs that differ by plain\n"
        "numbers train in one program. Flags are settings that all runs share. `kytolly sweep\n"
        "--resume DIR` completes a sweep that was stopped. `kytolly sweep ALGO --help` shows all\n"
        "settings of one algorithm."
    )
    add = parser.add_argument
    add("algorithm", metavar="ALGO", nargs="?", help="algorithm to train")
    train.add_run_options(parser, "sweep")
    add(
        "--set",
        metavar="NAME=VALUES",
        type=setting_values,
        action=Repeatable,
        help="a setting and its values, such as learning_rate=1e-4,1e-3 or "
        "hidden_units=[64,64],[256]; may be given several times",
    )
    add("--seeds", metavar="SEEDS", type=seed_list, help="such as 0-4 or 0,3,5; default: one, 0")
    train.add_process_options(parser)
    add_cluster_options(parser)
    add("--part", metavar="N", type=seed, help=argparse.SUPPRESS)  # a child process
    add_trust(parser)
    train.add_settings(parser, next((word for word in words if word in ALGORITHMS), None))


def setting_values(text: str) -> dict[str, list[str]]:
    """The name of a setting and the texts of its values, as `--set` gives them."""
    name, sign, values = text.partition("=")
    name = name.strip().removeprefix("--").replace("-", "_")
    texts = split_values(values) if sign else []
    if not name or not texts or not all(texts):
        raise argparse.ArgumentTypeError(
            f"{value_text(text)} was found, expected a setting and its values, such as "
            "learning_rate=1e-4,1e-3"
        )
    return {name: texts}


def split_values(text: str) -> list[str]:
    """The values in a text, at the commas that are not within brackets."""
    values, depth = [""], 0
    for letter in text:
        depth += (letter == "[") - (letter == "]")
        if letter == "," and depth == 0:
            values.append("")
        else:
            values[-1] += letter
    return [value.strip() for value in values]


def typed_value(text: str, hint: object) -> Any:
    """A value of a setting: a number, a word, `none`, `yes` or `no`, or a list in brackets."""
    if hint in (bool, bool | None) and text.lower() in ("yes", "no", "true", "false"):
        return text.lower() in ("yes", "true")
    if text.startswith("[") and text.endswith("]"):
        return [flag_value(part.strip(), "") for part in text[1:-1].split(",") if part.strip()]
    return flag_value(text, "")


def run(args: argparse.Namespace) -> int:
    """Train what waits and print how the settings did."""
    began = time.perf_counter()
    check_cluster(args)
    sweep = resumed(args) if args.resume else begun(args)
    if args.part is not None:
        return run_part(sweep, args.part)
    with sweep.training():
        try:
            train_runs(sweep, args)
        except KeyboardInterrupt:
            raise KeyboardInterrupt(
                f"{sweep.num_done()} of {sweep.num_runs} runs are done, and the others are saved "
                f"as far as they came. {continue_words(sweep)}"
            ) from None
        result = sweep.save_result(time.perf_counter() - began)
    print_sweep(result, sys.stderr if args.json else sys.stdout)
    if args.json:
        print(json.dumps(result))
    return end_of_many(sweep.num_failed(), sweep.num_runs, "runs", continue_words(sweep))


def begun(args: argparse.Namespace) -> Sweep:
    """A new sweep, as the options say."""
    if args.algorithm is None:
        raise BadInput("ALGO is missing: give an algorithm, such as ppo, or a sweep by --resume.")
    train.check_algorithm(args.algorithm, train.command_algorithms())
    if not args.set:
        raise BadInput(
            "--set is missing: give a setting and its values, such as "
            "--set learning_rate=1e-4,1e-3. One run is trained by `kytolly train`."
        )
    flags = train.given_flags(args)
    values = given_values(args.set, args.algorithm, flags)
    if "seed" in flags and args.seeds:
        raise BadInput("--seed and --seeds are both given. Give one of them.")
    cfg, env = train.given_config(args)
    configs = combined_configs(cfg, values)
    reason = "" if args.apart else reason_sweep_apart(configs, env)
    if reason:
        say_why_apart(reason, args, cfg, env, "run")
    seeds = args.seeds or [cfg.seed]
    jobs = default_processes(configs, len(seeds)) if reason is None else default_jobs()
    plan: Plan = {
        "values": values,
        "seeds": seeds,
        "together": reason is None,
        "jobs": args.jobs or jobs,
    }
    sweep = Sweep.create(folder_on_cluster(args, env), cfg, env, plan, args.init, print_line)
    say_tuned(args, cfg, env)
    return sweep


def given_values(
    given: dict[str, list[str]], algorithm: str, flags: Settings
) -> dict[str, list[Any]]:
    """The values of each setting that `--set` names."""
    fields = config_fields(*train.config_kinds(algorithm))
    known = [name for name in fields if name not in NO_VALUES]
    values = {}
    for name, texts in given.items():
        if name == "seed":
            raise BadInput("--set seed is given, expected another setting: give --seeds 0-4.")
        if name not in known:
            raise BadInput(
                f"--set {value_text(name)[1:-1]} is no setting of {algorithm} that can vary."
                f"{nearest(name, known) or f' `kytolly sweep {algorithm} --help` lists them.'}"
            )
        if name in flags:
            raise BadInput(f"{name} is given by a flag and by --set. Give it once.")
        values[name] = [typed_value(text, fields[name][1]) for text in texts]
        twice = [value for n, value in enumerate(values[name]) if value in values[name][:n]]
        if twice:
            raise BadInput(f"--set {name} has {value_text(twice[0])} twice. Give it once.")
    return values


def resumed(args: argparse.Namespace) -> Sweep:
    """The sweep in a folder, which has its options in a file."""
    given: dict[str, Any] = dict.fromkeys(train.given_flags(args), True)
    names = ("env", "config", "preset", "tuned", "defaults", "log_dir", "set", "seeds")
    given |= {name: getattr(args, name) for name in (*names, "together", "apart")}
    given |= {} if args.on else {"jobs": args.jobs}
    given |= {"init": args.init} if args.part is None else {}
    extra = next((name for name, value in given.items() if value not in (None, False)), "")
    if extra:
        raise BadInput(
            f"--resume completes a sweep with its own options. Leave --{extra.replace('_', '-')} "
            "out."
        )
    is_part = args.part is not None
    sweep = Sweep.resume(args.resume, args.trust, print_line, held=is_part, init=args.init)
    if args.algorithm not in (None, sweep.config.algorithm):
        raise BadInput(
            f"ALGO is {args.algorithm}, and the sweep in {args.resume} is of "
            f"{sweep.config.algorithm}. Leave ALGO out."
        )
    return sweep


def run_part(sweep: Sweep, number: int) -> int:
    """Train one population of a sweep in this process, which another one has started."""
    prepare_machine(sweep.config)
    try:
        sweep.train_part(number)
    except KeyboardInterrupt:
        raise KeyboardInterrupt("Its runs are saved as far as they came.") from None
    return 1 if sweep.num_failed() else 0


def train_runs(sweep: Sweep, args: argparse.Namespace) -> None:
    """Train the runs that wait, as the sweep's file says: in populations or apart."""
    count = f"{sweep.num_waiting()} runs of {len(sweep.groups)} settings to train"
    jobs = sweep.plan["jobs"]
    if args.on:
        return train_on_cluster(sweep, args, count)
    if not sweep.plan["together"]:
        jobs = min(jobs, max(1, sweep.num_waiting()))
        print_line(f"{count}, {jobs} at a time, in {sweep.folder}")
        return sweep.train_apart(jobs)
    jobs = min(jobs, len(sweep.parts))
    words = programs_text(sweep) + (f" and {jobs} processes" if jobs > 1 else "")
    print_line(f"{count} together, in {words}, in {sweep.folder}")
    if not any(map(waits, sweep.parts)):
        return None
    if len(sweep.parts) > 1:
        return sweep.train_parts(jobs)
    begin_process(usable_cores())
    prepare_machine(sweep.config)
    return sweep.train_part(0)


def train_on_cluster(sweep: Sweep, args: argparse.Namespace, count: str) -> None:
    """Train the runs that wait on the nodes; more than there is room for wait there.

    A new sweep in populations is divided into at least as many as there is room for.

    Args:
        sweep: The sweep.
        args: The options of `kytolly sweep`.
        count: How many runs wait, in words.
    """
    with join_cluster(args) as cluster:
        if not sweep.plan["together"]:
            print_line(f"{count}, in {sweep.folder}")
            return sweep.train_apart(args.jobs or max(1, sweep.num_waiting()), cluster.start)
        if not args.resume:
            sweep.divide(args.jobs or cluster.slots)
        jobs = args.jobs or len(sweep.parts)
        words = f"{programs_text(sweep)} and {len(sweep.parts)} populations"
        print_line(f"{count} together, in {words}, in {sweep.folder}")
        return sweep.train_parts(jobs, cluster.start)


def programs_text(sweep: Sweep) -> str:
    """How many programs the runs need, and by which settings, in words."""
    programs = program_groups(sweep.groups)
    if len(programs) == 1:
        return "one program"
    by = ", ".join(dividing_settings(programs, sweep.plan["values"]))
    return f"{len(programs)} programs (by {by})"


def continue_words(sweep: Sweep) -> str:
    """A sentence with the command that trains the runs of a sweep that are not done."""
    trust = trust_text(sweep.environment, sweep.config)
    return f"Continue with `kytolly sweep --resume {shlex.quote(str(sweep.folder))}{trust}`."


def print_sweep(result: SweepResult, file: TextIO) -> None:
    """Print one line for each combination, the best one first, and how sure that is."""
    rows = []
    notes = []
    for row in result["settings"]:
        label, best, last = settings_label(row["settings"]), row["best"], row["last"]
        done = sum("best" in run for run in row["runs"])
        rows.append([label, *cells(best), return_text(last["interquartile_mean"]) if last else ""])
        rows[-1] += [return_text(best["worst"]) if best else "", str(done)]
        notes += [
            f"{label}, seed {run['seed']}: {run['failed']}"
            for run in row["runs"]
            if "failed" in run
        ]
    notes += [improvement_text(result)]
    notes.append(
        f"{result['algorithm']} on {result['environment']}, {result['wall_seconds']:.1f} s"
    )
    if result["best_config"]:
        notes.append(
            f"Best settings: kytolly train {result['algorithm']} --env {result['environment']} "
            f"--config {shlex.quote(result['best_config'])}"
        )
    notes += [f"Plot: {result['plot']}"] if result["plot"] else []
    notes.append(f"Runs: {result['run_dir']}")
    columns = ["settings", "return", "95% interval", "last", "worst", "seeds"]
    print_table(columns, rows, notes, file)


def cells(summary: SeedSummary | None) -> list[str]:
    """The interquartile mean and its interval, which one seed does not have."""
    if summary is None:
        return ["failed", ""]
    low, high = summary["interval"]
    several = len(summary["returns"]) > 1
    return [
        return_text(summary["interquartile_mean"]),
        f"{return_text(low, high)} to {return_text(high, low)}" if several else "",
    ]


def improvement_text(result: SweepResult) -> str:
    """A sentence that says how sure it is that the best combination is better than the second."""
    what = "Return: interquartile mean of the best weights over seeds."
    best = [row for row in result["settings"] if row["best"]]
    if len(best) < 2:
        return f"{what} There is nothing to compare it with."
    sure = result["improvement"]
    if sure is None:
        return f"{what} One seed has no interval, and the order may be luck: give --seeds 0-4."
    low, high = sure["probability_interval"]
    first, second = (settings_label(row["settings"]) for row in best[:2])
    return (
        f"{what} A run of {first} is better than one of {second} with probability "
        f"{sure['probability_of_improvement']:.2f} ({low:.2f} to {high:.2f})."
    )
