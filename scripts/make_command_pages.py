"""Writes docs/commands/: a page for each command, made from its options. Run it after a change."""

from __future__ import annotations

import argparse
from pathlib import Path

from kytolly.command.entry import make_parser
from kytolly.command.table import COMMANDS
from kytolly.command.train import trained_names

FOLDER = Path(__file__).parents[1] / "docs" / "commands"


def pages() -> dict[str, str]:
    """File name -> Markdown, for each command and for each thing that `train` trains."""
    commands = {
        f"{name}.md": page((name,), text[0].upper() + text[1:] + ".")
        for name, text in COMMANDS.items()
    }
    trained = {f"train_{name}.md": page(("train", name), "") for name in trained_names()}
    return commands | trained


def page(words: tuple[str, ...], opening: str) -> str:
    """The page of a command."""
    parser = make_parser({words[0]: words})[1][words[0]]
    actions = [action for action in parser._actions if action.help is not argparse.SUPPRESS]
    options = [action for action in actions if action.option_strings and action.dest != "help"]
    arguments = [action for action in actions if not action.option_strings]
    if len(words) > 1:
        arguments = [action for action in arguments if action.dest != "algorithm"]
    text = " ".join((parser.description or "").split()) or opening
    usage = " ".join(["kytolly", *words, *(str(each.metavar or each.dest) for each in arguments)])
    lines = [f"# kytolly {' '.join(words)}", "", text, "", f"    {usage} [options]", ""]
    lines += ["This page is made from the command's own help.", ""]
    for title, listed in (("argument", arguments), ("option", options)):
        if listed:
            lines += [f"| {title} | what it does |", "| --- | --- |"]
            lines += [f"| {flags(action)} | {cell(action)} |" for action in listed] + [""]
    if parser.epilog:
        lines += [*("    " + line for line in parser.epilog.splitlines()), ""]
    return "\n".join(lines)


def flags(action: argparse.Action) -> str:
    """The spelling of an option, in a cell of a table."""
    choices = ", ".join(map(str, action.choices)) if action.choices else ""
    value = action.metavar or choices or action.dest.upper()
    shown = f" {value}".replace("|", "/") if action.nargs != 0 and value else ""
    names = action.option_strings or [str(value)]
    return "<br>".join(f"`{name}{shown if action.option_strings else ''}`" for name in names)


def cell(action: argparse.Action) -> str:
    """The help of an option, in a cell of a table."""
    text = (action.help or "").replace("%%", "%")
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")


def write() -> None:
    """Write every page, and remove those of commands that are gone."""
    FOLDER.mkdir(exist_ok=True)
    texts = pages()
    for path in FOLDER.glob("*.md"):
        if path.name not in texts:
            path.unlink()
    for name, text in texts.items():
        (FOLDER / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write()
