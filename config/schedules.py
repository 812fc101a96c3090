"""Settings that change while a run goes on: a name, a table, or a function that becomes a table.

A schedule is written as one of `NAMES`, or as pairs of the share of the run that remains, which
falls from 1 to 0, and the value there, as in "1:0.2 0.5:0.1 0:0"; between them it is linear.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from kytolly.config.words import nearest, value_text

if TYPE_CHECKING:
    from fractions import Fraction

NAMES = ("constant", "linear", "cosine")
POINTS = 1_001  # at which a function is called
TOLERANCE = 1e-4  # share of the largest value by which a table may miss a function
MAX_VALUE = {"epsilon": 1.0}
Table = tuple[np.ndarray, np.ndarray]  # [K] remaining shares from 1 down to 0, [K] values


class Scheduled(Protocol):
    """A config whose settings may follow schedules; these settings are its own."""

    @property
    def algorithm(self) -> str: ...

    @property
    def schedules(self) -> dict[str, Any] | str | None: ...

    @property
    def total_env_steps(self) -> int: ...

    @property
    def updates_per_env_step(self) -> Fraction: ...


def schedules_as_text(cfg: Scheduled) -> dict[str, str] | None:
    """`cfg.schedules` as a file can hold it; ValueError where one cannot be followed.

    Args:
        cfg: Its `schedules` are a mapping, or a text: "learning_rate=cosine,clip_range=linear".
    """
    given: Any = cfg.schedules
    if isinstance(given, str):
        pairs = [part.partition("=") for part in given.split(",")]
        given = {name.strip(): value.strip() for name, _, value in pairs}
    text = {}
    for name, value in given.items():
        if name not in known_names(cfg):
            raise ValueError(
                f"schedules has {value_text(name)}, expected settings of {cfg.algorithm} that can "
                f"change: {', '.join(known_names(cfg))}.{nearest(name, known_names(cfg))} Leave "
                "the others out."
            )
        if callable(value):
            value = table_text(*function_table(cfg, name, value))
        text[name] = str(value)
        schedule_table(cfg, name, text[name])
    return text or None


def known_names(cfg: Scheduled) -> tuple[str, ...]:
    """The settings of a config that may have a schedule."""
    names = ("learning_rate", "clip_range", "entropy_coef", "epsilon")
    return tuple(name for name in names if start_and_end(cfg, name) is not None)


def start_and_end(cfg: Scheduled, name: str) -> tuple[float | None, float] | None:
    """Between which values a named schedule goes; None where the config has no such setting."""
    if name == "epsilon":
        name = "epsilon_start"
        final = getattr(cfg, "epsilon_final", 0.0)
    else:
        final = getattr(cfg, f"{name}_final", None) or 0.0
    return (getattr(cfg, name), final) if hasattr(cfg, name) else None


def schedule_table(cfg: Scheduled, name: str, text: str) -> Table:
    """The table of a schedule; ValueError where the text is neither a name nor a table."""
    if text in NAMES:
        start, end = start_and_end(cfg, name) or (0.0, 0.0)
        if start is None:
            raise ValueError(
                f"the schedule of {name} is {text!r}, and {name} is none, expected a number for it "
                f"to begin at. Set {name}."
            )
        share = np.linspace(0.0, 1.0, POINTS if text == "cosine" else 2)
        fall = {
            "constant": 0.0 * share,
            "linear": share,
            "cosine": 0.5 - 0.5 * np.cos(np.pi * share),
        }
        return 1.0 - share, start + fall[text] * (end - start)
    try:
        remaining, values = np.array([pair.split(":") for pair in text.split()], float).T
    except (ValueError, TypeError):
        raise ValueError(
            f"the schedule of {name} is {value_text(text)}, expected one of {', '.join(NAMES)}, a "
            f"function, or pairs such as '1:0.2 0:0'.{nearest(text, NAMES)} Change it."
        ) from None
    if not (len(remaining) > 1 and remaining[0] == 1 and remaining[-1] == 0) or any(
        np.diff(remaining) >= 0
    ):
        raise ValueError(
            f"the schedule of {name} is {value_text(text)}, expected at least 2 pairs whose first "
            "numbers fall from 1 to 0: they are the share of the run that remains. Change them."
        )
    for share, value in zip(remaining, values, strict=True):
        check_value(name, share, value, "the table")
    return remaining, values


def function_table(cfg: Scheduled, name: str, function: Callable[[float], object]) -> Table:
    """The table of a function of the remaining share, or of a Keras schedule of the update."""
    word = getattr(function, "__name__", type(function).__name__)
    updates = max(1, int(cfg.total_env_steps * cfg.updates_per_env_step))
    remaining = np.linspace(1.0, 0.0, POINTS)
    values = np.zeros(POINTS)
    for index, share in enumerate(remaining.tolist()):
        argument: Any = share
        if hasattr(function, "get_config"):  # a LearningRateSchedule
            argument = round((1.0 - share) * updates)
        try:
            value = function(argument)
        except Exception as error:
            raise ValueError(
                f"the schedule {word} of {name} fails at {argument:g} ({type(error).__name__}: "
                f"{' '.join(str(error).split()):.200}), expected a function of one number, the "
                "share of the run that remains (1 to 0). Change it."
            ) from error
        values[index] = check_value(name, share, value, word)
    return short_table(remaining, values)


def check_value(name: str, share: float, value: Any, word: str) -> float:
    """A value of a schedule as a number; ValueError where it is none that the setting may have."""
    number = math.nan
    most = MAX_VALUE.get(name, 1e30)
    if isinstance(value, numbers.Real) or np.shape(value) == ():
        try:
            number = float(value)
        except (TypeError, ValueError):
            number = math.nan
    if not 0.0 <= number <= most:
        upper = f" and at most {most:g}" if name in MAX_VALUE else ""
        raise ValueError(
            f"the schedule {word} of {name} gives {value_text(value)} where {share:g} of the run "
            f"remains, expected a finite number, at least 0{upper}. Change it."
        )
    return number


def short_table(remaining: np.ndarray, values: np.ndarray) -> Table:
    """The points of a table from which the others follow, to within `TOLERANCE`."""
    allowed = TOLERANCE * np.abs(values).max()
    kept = [0]
    last = len(values) - 1
    while kept[-1] < last:
        start = kept[-1]
        end = kept[-1] + 1
        while end < last:
            between = slice(start, end + 2)
            share = np.linspace(0.0, 1.0, end + 2 - start)
            line = values[start] + share * (values[end + 1] - values[start])
            if np.abs(line - values[between]).max() > allowed:
                break
            end += 1
        kept.append(end)
    return remaining[kept], values[kept]


def table_text(remaining: np.ndarray, values: np.ndarray) -> str:
    """A table in one line."""
    return " ".join(f"{p:.6g}:{v:.9g}" for p, v in zip(remaining, values, strict=True))


def with_half_rate(schedules: Mapping[str, str]) -> dict[str, str]:
    """The schedules with a table of the learning rate halved; a name follows `learning_rate`."""
    text = schedules.get("learning_rate", "linear")
    if text in NAMES:
        return dict(schedules)
    pairs = [pair.split(":") for pair in text.split()]
    half = " ".join(f"{p}:{float(v) / 2:.9g}" for p, v in pairs)
    return {**schedules, "learning_rate": half}
