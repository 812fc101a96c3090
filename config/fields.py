"""Fields of a configuration that know their help text, unit and range, and refuse early."""

from __future__ import annotations

import dataclasses
import difflib
import math
import re
import types
import typing
from typing import Any


def setting(
    default: Any,
    help: str,
    *,
    unit: str = "",
    at_least: float | None = None,
    at_most: float | None = None,
    above: float | None = None,
    choices: tuple[str, ...] = (),
) -> Any:
    """A dataclass field that knows its help text, its unit and its range."""
    metadata = {"help": help, "unit": unit, "choices": choices}
    limits = {"at_least": at_least, "at_most": at_most, "above": above}
    metadata |= {name: limit for name, limit in limits.items() if limit is not None}
    return dataclasses.field(default=default, metadata=metadata)


def check_fields(config: Any) -> None:
    """Refuse a value of the wrong type or out of range; ValueError names the field."""
    hints = typing.get_type_hints(type(config))
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        object.__setattr__(config, field.name, typed_value(field.name, value, hints[field.name]))
        _check_range(field, getattr(config, field.name))


def typed_value(name: str, value: Any, hint: Any) -> Any:
    """`value` as the annotated type, where that loses nothing; else a ValueError."""
    if isinstance(hint, types.UnionType):
        if value is None:
            return None
        hint = next(kind for kind in typing.get_args(hint) if kind is not types.NoneType)
    if typing.get_origin(hint) is tuple:
        if isinstance(value, (list, tuple)) and value:
            return tuple(typed_value(name, item, typing.get_args(hint)[0]) for item in value)
    elif hint is bool:
        if isinstance(value, bool):
            return value
    elif hint is int:
        whole = isinstance(value, (int, float)) and not isinstance(value, bool)
        if whole and float(value).is_integer():
            return int(value)
    elif hint is float:
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if number and math.isfinite(value):
            return float(value)
    elif isinstance(value, hint):
        return value
    expected = {int: "a whole number", float: "a finite number", bool: "true or false", str: "text"}
    raise ValueError(
        f"{name} is {value!r}, expected {expected.get(hint, 'a non-empty list of whole numbers')}."
    )


def _check_range(field: dataclasses.Field, value: Any) -> None:
    if value is None:
        return
    meta, unit = field.metadata, field.metadata.get("unit", "")
    if meta.get("choices") and value not in meta["choices"]:
        near = difflib.get_close_matches(str(value), meta["choices"], 1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise ValueError(
            f"{field.name} is {value!r}, expected one of {', '.join(meta['choices'])}.{hint}"
        )
    for number in value if isinstance(value, tuple) else (value,):
        for limit, wrong, words in (
            ("at_least", lambda a, b: a < b, "at least"),
            ("at_most", lambda a, b: a > b, "at most"),
            ("above", lambda a, b: a <= b, "above"),
        ):
            if limit in meta and wrong(number, meta[limit]):
                unit = singular(unit) if meta[limit] == 1 else unit
                raise ValueError(
                    f"{field.name} is {number}, expected {words} {meta[limit]} {unit}".rstrip()
                    + ". Change it."
                )


def singular(unit: str) -> str:
    """The unit of exactly one: `env step` for `env steps`, `pass` for `passes`."""
    return re.sub(r"(?<=ss|ch)es$|s$", "", unit)
