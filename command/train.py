"""`kytolly train`: trains an agent in a new run, or continues one."""

from __future__ import annotations

import argparse
import dataclasses
import sys
from collections.abc import Sequence
from statistics import mean
from typing import TYPE_CHECKING

from kytolly.agent.algorithms import ALGORITHMS, make_config, part
from kytolly.command.cluster_options import add_cluster_options, refuse_cluster
from kytolly.command.environment_options import add_environment_options, import_from_here
from kytolly.command.exits import BadInput, print_problem
from kytolly.command.options import (
    Settings,
    add_field,
    add_profile,
    add_trust,
    config_fields,
    environment,
    given_settings,
    path,
    positive,
    run_folder,
    seed_list,
)
from kytolly.command.result import print_result, write_profile
from kytolly.command.start import prepare_machine
from kytolly.command.table import TEXT_MODELS, text_model_module
from kytolly.config.tuned import (
    chosen_tuned_settings,
    older_defaults,
    tuned_line,
    without_memory,
)
from kytolly.config.words import nearest, path_text, value_text

if TYPE_CHECKING:
    from kytolly.callback.base import Callback
    from kytolly.config.run import RunConfig

# Algorithms that need a network to begin with, which no option can give.
ONLY_IN_PYTHON = ("ppo-kl",)


def add_options(parser: argparse.ArgumentParser, words: Sequence[str]) -> None:
    """Add a flag for every field of the algorithm's config; without ALGO, of all of them."""
    if words[1:2] and words[1] in TEXT_MODELS:
        return text_model_module(words[1]).add_options(parser, words)
    refuse_only_in_python(words[1:2])
    algorithm = next((word for word in words if word in ALGORITHMS), None)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.description = (
        "Train an agent. Settings come from the defaults, then from this project's tuned\n"
        "settings for the task, then from --preset, then from --config, then from the flags.\n"
        "`kytolly train --help` shows what all algorithms share, and `kytolly train ALGO --help`\n"
        "all settings of one."
    )
    add = parser.add_argument
    add(
        "algorithm",
        metavar="ALGO",
        help=f"one of {', '.join(trained_names())}",
    )
    add_run_options(parser)
    add("--seeds", metavar="SEEDS", type=seed_list, help="train several, such as 0-9 or 0,3,5")
    add_process_options(parser)
    add_cluster_options(parser)
    add("--part-of", metavar="GROUP", type=path, help=argparse.SUPPRESS)  # a child process
    add(
        "--pbt",
        action="store_true",
        help="population-based training: weak members continue from strong ones, with other "
        "numbers; what the best one used is written as schedules",
    )
    add("--population", metavar="N", type=positive, help="members of --pbt; default: 16")
    add(
        "--interval",
        metavar="N",
        type=positive,
        help="env steps of each member between two choices of --pbt; default: a twentieth of all",
    )
    add("--until", metavar="N", type=positive, help=argparse.SUPPRESS)  # a member of --pbt
    add_trust(parser)
    add_profile(parser)
    add_settings(parser, algorithm)


def add_run_options(parser: argparse.ArgumentParser, what: str = "run") -> None:
    """Add the options with which a run, or what several are, begins."""
    add = parser.add_argument
    add("--env", type=environment, help="Gymnasium id, such as CartPole-v1")
    add("--config", metavar="FILE", type=path, help="YAML file with settings")
    add("--preset", metavar="NAME", help="memory taken: safe, optimal, aggressive, or auto")
    add(
        "--tuned",
        action=argparse.BooleanOptionalAction,
        help="demand, or leave out, this project's tuned settings for the task; default: taken "
        "where there are some",
    )
    add("--defaults", metavar="VERSION", help="begin with the defaults of an earlier version: 0.2")
    add("--log-dir", metavar="DIR", type=path, help=f"folder of the {what}; default: a new one")
    add("--resume", metavar=what.upper(), type=path, help=f"continue the {what} in this folder")
    add(
        "--init",
        metavar="RUN",
        type=run_folder,
        help="begin with the best weights of this other run",
    )


