"""Train, evaluate and use agents that learn in one XLA program; benchmark and check the machine."""

from __future__ import annotations

import sys

if sys.version_info < (3, 10):
    sys.stderr.write(
        "kytolly: Python %d.%d was found, 3.10 to 3.13 is expected. Make a virtual environment "
        "with a newer Python and install again.\n" % sys.version_info[:2]
    )
    sys.exit(2)

import argparse
import importlib
from collections.abc import Sequence
from typing import Any

from kytolly.command.exits import BadInput, OneLineParser, exit_status
from kytolly.command.options import refuse_repeated
from kytolly.config.words import nearest

# Each is a module of this room with `add_options(parser, words)` and `run(args)`.
COMMANDS = {
    "train": "train an agent, a text classifier, a re-ranker or a query rewriter",
    "evaluate": "play a run's best weights greedily",
    "tune": "search the settings of an algorithm",
    "plot": "draw the curves of several runs in one picture, and compare them in numbers",
    "reformulate": "add terms to search queries with a run of train_optimized.py",
    "search": "show what BM25, the new query and a re-ranker find, one beside the other",
    "classify": "name the classes of texts with a trained classifier",
    "check-env": "compare an environment with what it promises",
    "benchmark": "print throughput tables",
    "doctor": "show what works on this machine, what does not, and what to do",
}


def entry() -> None:
    """Run the command line of this process and exit."""
    sys.exit(main(sys.argv[1:]))


def main(argv: Sequence[str]) -> int:
    """Run one command; returns its exit status (see `exit_status`)."""
    return exit_status(lambda: run_command(argv))


def run_command(argv: Sequence[str]) -> int:
    """Parse the words of the command line and run the command that they name."""
    args = parse(argv)
    return command_module(args.command).run(args)


def command_module(name: str) -> Any:
    """The module of a command."""
    return importlib.import_module(f"kytolly.command.{name.replace('-', '_')}")


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """The options; BadInput names the flag that is nearest to a misspelled one."""
    parser = OneLineParser(prog="kytolly", description=__doc__, allow_abbrev=False)
    commands = parser.add_subparsers(dest="command", required=True, parser_class=OneLineParser)
    flags: list[str] = []
    for name, text in COMMANDS.items():
        command = commands.add_parser(name, help=text, allow_abbrev=False)
        if name in argv[:1]:  # the others are not even imported
            command_module(name).add_options(command, argv)
            command.add_argument("--json", action="store_true", help="last line of output is JSON")
            flags = [flag for action in command._actions for flag in action.option_strings]
            refuse_repeated(command, argv)
    args, unknown = parser.parse_known_args(argv)
    if unknown:
        flag = unknown[0].split("=")[0]
        hint = nearest(flag, flags) or f" `kytolly {args.command} --help` lists all."
        raise BadInput(f"{flag} is not an option of `kytolly {args.command}`.{hint}")
    return args


if __name__ == "__main__":
    entry()
