"""The command `kytolly`: train, evaluate, reformulate, benchmark, doctor."""

from __future__ import annotations

import sys

if sys.version_info < (3, 10):
    sys.stderr.write(
        "kytolly: Python %d.%d was found, 3.10 to 3.13 is expected. Make a virtual environment "
        "with a newer Python and install again.\n" % sys.version_info[:2]
    )
    sys.exit(2)

import argparse
import contextlib
import dataclasses
import difflib
import json
import os
import typing
import warnings
from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

from kytolly.agent.algorithms import ALGORITHMS, make_config, part
from kytolly.config.files import read_yaml
from kytolly.config.run import RunConfig
from kytolly.config.tuned import tuned_settings


class BadInput(Exception):
    """Something the user gave does not fit; the message is one line."""


class OneLineParser(argparse.ArgumentParser):
    """An argument parser whose errors are one line, without the usage text."""

    def error(self, message: str) -> NoReturn:
        """Raise instead of printing usage and leaving."""
        raise BadInput(f"{message}. `{self.prog} --help` shows what is possible.")


def entry() -> None:
    """Entry point of the console command."""
    sys.exit(main(sys.argv[1:]))


def main(argv: Sequence[str]) -> int:
    """Run one command; returns the exit status: 0, 1, 2 for bad input, 130 for Ctrl-C."""
    try:
        args = parsed(argv)
        return args.run(args)
    except BadInput as error:
        return complaint(str(error))
    except (ValueError, ModuleNotFoundError) as error:
        if os.environ.get("KYTOLLY_TRACEBACK"):
            raise
        return complaint(str(error))
    except KeyboardInterrupt as stop:
        complaint(f"interrupted. {stop}")
        return 130
    except Exception as error:
        if os.environ.get("KYTOLLY_TRACEBACK") or not is_environment_fault(error):
            raise
        return complaint(str(error))


def complaint(message: str) -> int:
    """Print one line on standard error; returns the exit status of bad input."""
    print(f"kytolly: {' '.join(message.split())}", file=sys.stderr)
    return 2


def is_environment_fault(error: Exception) -> bool:
    """Whether the user's environment, not this library, did something wrong."""
    return any(kind.__name__ == "EnvironmentFault" for kind in type(error).__mro__)


def parsed(argv: Sequence[str]) -> argparse.Namespace:
    """The arguments; BadInput names a misspelt flag's nearest real name."""
    parser = make_parser(next((word for word in argv if word in ALGORITHMS), None))
    args, unknown = parser.parse_known_args(argv)
    if unknown:
        names = [o for a in subparser(parser, args.command)._actions for o in a.option_strings]
        flag = unknown[0].split("=")[0]
        near = difflib.get_close_matches(flag, names, 1)
        hint = f"Did you mean {near[0]}?" if near else f"`kytolly {args.command} --help` lists all."
        raise BadInput(f"{flag} is not an option of `kytolly {args.command}`. {hint}")
    return args


def subparser(parser: argparse.ArgumentParser, command: str) -> argparse.ArgumentParser:
    """The parser of one command."""
    choices = next(a for a in parser._actions if isinstance(a, argparse._SubParsersAction)).choices
    return typing.cast("dict[str, argparse.ArgumentParser]", choices)[command]


def make_parser(algorithm: str | None = None) -> argparse.ArgumentParser:
    """All commands and their options; those of `train` are the algorithm's, or of all of them."""
    parser = OneLineParser(prog="kytolly", description=__doc__, allow_abbrev=False)
    commands = parser.add_subparsers(dest="command", required=True, parser_class=OneLineParser)
    add_train(commands, algorithm)
    evaluate = commands.add_parser(
        "evaluate", help="play a run's best weights greedily", allow_abbrev=False
    )
    evaluate.add_argument("run_dir", metavar="RUN", help="folder of the run")
    evaluate.add_argument("--episodes", type=positive, default=100, help="episodes to play")
    evaluate.add_argument("--seed", type=int, default=None, help="seed of the episodes")
    evaluate.set_defaults(run=run_evaluate)
    benchmark = commands.add_parser("benchmark", help="throughput tables", allow_abbrev=False)
    benchmark.add_argument("name", nargs="?", metavar="NAME", help="one table instead of all")
    benchmark.add_argument("--repeats", type=positive, default=3, help="runs behind each median")
    benchmark.add_argument("--env", help="one environment of the tables that train several")
    benchmark.add_argument("--seeds", type=positive, default=None, help="seeds of those tables")
    benchmark.add_argument("--figure", metavar="FILE", help="picture of the learning curves")
    benchmark.add_argument("--collection", metavar="DIR", help="what reformulation searches")
    benchmark.add_argument("--quick", action="store_true", help="small sizes, to see it work")
    benchmark.set_defaults(run=run_benchmark)
    check = commands.add_parser(
        "doctor", help="what works on this machine, what does not, and what to do"
    )
    check.set_defaults(run=run_doctor)
    reformulate = add_reformulate(commands)
    for command in (evaluate, benchmark, check, reformulate):
        command.add_argument("--json", action="store_true", help="last line of output is JSON")
    return parser


