"""Options of a command line: flags for the fields of a config, and their values."""

from __future__ import annotations

import argparse
import dataclasses
import os
from typing import Any


def add_field(parser: argparse.ArgumentParser, field: dataclasses.Field, hint: Any) -> None:
    """Add a flag for one field, with its help text, unit and default."""
    unit, default, choices = field.metadata["unit"], field.default, field.metadata["choices"]
    words = {"None": "none", "True": "yes", "False": "no"}.get(str(default), default)
    words = ",".join(map(str, default)) if isinstance(default, tuple) else words
    text = f"{field.metadata['help']} [{f'{unit}; ' if unit else ''}default {words}]"
    flag = "--" + field.name.replace("_", "-")
    if hint is bool:
        parser.add_argument(
            flag, action=argparse.BooleanOptionalAction, default=argparse.SUPPRESS, help=text
        )
        return
    parser.add_argument(
        flag,
        metavar="|".join(choices) or (unit.split()[-1].upper() if unit else "VALUE"),
        type=lambda given: flag_value(given, flag),
        default=argparse.SUPPRESS,
        help=text.replace("%", "%%"),
    )


def flag_value(text: str, flag: str) -> Any:
    """The text of a flag as the number, list or word that a YAML file would hold."""
    if text.lower() in ("none", "null"):
        return None
    if flag == "--hidden-units":
        return [flag_value(part, "") for part in text.split(",")]
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


def seconds(text: str) -> float:
    """A time above 0."""
    try:
        given = float(text)
    except ValueError:
        given = 0.0
    if not 0.0 < given < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} was found, expected seconds above 0")
    return given


def path(text: str) -> str:
    """A path that the system can look up; nothing need be there."""
    try:
        if text.encode():  # what is not UTF-8 fits into no file of a run
            os.lstat(text)
            return text
        problem = "empty"
    except (FileNotFoundError, NotADirectoryError):
        return text
    except (OSError, ValueError) as error:
        problem = getattr(error, "strerror", None) or str(error)
    shown = ascii(text[:60]) + ("..." if len(text) > 60 else "")
    raise argparse.ArgumentTypeError(f"{shown} was found ({problem}), expected a path")
