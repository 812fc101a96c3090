"""`kytolly train reformulation`: trains an agent that improves search queries by adding terms."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from kytolly.command.exits import BadInput, OneLineParser, exit_status
from kytolly.command.options import (
    MAX_NUMBER,
    path,
    positive,
    refuse_repeated,
    seconds,
    seed,
    whole_number,
)
from kytolly.command.start import prepare_machine
from kytolly.search.reformulate.options import ReformulationOptions, read_options


def main(argv: Sequence[str]) -> int:
    """Run the command; returns its exit status (see `exit_status`)."""
    return exit_status(lambda: run(parse(argv)))


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """The options; BadInput where they are none."""
    parser = make_parser()
    refuse_repeated(parser, argv)
    return parser.parse_args(argv)


def epochs(text: str) -> int:
    """A number of passes over the training queries."""
    return whole_number(text, 0, MAX_NUMBER, "of at least 0")


def make_parser() -> argparse.ArgumentParser:
    """The parser with all options of the command."""
    parser = OneLineParser(prog="train_optimized.py", allow_abbrev=False)
    add_options(parser)
    parser.add_argument("--json", action="store_true", help="last line of output is JSON")
    return parser


def add_options(parser: argparse.ArgumentParser, words: Sequence[str] = ()) -> None:
    """Add the options of `kytolly train reformulation`."""
    parser.description = "Train an agent that improves search queries by adding terms."
    parser.epilog = (
        "All other settings are in the YAML file: configs/ in the package holds one for a GPU and "
        "one for a CPU, with comments; --config msa_optimized_cpu.yaml finds it there."
    )
    add = parser.add_argument
    if words:
        add("algorithm", metavar="reformulation", choices=("reformulation",))
    add(
        "--config",
        type=path,
        metavar="FILE",
        help="YAML file with settings; default: built-in settings",
    )
    add(
        "--device",
        choices=("auto", "cpu", "cuda", "gpu"),
        default="auto",
        help="where to train; auto: the first GPU, if there is one; gpu and cuda: it must be there",
    )
    add("--epochs", type=epochs, metavar="N", help="passes over the training queries; 0: no PPO")
    add("--batch-size", type=positive, metavar="N", help="rows of a minibatch [env steps]")
    add("--no-amp", action="store_true", help="train without half precision, which only a GPU uses")
    add("--test", action="store_true", help="evaluate the test queries once, after training")
    add("--profile", action="store_true", help="time the parts of PPO's loop, after training")
    add(
        "--collection",
        type=path,
        metavar="DIR",
        help="folder in the BEIR layout, builtin, or ir_datasets:NAME",
    )
    add(
        "--rewriter",
        type=path,
        metavar="RUN",
        help="run of `kytolly train rewriter`, whose terms are candidates, too; default: none",
    )
    add(
        "--generated",
        type=positive,
        metavar="N",
        help="most candidates that the rewriter proposes for a query",
    )
    add(
        "--language",
        metavar="NAME",
        help="language of the documents, one of Snowball's stemmers, none, or auto to detect it; "
        "default: english",
    )
    add("--log-dir", type=path, metavar="DIR", help="folder of the run; default: a new one")
    add("--seed", type=seed, metavar="N", help="seed of every random draw")
    add(
        "--baseline-flow",
        type=seconds,
        nargs="?",
        const=60.0,
        metavar="SECONDS",
        help="compare this flow with one query at a time, each for this long, instead of "
        "training [seconds; default 60]",
    )


def given_options(args: argparse.Namespace) -> ReformulationOptions:
    """The settings of the file, or the defaults, changed by the flags."""
    options = read_options(args.config) if args.config else ReformulationOptions()
    flags = {
        "epochs": args.epochs,
        "batch_size": args.batch_size,
        "use_amp": False if args.no_amp else None,
    }
    given = {name: value for name, value in flags.items() if value is not None}
    kinds = {
        "rewriter": args.rewriter,
        "generated": args.generated,
        "language": args.language,
    }
    search = {name: value for name, value in kinds.items() if value is not None}
    changed = {
        "training": dataclasses.replace(options.training, **given),
        "retrieval": dataclasses.replace(options.retrieval, **search),
    }
    for name in ("collection", "seed"):
        if getattr(args, name) is not None:
            changed[name] = getattr(args, name)
    return dataclasses.replace(options, **changed)


def run(args: argparse.Namespace) -> int:
    """Train as the options say and print the result."""
    if args.baseline_flow and (args.log_dir or args.test or args.profile):
        raise BadInput(
            "--baseline-flow compares and trains nothing. Leave --log-dir, --test and --profile "
            "out."
        )
    options = given_options(args)
    if args.baseline_flow and options.retrieval.rewriter is not None:
        raise BadInput("--baseline-flow compares flows without a rewriter. Leave the rewriter out.")
    prepare_machine()
    import tensorflow as tf

    has_gpu = bool(tf.config.list_physical_devices("GPU"))
    if args.device in ("cuda", "gpu") and not has_gpu:
        raise BadInput(
            f"--device is {args.device}, and TensorFlow sees no GPU on this machine. Use --device "
            "cpu, or run `kytolly doctor` to learn why there is none."
        )
    gpu = has_gpu and args.device != "cpu"
    if args.baseline_flow:
        from kytolly.search.benchmark.reformulation import compare_flows, gain_lines

        summary = compare_flows(options, args.baseline_flow, "/GPU:0" if gpu else "/CPU:0", say)
        print(json.dumps(summary) if args.json else "\n".join(gain_lines(summary)))
        return 0
    from kytolly.search.reformulate.report import lines
    from kytolly.search.reformulate.train import train

    log_dir = Path(args.log_dir) if args.log_dir else None
    summary = train(
        options, gpu=gpu, log_dir=log_dir, test=args.test, profile=args.profile, say=say
    )
    print(json.dumps(summary) if args.json else "\n".join(lines(summary, sys.stdout.isatty())))
    return 0


def say(line: str) -> None:
    """Print a line of progress."""
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
