"""Options of a command line: flags for the fields of a config, and their values."""

from __future__ import annotations

import argparse
import dataclasses
from typing import Any

from kytolly.config.words import unit_and_choices, value_text

MOST = 10**9  # repetitions, episodes or seconds


def add_field(parser: argparse.ArgumentParser, field: dataclasses.Field, hint: Any) -> None:
    """Add a flag for one field, with its help text, unit and default."""
    default, (unit, choices) = field.default, unit_and_choices(hint)
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
    return as_number(text)


def as_number(text: str) -> Any:
    """A number that is written in ASCII digits; any other text as it is."""
    for kind in (int, float) if text.isascii() else ():
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def path(text: str) -> str:
    """A path that an operating system may have: neither empty nor with a null byte.

    One that is not UTF-8 is refused: no file of a run can hold it.
    """
    if not text.strip() or any(one == "\0" or "\ud800" <= one <= "\udfff" for one in text):
        raise argparse.ArgumentTypeError(f"{value_text(text)} was found, expected a path")
    return text


def positive(text: str) -> int:
    """A whole number of at least 1."""
    given = as_number(text)
    if not isinstance(given, int) or not 0 < given <= MOST:
        raise argparse.ArgumentTypeError(
            f"{value_text(text)} was found, expected a whole number above 0 and at most {MOST:,}"
        )
    return given


def seconds(text: str) -> float:
    """A time above 0."""
    given = as_number(text)
    if isinstance(given, str) or not 0 < given <= MOST:
        raise argparse.ArgumentTypeError(
            f"{value_text(text)} was found, expected seconds above 0 and at most {MOST:,}"
        )
    return float(given)


def add_trust(parser: argparse.ArgumentParser) -> None:
    """Add `--trust`."""
    parser.add_argument(
        "--trust", action="store_true", help="import the Python module that the run's folder names"
    )
