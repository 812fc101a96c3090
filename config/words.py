"""Words of messages about settings: one short line, whatever was given."""

from __future__ import annotations

import difflib
import reprlib
import types
import typing
from collections.abc import Iterable
from typing import Any, Literal

from kytolly.config.other_names import SETTINGS

PREFIX = "kytolly: "  # begins a line for the user


def value_text(value: Any) -> str:
    """A value in a message."""
    short = reprlib.Repr()
    short.maxstring = short.maxother = 300
    try:
        return " ".join(short.repr(value).split())
    except ValueError:  # Python refuses to print a number of more than 4,300 digits
        return "a number of thousands of digits"


def path_text(path: Any) -> str:
    """A path in a message, without quotes."""
    return value_text(str(path))[1:-1]


def nearest(name: Any, known: Iterable[str]) -> str:
    """A question for the known name that is nearest to an unknown one, if one is near.

    Near is what another library calls it, what its words begin with, or what is spelled alike.
    """
    if not isinstance(name, str):
        return ""
    plain = {plain_name(one): one for one in known}
    asked = plain_name(name)
    match = plain.get(SETTINGS.get(asked, "")) or next(
        (one for key, one in plain.items() if asked == "".join(w[:1] for w in key.split("_"))), None
    )
    near = [match] if match else difflib.get_close_matches(name, plain.values(), 1)
    return f" Did you mean {near[0]!r}?" if near else ""


def plain_name(name: str) -> str:
    """A flag or a setting as a field is called."""
    return name.lstrip("-").replace("-", "_").lower()


def unit_and_choices(hint: Any) -> tuple[str, tuple[str, ...]]:
    """The unit and the choices in the annotation of a setting; empty where it has none."""
    hint = _without_none(hint)
    if typing.get_origin(hint) is Literal:
        return "", typing.get_args(hint)
    return next((note for note in typing.get_args(hint) if isinstance(note, str)), ""), ()


def expectation(hint: Any) -> str:
    """The values that an annotation allows, such as `a whole number, at least 1`."""
    unit, choices = unit_and_choices(hint)
    hint = _without_none(hint)
    if choices:
        return f"one of {', '.join(choices)}"
    if not hasattr(hint, "__metadata__"):
        return "true or false" if hint is bool else hint.__name__
    meta = hint.__metadata__[0]
    if meta.description:
        return meta.description
    noun = "a whole number" if hint.__origin__ is int else "a number"
    limits = (("above", meta.gt), ("at least", meta.ge), ("at most", meta.le))
    words = " and ".join(f"{word} {limit:,}" for word, limit in limits if limit is not None)
    return f"{noun}, {words} {unit}".rstrip()


def _without_none(hint: Any) -> Any:
    return typing.get_args(hint)[0] if types.NoneType in typing.get_args(hint) else hint
