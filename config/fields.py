"""Kinds of settings. A kind is one annotation: type, range, choices and unit; msgspec checks it."""

from __future__ import annotations

import dataclasses
import numbers
import typing
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Self, TypeVar

import msgspec
from msgspec import Meta

T = TypeVar("T")

# A text in an annotation is the unit.
EnvSteps = Annotated[int, Meta(ge=1, le=10**11), "env steps"]
Environments = Annotated[int, Meta(ge=1, le=2**17), "environments"]
Episodes = Annotated[int, Meta(ge=1, le=10**5), "episodes"]
Rows = Annotated[int, Meta(ge=1, le=2**20), "rows"]
MAX_SEED = 2**31 - 1
Seed = Annotated[int, Meta(ge=0, le=MAX_SEED)]
Share = Annotated[float, Meta(ge=0, le=1)]
Positive = Annotated[float, Meta(gt=0, le=1e30)]  # 1e30: float32 holds it
NotNegative = Annotated[float, Meta(ge=0, le=1e30)]
_WIDTHS = Meta(min_length=1, max_length=16, description="1 to 16 whole numbers from 1 to 8,192")
Widths = Annotated[tuple[Annotated[int, Meta(ge=1, le=8_192)], ...], _WIDTHS, "units"]


class Default:
    """A number that nobody gave: what is given beside it may ask for another one.

    It stays one when a config is copied with other changes.
    """


class DefaultCount(Default, int):
    """A whole number that nobody gave."""


class DefaultShare(Default, float):
    """A share that nobody gave."""


def setting(default: T, help: str) -> T:
    """A dataclass field with a help text; its annotation says what it may be."""
    return dataclasses.field(default=default, metadata={"help": help})


class UnknownSetting(ValueError, TypeError):
    """A name that no field has: TypeError, as Python has it, and ValueError, as a file's is."""


class Settings:
    """A configuration dataclass refuses an unknown name with the one that was meant."""

    __slots__ = ()

    def __new__(cls, *_: object, **settings: object) -> Self:
        """An instance, for `__init__` to fill."""
        check_names(cls, settings)
        return object.__new__(cls)

    @property
    def averaged_share(self) -> float:
        """The share of the changes so far over which evaluated weights are averaged; 0: none."""
        return 0.0


def check_names(kind: type, names: Iterable[str]) -> None:
    """Refuse a name that is no field of a configuration dataclass."""
    known = [field.name for field in dataclasses.fields(kind)]
    for name in names:
        if name not in known:
            from kytolly.config.words import nearest, value_text

            raise UnknownSetting(
                f"{value_text(name)} is not a setting of {kind.__name__}.{nearest(name, known)} "
                "`kytolly train --help` lists them."
            )


def from_mapping(kind: type[T], values: Mapping[str, Any]) -> T:
    """A configuration from field names and values; an unknown name is an error."""
    check_names(kind, values)
    return kind(**values)


def check_fields(config: object) -> None:
    """Refuse a value that its annotation does not allow; ValueError names the field."""
    for name, hint in typing.get_type_hints(type(config), include_extras=True).items():
        value = given = getattr(config, name)
        if isinstance(given, Default):
            continue
        try:
            if isinstance(given, numbers.Real) and not isinstance(given, int):  # NumPy's as well
                value = float(given)
                value = int(value) if value.is_integer() else value
            object.__setattr__(config, name, msgspec.convert(value, hint))
        except (ValueError, OverflowError):
            optional = type(None) in typing.get_args(hint)
            if optional and isinstance(given, str) and given == "none":  # as a flag has it
                object.__setattr__(config, name, None)
                continue
            from kytolly.config.words import refusal

            raise ValueError(refusal(name, given, hint)) from None
