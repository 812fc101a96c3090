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
    found = {}
    for name, text in COMMANDS.items():
        found[f"{name}.md"] = page((name,), text[0].upper() + text[1:] + ".")
    for name in trained_names():
        found[f"train_{name}.md"] = page(("train", name), "")
    return found


def page(words: tuple[str, ...], opening: str) -> str:
    """The page of a command."""
    parser = make_parser({words[0]: words})[1][words[0]]
    actions = [one for one in parser._actions if one.help is not argparse.SUPPRESS]
    named = [one for one in actions if one.option_strings and one.dest != "help"]
    places = [one for one in actions if not one.option_strings]
    if len(words) > 1:
        places = [one for one in places if one.dest != "algorithm"]
    own = " ".join((parser.description or "").split())
    usage = " ".join(["kytolly", *words, *(str(one.metavar or one.dest) for one in places)])
    lines = [f"# kytolly {' '.join(words)}", "", own or opening, "", f"    {usage} [options]", ""]
    lines += ["This page is made from the command's own help.", ""]
    for title, listed in (("argument", places), ("option", named)):
        if listed:
            lines += [f"| {title} | what it does |", "| --- | --- |"]
            lines += [f"| {flags(one)} | {cell(one)} |" for one in listed] + [""]
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
    made = pages()
    for path in FOLDER.glob("*.md"):
        if path.name not in made:
            path.unlink()
    for name, text in made.items():
        (FOLDER / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write()
