"""`kytolly completion`: prints a script that completes commands and flags in a shell."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from kytolly.command.options import path
from kytolly.command.train import trained_names

SHELLS = ("bash", "zsh", "tcsh")
USE = {
    "bash": "kytolly completion bash > ~/.local/share/bash-completion/completions/kytolly",
    "zsh": "kytolly completion zsh > ~/.zfunc/_kytolly, with `fpath+=~/.zfunc` before compinit",
    "tcsh": "kytolly completion tcsh > ~/.kytolly.tcsh, with `source ~/.kytolly.tcsh` in ~/.tcshrc",
}


def add_options(parser: argparse.ArgumentParser, words: Sequence[str]) -> None:
    """Add the options of `kytolly completion`."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = "\n".join(["to install it:", *(f"  {line}" for line in USE.values())])
    parser.add_argument("shell", choices=SHELLS, help="which shell")


def run(args: argparse.Namespace) -> int:
    """Print the script."""
    import shtab

    from kytolly.command.entry import make_parser
    from kytolly.command.table import COMMANDS

    parser, commands = make_parser({name: (name,) for name in COMMANDS})
    for action in [action for command in commands.values() for action in command._actions]:
        if action.type is path:
            setattr(action, "complete", shtab.FILE)  # noqa: B010  argparse declares no such name
        if action.dest == "algorithm":
            action.choices = trained_names()
    script = shtab.complete(parser, args.shell)
    if args.json:
        import json

        script = json.dumps({"shell": args.shell, "script": script})
    print(script)
    return 0