def add_process_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that say which of several runs share a program or a process."""
    add = parser.add_argument
    add(
        "--jobs",
        metavar="N",
        type=positive,
        help="processes at a time; default: one a core, or for seeds that train together one, and "
        "two from 20 seeds on",
    )
    together = parser.add_mutually_exclusive_group()
    together.add_argument(
        "--together",
        action="store_true",
        help="train the seeds in one program, or one for each of --jobs processes; default: where "
        "the environment exists as tensor code",
    )
    together.add_argument(
        "--apart", action="store_true", help="train each seed in a process of its own"
    )


def add_settings(parser: argparse.ArgumentParser, algorithm: str | None) -> None:
    """Add a flag for every setting of an algorithm, or of all of them."""
    add_environment_options(parser)
    for name, (field, hint) in config_fields(*config_kinds(algorithm)).items():
        if name not in ("env_kwargs", "wrappers"):
            add_field(parser, field, hint, "own" if algorithm else how_shared(name))


def how_shared(name: str) -> str:
    """The `shown` of a setting in the help of all algorithms: see `add_field`."""
    kinds = set(config_kinds(None))
    fields = [{f.name: f for f in dataclasses.fields(kind)}.get(name) for kind in kinds]
    defaults = {str(field.default) for field in fields if field is not None}
    return "no" if None in fields else "own" if len(defaults) == 1 else "varies"


def trained_names() -> list[str]:
    """The names that the command trains: algorithms and models of texts."""
    return [*command_algorithms(), *TEXT_MODELS]


def command_algorithms() -> list[str]:
    """The algorithms that the command trains."""
    return [name for name in ALGORITHMS if name not in ONLY_IN_PYTHON]


def refuse_only_in_python(names: Sequence[str]) -> None:
    """Refuse an algorithm that needs a network to begin with."""
    for name in names:
        if name in ONLY_IN_PYTHON:
            raise BadInput(
                f"{name} keeps a policy near the network that it begins with, and a command has "
                "none to begin with. Train in Python, by Trainer().train(PPOKLConfig(...), env, "
                "model=network); a query rewriter by `kytolly train rewriter --fine-tune RUN`."
            )


def check_algorithm(name: str, known: Sequence[str]) -> None:
    """Refuse what is no algorithm of a command; the message names those that are."""
    refuse_only_in_python([name])
    if name not in known:
        raise BadInput(
            f"{value_text(name)} is no algorithm; there are {', '.join(known)}."
            f"{nearest(name, known)}"
        )


def config_kinds(algorithm: str | None) -> list[type]:
    """The config class of an algorithm, or those of all algorithms that the command trains."""
    return [part(name, "config") for name in ([algorithm] if algorithm else command_algorithms())]


def run(args: argparse.Namespace) -> int:
    """Train and print the result."""
    if args.algorithm in TEXT_MODELS:
        return text_model_module(args.algorithm).run(args)
    check_algorithm(args.algorithm, trained_names())
    if args.pbt:
        from kytolly.command import train_pbt

        return train_pbt.run(args, given_flags(args), given_config)
    if args.until:
        from kytolly.command import train_pbt

        return train_pbt.run_member(args, *given_config(args))
    for flag, value in {"--population": args.population, "--interval": args.interval}.items():
        if value:
            raise BadInput(f"{flag} is for --pbt. Give that as well, or leave {flag} out.")
    if args.seeds:
        from kytolly.command import train_seeds

        check_resume(args)
        return train_seeds.run(args, given_flags(args), given_config)
    given = {"--jobs": args.jobs, "--together": args.together, "--apart": args.apart}
    for flag, value in given.items():
        if value:
            raise BadInput(f"{flag} is for several runs. Give --seeds or --pbt, or leave it out.")
    refuse_cluster(args, "--seeds or --pbt")
    cfg, env = given_config(args)
    prepare_machine(cfg)
    from kytolly.trainer import Trainer

    trainer = Trainer(args.resume or args.log_dir)
    callbacks: list[Callback] = []
    keeper = None
    if args.profile:
        from kytolly.loop.profile import RunKeeper

        keeper = RunKeeper()
        callbacks.append(keeper)
    if not args.resume and args.tuned is not False:
        from kytolly.callback.progress import OpeningLine

        callbacks.append(OpeningLine(tuned_line(cfg, env), print_problem))
    result = trainer.train(cfg, env, callbacks, resume=bool(args.resume), init=args.init)
    summary = result.summary
    if keeper is not None and keeper.state is not None:
        idle = [row["device_idle"] for row in result.history if "device_idle" in row]
        summary, lines = write_profile(keeper.state, summary, mean(idle) if idle else None)
        print("\n".join(lines), file=sys.stderr if args.json else sys.stdout)
    print_result(summary, args.json)
    result.require_written()
    return 0


def check_resume(args: argparse.Namespace) -> None:
    """Refuse options that do not go together with `--resume`."""
    if args.resume and args.log_dir:
        raise BadInput("--resume continues in the run's own folder. Leave --log-dir out.")
    if args.resume and args.init:
        raise BadInput("--resume goes on with the run's own weights. Leave --init out.")
    kinds = {"--config": args.config, "--preset": args.preset, "--tuned": args.tuned}
    kinds["--defaults"] = args.defaults
    extra = next((flag for flag, given in kinds.items() if given), "")
    if args.resume and extra:
        raise BadInput(
            f"--resume continues with the run's own settings. Leave {extra} out, and give flags "
            "for what shall change."
        )


def given_config(args: argparse.Namespace) -> tuple[RunConfig, str]:
    """Config and environment that the command line asks for."""
    check_resume(args)
    flags = given_flags(args)
    cfg, env = continuation(args, flags) if args.resume else new_run(args, flags)
    import_from_here(env, *(cfg.wrappers or ()))
    return cfg, env


def given_flags(args: argparse.Namespace) -> Settings:
    """The settings that are given as flags."""
    return given_settings(args, config_fields(*config_kinds(args.algorithm)))


def new_run(args: argparse.Namespace, flags: Settings) -> tuple[RunConfig, str]:
    """Config and environment of a new run."""
    if not args.env:
        raise BadInput("--env is missing: give a Gymnasium id, such as --env CartPole-v1.")
    from kytolly.config.files import read_settings

    tuned = chosen_tuned_settings(args.tuned, args.algorithm, args.env)
    if args.defaults:
        tuned = older_defaults(args.defaults, args.algorithm) | tuned
    given = {}
    if args.config:
        from_file, beside = read_settings(args.config)
        if beside and from_file.get("wrappers") and not (args.trust or "wrappers" in flags):
            raise BadInput(
                f"{path_text(args.config)} is of a run and names wrappers, which would import "
                "Python modules, expected none: give them by --wrapper, or give --trust, if you "
                "know who wrote it."
            )
        algorithm = from_file.get("algorithm", args.algorithm)
        if algorithm != args.algorithm:
            raise BadInput(
                f"ALGO is {args.algorithm}, and {path_text(args.config)} has algorithm "
                f"{value_text(algorithm)}. Change one of them."
            )
        given |= from_file
    given |= flags
    tuned = without_memory(tuned, given)
    if args.preset is None:
        settings = tuned | given
    else:
        from kytolly.command.preset import with_preset

        settings = with_preset(args.preset, tuned, given, args.algorithm, args.env)
    return make_config({**settings, "algorithm": args.algorithm}), args.env


def continuation(args: argparse.Namespace, flags: Settings) -> tuple[RunConfig, str]:
    """Config and environment of a run that continues; flags may change what is no structure."""
    from kytolly.record.saved_run import SavedRun, bare_id

    folder = SavedRun.existing(args.resume)
    saved = folder.read_config()
    folder.check_version(saved)
    env = args.env or folder.trusted_environment(saved, trust=args.trust)
    previous = make_config(saved.settings)
    if "wrappers" not in flags:
        folder.trusted_wrappers(saved, trust=args.trust)
    if bare_id(env) != bare_id(saved.environment):
        raise BadInput(f"--env is {env}, and the run to resume was trained on {saved.environment}.")
    if previous.algorithm != args.algorithm:
        raise BadInput(f"ALGO is {args.algorithm}, and the run to resume is {previous.algorithm}.")
    return make_config({**dataclasses.asdict(previous), **flags}), env