def add_reformulate(commands: Any) -> argparse.ArgumentParser:
    """The command `reformulate`."""
    parser = commands.add_parser(
        "reformulate",
        help="add terms to search queries, as a run of train_optimized.py learnt it",
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("run_dir", metavar="RUN", help="folder of the run")
    add("query", nargs="?", metavar="QUERY", help="text of a query")
    add("--top", type=positive, help="documents of a ranking; default: 10, in a run file 1000")
    add("--collection", metavar="DIR", help="other documents than those of the run, or builtin")
    add("--queries", metavar="FILE", help="many queries: JSON lines with _id and text")
    add("--run-file", metavar="OUT", help="where their rankings go, in TREC's format")
    parser.set_defaults(run=run_reformulate)
    return parser


def settings_of(algorithm: str | None) -> dict[str, tuple[dataclasses.Field, Any]]:
    """Fields and their types, by name, of an algorithm's configuration or of all of them."""
    found: dict[str, tuple[dataclasses.Field, Any]] = {}
    names = [algorithm] if algorithm else list(ALGORITHMS)
    for kind in dict.fromkeys(part(name, "config") for name in names):
        hints = typing.get_type_hints(kind)
        found = {f.name: (f, hints[f.name]) for f in dataclasses.fields(kind)} | found
    found.pop("algorithm")
    return found


def add_train(commands: Any, algorithm: str | None) -> None:
    """The command `train`: a flag for every field of the configuration."""
    train = commands.add_parser(
        "train",
        help="train an agent",
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Train an agent. Settings come from the defaults, then from this project's "
        "tuned\nsettings for the task, then from --config, then from the flags. "
        "`kytolly train ALGO --help`\nlists the settings of one algorithm.",
    )
    train.add_argument("algorithm", metavar="ALGO", help=f"one of {', '.join(ALGORITHMS)}")
    train.add_argument("--env", help="Gymnasium id, such as CartPole-v1")
    train.add_argument("--config", metavar="FILE", help="YAML file with settings")
    train.add_argument("--log-dir", metavar="DIR", help="folder of the run; default: a new one")
    train.add_argument("--resume", metavar="RUN", help="continue the run in this folder")
    train.add_argument("--json", action="store_true", help="last line of output is JSON")
    for field, hint in settings_of(algorithm).values():
        add_field(train, field, hint)
    train.set_defaults(run=run_train)


def add_field(parser: argparse.ArgumentParser, field: dataclasses.Field, hint: Any) -> None:
    """A flag for one field, with its help text, unit and default."""
    unit, default = field.metadata["unit"], field.default
    shown = ",".join(map(str, default)) if isinstance(default, tuple) else default
    text = f"{field.metadata['help']} [{f'{unit}; ' if unit else ''}default {shown}]"
    flag = "--" + field.name.replace("_", "-")
    if hint is bool:
        parser.add_argument(
            flag, action=argparse.BooleanOptionalAction, default=argparse.SUPPRESS, help=text
        )
        return
    parser.add_argument(
        flag,
        metavar=unit.split()[-1].upper() if unit else "VALUE",
        type=lambda given: value_of(given, flag),
        default=argparse.SUPPRESS,
        help=text.replace("%", "%%"),
    )


def value_of(text: str, flag: str) -> Any:
    """A flag's text as the number, list or word that a YAML file would hold."""
    if text.lower() in ("none", "null"):
        return None
    if flag == "--hidden-units":
        return [value_of(part, "") for part in text.split(",")]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def positive(text: str) -> int:
    """A whole number of at least 1."""
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} was found, expected a whole number above 0")
    return int(text)


def run_train(args: argparse.Namespace) -> int:
    """`kytolly train`."""
    if args.algorithm not in ALGORITHMS:
        near = difflib.get_close_matches(args.algorithm, ALGORITHMS, 1)
        hint = f" Did you mean {near[0]}?" if near else ""
        raise BadInput(
            f"{args.algorithm!r} is no algorithm; there are {', '.join(ALGORITHMS)}.{hint}"
        )
    if args.resume and args.log_dir:
        raise BadInput("--resume continues in the run's own folder. Leave --log-dir out.")
    names = settings_of(args.algorithm)
    flags = {name: value for name, value in vars(args).items() if name in names}
    cfg, env = resumed(args, flags) if args.resume else fresh(args, flags)
    prepare_machine(cfg)
    from kytolly.trainer import Trainer

    trainer = Trainer(args.resume or args.log_dir)
    result = trainer.train(cfg, env, resume=bool(args.resume))
    report(result.summary, args.json)
    return 0


