"""The zoo: trained runs that come with the package, by name, such as zoo:PPO/CartPole-v1."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from kytolly.config.words import nearest, value_text

PREFIX = "zoo:"
FILES = ("config.yaml", "best.keras", "result.json")


def run_path(run: str | os.PathLike[str]) -> Path:
    """The folder of a run, given as a path or as a name in the zoo.

    Args:
        run: A path, or `zoo:ALGO/ENV`; capital and small letters are the same there.

    Raises:
        ValueError: The zoo has no run of that name; the message says which it has.
    """
    if not isinstance(run, str) or not run.startswith(PREFIX):
        return Path(run)
    known = {name.casefold(): name for name in zoo_names()}
    name = run.removeprefix(PREFIX)
    if name.casefold() in known:
        return zoo_dir() / known[name.casefold()]
    near = nearest(name.casefold(), known)
    for lower, proper in known.items():
        near = near.replace(repr(lower), repr(PREFIX + proper))
    raise ValueError(
        f"{value_text(run)} is not in the zoo, expected {PREFIX} and one of "
        f"{', '.join(known.values()) or '(the zoo is empty)'}.{near}"
    )


def zoo_dir() -> Path:
    """The folder of the zoo: a part of the package."""
    return Path(__file__).parent.parent / "zoo"


def zoo_names() -> list[str]:
    """The runs of the zoo as ALGO/ENV, in order."""
    paths = zoo_dir().glob(f"*/*/{FILES[0]}")
    return sorted(path.parent.relative_to(zoo_dir()).as_posix() for path in paths)


def zoo_result(name: str) -> dict[str, Any]:
    """The `result.json` of a run of the zoo."""
    return json.loads((zoo_dir() / name / "result.json").read_text(encoding="utf-8"))
