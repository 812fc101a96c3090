"""Options of a command line: flags for the fields of a config, and their values."""

from __future__ import annotations

import argparse
import collections
import dataclasses
import os
import re
import typing
from collections.abc import Iterable, Sequence
from typing import Any

from kytolly.command.exits import BadInput
from kytolly.config.fields import MAX_SEED
from kytolly.config.words import Hint, unit_and_choices, value_text

MAX_NUMBER = 10**9  # repetitions, env steps or seconds
MAX_EPISODES = 10**5  # as in a config: they play at once, and take memory
MAX_SEEDS = 1_000  # in one command


Settings = dict[str, Any]  # of a config, by name, as a file or flags give them


class Repeatable(argparse.Action):
    """Collects the values of an option that may be given several times; mappings are joined."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: object,
        option_string: str | None = None,
    ) -> None:
        """Add a value."""
        given = getattr(namespace, self.dest, None)
        if not isinstance(values, dict):
            setattr(namespace, self.dest, [*(given or []), values])
            return
        for name in values.keys() & (given or {}).keys():
            raise argparse.ArgumentError(self, f"{name} is given twice, expected once")
        setattr(namespace, self.dest, {**(given or {}), **values})


def config_fields(*kinds: type) -> dict[str, tuple[dataclasses.Field, Hint]]:
    """Fields and their types, by name, of one config class or of several, the first one's first.

    The name of the algorithm is no setting.
    """
    fields: dict[str, tuple[dataclasses.Field, Hint]] = {}
    for kind in dict.fromkeys(kinds):
        hints = typing.get_type_hints(kind, include_extras=True)
        fields = {f.name: (f, hints[f.name]) for f in dataclasses.fields(kind)} | fields
    fields.pop("algorithm")
    return fields


def given_settings(args: argparse.Namespace, names: Iterable[str]) -> Settings:
    """The settings that are given as flags: those of the names that the parser has found."""
    return {name: value for name, value in vars(args).items() if name in names}


def add_field(
    parser: argparse.ArgumentParser, field: dataclasses.Field, hint: Hint, shown: str = "own"
) -> None:
    """Add a flag for one field, with its help text, unit and default.

    Args:
        parser: Receives the flag.
        field: Of a config.
        hint: Its type.
        shown: "own": the help gives the default; "varies": it says that there are several; "no":
            the flag is not in the help.
    """
    default, (unit, choices) = field.default, unit_and_choices(hint)
    words = {"None": "none", "True": "yes", "False": "no"}.get(str(default), default)
    words = ",".join(map(str, default)) if isinstance(default, tuple) else words
    words = "by algorithm" if shown == "varies" else words
    text = f"{field.metadata['help']} [{f'{unit}; ' if unit else ''}default {words}]"
    text = argparse.SUPPRESS if shown == "no" else text
    flag = "--" + field.name.replace("_", "-")
    if hint in (bool, bool | None):
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
    """A number that is written in ASCII digits, without underscores; any other text as it is."""
    for kind in (int, float) if text.isascii() and "_" not in text else ():
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def path(text: str) -> str:
    """A path that an operating system may have: neither empty nor with a null byte.

    One that is not UTF-8 is refused: no file of a run can hold it. A shell leaves the `~` of
    `--log-dir=~/runs` as it is.
    """
    return os.path.expanduser(_name(text, "a path"))


def run_folder(text: str) -> str:
    """The folder of a run: a path, or `zoo:ALGO/ENV` for a run that comes with this package."""
    from kytolly.deployment.zoo import run_path

    text = path(text)
    try:
        return str(run_path(text))
    except ValueError as error:
        raise BadInput(str(error)) from None


def environment(text: str) -> str:
    """A name that an environment may have."""
    return _name(text, "a Gymnasium id, such as CartPole-v1")


def _name(text: str, expected: str) -> str:
    if not text.strip() or re.search("[\0\ud800-\udfff]", text):
        raise argparse.ArgumentTypeError(f"{value_text(text)} was found, expected {expected}")
    return text


def positive(text: str) -> int:
    """A whole number of at least 1."""
    return whole_number(text, 1, MAX_NUMBER, "above 0")


def episodes(text: str) -> int:
    """A number of episodes."""
    return whole_number(text, 1, MAX_EPISODES, "above 0")


def seed(text: str) -> int:
    """A seed of random draws."""
    return whole_number(text, 0, MAX_SEED, "of at least 0")


def seed_list(text: str) -> list[int]:
    """Seeds such as `0-9`, `0,3,5` or `1,4-6`."""
    seeds: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"([0-9]{1,10})(?:-([0-9]{1,10}))?", part.strip())
        ends = [int(end) for end in match.groups() if end] if match else [1, 0]
        first, last = ends[0], ends[-1]
        if not first <= last <= MAX_SEED or last - first >= MAX_SEEDS:
            raise argparse.ArgumentTypeError(
                f"{value_text(text)} was found, expected seeds such as 0-9 or 0,3,5, at most "
                f"{MAX_SEEDS:,} of them"
            )
        seeds += range(first, last + 1)
    if len(set(seeds)) < len(seeds) or len(seeds) > MAX_SEEDS:
        raise argparse.ArgumentTypeError(
            f"{value_text(text)} was found, expected different seeds, at most {MAX_SEEDS:,}"
        )
    return seeds


def whole_number(text: str, least: int, most: int, words: str) -> int:
    """A whole number from `least`, which `words` say, to `most`."""
    given = as_number(text)
    if not isinstance(given, int) or not least <= given <= most:
        raise argparse.ArgumentTypeError(
            f"{value_text(text)} was found, expected a whole number {words} and at most {most:,}"
        )
    return given


def seconds(text: str) -> float:
    """A time above 0."""
    return positive_number(text, MAX_NUMBER, "seconds")


def microseconds(text: str) -> float:
    """A time above 0."""
    return positive_number(text, 1e6, "microseconds")


def positive_number(text: str, most: float, words: str) -> float:
    """A number above 0; `words` say what it counts."""
    given = as_number(text)
    if isinstance(given, str) or not 0 < given <= most:
        raise argparse.ArgumentTypeError(
            f"{value_text(text)} was found, expected {words} above 0 and at most {most:,}"
        )
    return float(given)


def add_run(parser: argparse.ArgumentParser) -> None:
    """Add RUN, the run of an agent that a command uses."""
    parser.add_argument(
        "run_dir",
        type=run_folder,
        metavar="RUN",
        help="folder of the run, or zoo:ALGO/ENV, such as zoo:ppo/CartPole-v1",
    )


def add_profile(parser: argparse.ArgumentParser) -> None:
    """Add `--profile`."""
    parser.add_argument(
        "--profile", action="store_true", help="time the parts of training, after training"
    )


def add_trust(parser: argparse.ArgumentParser) -> None:
    """Add `--trust`."""
    parser.add_argument(
        "--trust", action="store_true", help="import the Python module that the run's folder names"
    )


def refuse_repeated(parser: argparse.ArgumentParser, words: Sequence[str]) -> None:
    """Refuse an option that is given twice: argparse would take the last one without a word."""
    given = [word.split("=")[0] for word in words[: [*words, "--"].index("--")]]
    known = parser._option_string_actions
    once = [flag for flag in given if not isinstance(known.get(flag), Repeatable)]
    times = collections.Counter(known[flag].dest for flag in once if flag in known)
    for flag in given:
        if flag in known and times[known[flag].dest] > 1:
            raise BadInput(f"{flag} is given {times[known[flag].dest]} times. Give it once.")