def fresh(args: argparse.Namespace, flags: dict[str, Any]) -> tuple[Any, str]:
    """Settings and environment of a new run."""
    if not args.env:
        raise BadInput("--env is missing: give a Gymnasium id, such as --env CartPole-v1.")
    settings = tuned_settings(args.algorithm, args.env)
    if args.config:
        from_file = read_yaml(args.config)
        settings |= from_file.get("settings", from_file)
    settings = {**settings, **flags, "algorithm": args.algorithm}
    return make_config(settings), args.env


def resumed(args: argparse.Namespace, flags: dict[str, Any]) -> tuple[Any, str]:
    """Settings and environment of a run that goes on; flags may change what is no structure."""
    from kytolly.record.run_folder import RunFolder

    settings, env = RunFolder.existing(args.resume).read_settings()
    old = make_config(settings)
    if args.env and args.env != env:
        raise BadInput(f"--env is {args.env}, and the run to resume was trained on {env}.")
    if old.algorithm != args.algorithm:
        raise BadInput(f"ALGO is {args.algorithm}, and the run to resume is {old.algorithm}.")
    settings = {**dataclasses.asdict(old), **flags}
    return make_config(settings), env


def run_evaluate(args: argparse.Namespace) -> int:
    """`kytolly evaluate`."""
    from kytolly.record.run_folder import RunFolder

    settings, _ = RunFolder.existing(args.run_dir).read_settings()
    prepare_machine(make_config(settings))
    from kytolly.trainer import Trainer

    evaluation = Trainer(progress=False).evaluate(args.run_dir, args.episodes, args.seed)
    report({"evaluation": evaluation.summary(), "run_dir": args.run_dir}, args.json)
    return 0


def run_reformulate(args: argparse.Namespace) -> int:
    """`kytolly reformulate`."""
    if (args.query is None) == (args.queries is None):
        raise BadInput("expected either the text of a query or --queries FILE: give one of them.")
    if (args.run_file is None) != (args.queries is None):
        raise BadInput("--queries and --run-file belong together: give both or none.")
    prepare_machine()
    from kytolly.reformulation.reformulator import Reformulator, reformulate_file

    reformulator = Reformulator.load(args.run_dir, args.collection)
    if args.queries is None:
        found = reformulator.reformulate(args.query, args.top or 10)
        result, lines = found.as_dict(), found.lines()
    else:
        result = reformulate_file(reformulator, args.queries, args.run_file, args.top or 1000)
        lines = [f"{name.replace('_', ' ')}: {value}" for name, value in result.items()]
    result["run_dir"] = args.run_dir
    print(json.dumps(result) if args.json else "\n".join(lines))
    return 0


def run_benchmark(args: argparse.Namespace) -> int:
    """`kytolly benchmark`."""
    from kytolly.benchmarks.suite import run

    return run(
        args.name,
        repeats=args.repeats,
        as_json=args.json,
        env=args.env,
        seeds=args.seeds,
        figure=args.figure,
        collection=args.collection,
        quick=args.quick,
    )


def run_doctor(args: argparse.Namespace) -> int:
    """`kytolly doctor`."""
    from kytolly.machine import doctor

    return doctor.main(json=args.json)


def prepare_machine(cfg: RunConfig | None = None) -> None:
    """Configure TensorFlow before its first import, and keep its start-up chatter away."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    warnings.showwarning = lambda message, *_, **__: print(f"kytolly: {message}", file=sys.stderr)
    from kytolly.machine.configure import configure_gpu_optimization

    with start_up_chatter_hidden():
        configure_gpu_optimization(enable_xla=cfg is None or cfg.xla, verbose=False)


@contextlib.contextmanager
def start_up_chatter_hidden() -> Iterator[None]:
    """Keep what TensorFlow's C++ code writes to standard error while it is imported from users.

    It writes before it reads any setting. KYTOLLY_TRACEBACK=1 shows it.
    """
    if os.environ.get("KYTOLLY_TRACEBACK"):
        yield
        return
    with open(os.devnull, "w") as nowhere:
        kept = os.dup(2)
        os.dup2(nowhere.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(kept, 2)
            os.close(kept)


def report(summary: dict[str, Any], as_json: bool) -> None:
    """The result on standard output: a JSON line, or a few lines for a reader."""
    if as_json:
        print(json.dumps(summary))
        return
    evaluation = summary["evaluation"]
    print(
        f"Return {evaluation['return_mean']:.1f} ± {evaluation['return_std']:.1f} over "
        f"{evaluation['episodes']} greedy episodes"
    )
    if "env_steps" in summary:
        print(
            f"{summary['algorithm']} on {summary['environment']} ({summary['loop']} loop, seed "
            f"{summary['seed']}): {summary['env_steps']:,} env steps, {summary['updates']:,} "
            f"updates in {summary['wall_seconds']:.1f} s, {summary['env_steps_per_second']:,.0f} "
            f"env steps/s, stopped by {summary['stopped_by']}"
        )
    print(f"Run: {summary['run_dir']}")


if __name__ == "__main__":
    entry()
