"""Train, evaluate and use agents that learn in one XLA program; benchmark and check the machine."""

from __future__ import annotations

import sys

if sys.version_info < (3, 11):
    sys.stderr.write(
        "kytolly: Python %d.%d was found, 3.11 to 3.14 is expected. Make a virtual environment "
        "with a newer Python and install again.\n" % sys.version_info[:2]
    )
    sys.exit(2)

import argparse
import contextlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from kytolly.command.exits import BadInput, OneLineParser, exit_status
from kytolly.command.options import refuse_repeated
from kytolly.command.table import COMMANDS, command_module
from kytolly.config.words import nearest, value_text
from kytolly.record.version import __version__


def entry() -> None:
    """Run the command line of this process and exit."""
    leave_current_folder()
    ignore_matplotlibrc_here()
    sys.exit(main(sys.argv[1:]))


def leave_current_folder() -> None:
    """Import nothing more from the current folder, which `python -m` and `-c` put first.

    It may be a run of strangers, beside files with the names of any modules. It stays where this
    package lies in it.
    """
    root = Path(__file__).absolute().parents[2]
    with contextlib.suppress(FileNotFoundError):  # the folder was removed
        first = not sys.flags.safe_path and sys.path[0] in ("", os.getcwd())
        if first and root != Path.cwd():
            del sys.path[0]


def ignore_matplotlibrc_here() -> None:
    """Import Matplotlib from elsewhere, where the current folder has a `matplotlibrc`.

    It would be read, and may name programs to run, as for `text.usetex`.
    """
    if not os.path.lexists("matplotlibrc"):
        return
    here = os.getcwd()
    os.chdir(Path(__file__).absolute().parent)
    try:
        import matplotlib  # noqa: F401  reads the settings once
    finally:
        os.chdir(here)


def main(argv: Sequence[str]) -> int:
    """Run one command; returns its exit status (see `exit_status`)."""
    return exit_status(lambda: run_command(argv))


def run_command(argv: Sequence[str]) -> int:
    """Parse the words of the command line and run the command that they name."""
    args = parse(argv)
    return command_module(args.command).run(args)


def make_parser(
    words: Mapping[str, Sequence[str]],
) -> tuple[OneLineParser, dict[str, argparse.ArgumentParser]]:
    """The parser of the command line.

    Args:
        words: Command -> the words it is given; of other commands only the name is known, and their
            modules are not imported.

    Returns:
        The parser, and that of each command in `words`.
    """
    parser = OneLineParser(prog="kytolly", description=__doc__, allow_abbrev=False)
    parser.add_argument("--version", action="version", version=f"kytolly {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, parser_class=OneLineParser)
    parsers = {}
    for name, text in COMMANDS.items():
        command = commands.add_parser(name, help=text, allow_abbrev=False)
        if name in words:
            command_module(name).add_options(command, words[name])
            command.add_argument("--json", action="store_true", help="last line of output is JSON")
            parsers[name] = command
    return parser, parsers


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """The options; BadInput names the flag that is nearest to a misspelled one."""
    parser, commands = make_parser(dict.fromkeys(argv[:1], argv))
    for command in commands.values():
        refuse_repeated(command, argv)
    args, unknown = parser.parse_known_args(argv)
    if unknown and not any(word.startswith("-") for word in unknown):
        place_late_words(args, unknown, commands[args.command])
    elif unknown:
        flag = unknown[0].split("=")[0]
        actions = commands[args.command]._actions
        if args.command == "train":
            refuse_unfit_flag(flag, args.algorithm)
        flags = [flag for action in actions for flag in action.option_strings]
        hint = nearest(flag, flags) or f" `kytolly {args.command} --help` lists all."
        raise BadInput(f"{flag} is not an option of `kytolly {args.command}`.{hint}")
    return args


def place_late_words(
    args: argparse.Namespace, words: Sequence[str], parser: argparse.ArgumentParser
) -> None:
    """Give words that follow an option to the arguments that were left empty.

    argparse looks for an argument that may be missing before the option, and not again behind it.

    Raises:
        BadInput: There are more words than such arguments.
    """
    places = [
        action.dest
        for action in parser._actions
        if not action.option_strings and action.nargs == "?" and getattr(args, action.dest) is None
    ]
    if len(words) > len(places):
        extra = value_text(words[len(places)])
        raise BadInput(
            f"{extra} is one argument too many, expected those that `{parser.prog} --help` lists: "
            "put a text of several words in quotation marks, give an option such as --env-kwargs "
            "once for each of its values, or leave it out."
        )
    for place, word in zip(places, words, strict=False):
        setattr(args, place, word)


def refuse_unfit_flag(flag: str, algorithm: str) -> None:
    """BadInput where other algorithms have a flag that this one has not."""
    from kytolly.agent.algorithms import algorithms_with

    owners = algorithms_with(flag.removeprefix("--").removeprefix("no-").replace("-", "_"))
    if owners and algorithm not in owners:
        raise BadInput(
            f"{flag} is not an option of `kytolly train {algorithm}`, but of "
            f"{', '.join(owners)}. Leave it out, or choose one of these algorithms."
        )


if __name__ == "__main__":
    entry()
