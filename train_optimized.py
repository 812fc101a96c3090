"""Train an agent that improves search queries by adding terms: `python train_optimized.py`."""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from kytolly.command.main import BadInput, OneLineParser, complaint, positive, prepare_machine
from kytolly.reformulation.options import ReformulationOptions, read_options


def main(argv: Sequence[str]) -> int:
    """Run the command; returns the exit status: 0, 1, 2 for bad input, 130 for Ctrl-C."""
    try:
        return run(parse_arguments(argv))
    except KeyboardInterrupt as stop:
        complaint(f"interrupted. {stop}")
        return 130
    except (BadInput, ValueError, ModuleNotFoundError) as error:
        if os.environ.get("KYTOLLY_TRACEBACK"):
            raise
        return complaint(str(error))


def make_parser() -> argparse.ArgumentParser:
    """All options of the command."""
    parser = OneLineParser(
        prog="train_optimized.py",
        description=__doc__,
        allow_abbrev=False,
        epilog="All other options are in the YAML file: configs/ holds one for a GPU and one for a "
        "CPU, with comments.",
    )
    add = parser.add_argument
    add(
        "--config", metavar="FILE", help="YAML file with options; default: the defaults of the code"
    )
    add(
        "--device",
        choices=("auto", "cpu", "cuda"),
        default="auto",
        help="where to train; auto: the first GPU, if there is one",
    )
    add("--epochs", type=positive, metavar="N", help="passes over the training queries")
    add("--batch-size", type=positive, metavar="N", help="rows of a minibatch [env steps]")
    add("--no-amp", action="store_true", help="do not use half precision, which only a GPU uses")
    add("--test", action="store_true", help="evaluate on the test queries once, after training")
    add("--profile", action="store_true", help="time the parts of PPO's loop, after training")
    add("--collection", metavar="DIR", help="folder in the BEIR layout, or builtin")
    add("--log-dir", metavar="DIR", help="folder of the run; default: a new one")
    add("--seed", type=int, metavar="N", help="seed of every random draw")
    add(
        "--baseline-flow",
        type=seconds,
        nargs="?",
        const=60.0,
        metavar="SECONDS",
        help="instead of training, compare this flow with one query at a time, each for this long "
        "[seconds; default 60]",
    )
    add("--json", action="store_true", help="last line of output is JSON")
    return parser


def seconds(text: str) -> float:
    """Seconds, which must be above 0."""
    try:
        given = float(text)
    except ValueError:
        given = 0.0
    if not 0.0 < given < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} was found, expected seconds above 0")
    return given


def parse_arguments(argv: Sequence[str]) -> argparse.Namespace:
    """The arguments; BadInput says what does not fit."""
    return make_parser().parse_args(argv)


def make_options(args: argparse.Namespace) -> ReformulationOptions:
    """The options of the file, or the defaults, with the flags."""
    options = read_options(args.config) if args.config else ReformulationOptions()
    flags = {
        "epochs": args.epochs,
        "batch_size": args.batch_size,
        "use_amp": False if args.no_amp else None,
    }
    given = {name: value for name, value in flags.items() if value is not None}
    changed = {"training": dataclasses.replace(options.training, **given)}
    for name in ("collection", "seed"):
        if getattr(args, name) is not None:
            changed[name] = getattr(args, name)
    return dataclasses.replace(options, **changed)


def run(args: argparse.Namespace) -> int:
    """Train as the arguments say, and print the result."""
    options = make_options(args)
    prepare_machine()
    import tensorflow as tf

    found = bool(tf.config.list_physical_devices("GPU"))
    if args.device == "cuda" and not found:
        raise BadInput(
            "--device is cuda, and TensorFlow sees no GPU on this machine. Take --device cpu, or "
            "run `kytolly doctor` to learn why there is none."
        )
    gpu = found and args.device != "cpu"
    if args.baseline_flow:
        from kytolly.benchmarks.reformulation import flows_compared, gain_lines

        summary = flows_compared(options, args.baseline_flow, "/GPU:0" if gpu else "/CPU:0", say)
        print(json.dumps(summary) if args.json else "\n".join(gain_lines(summary)))
        return 0
    from kytolly.reformulation.report import lines
    from kytolly.reformulation.train import train

    log_dir = Path(args.log_dir) if args.log_dir else None
    summary = train(
        options, gpu=gpu, log_dir=log_dir, test=args.test, profile=args.profile, say=say
    )
    print(json.dumps(summary) if args.json else "\n".join(lines(summary)))
    return 0


def say(line: str) -> None:
    """Print a line of the progress display."""
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
