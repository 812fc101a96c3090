"""A run on disk: its folder, its configuration and its result."""

from __future__ import annotations

import dataclasses
import datetime
import importlib.metadata
import json
import os
import platform
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kytolly.config.files import read_settings, write_yaml
from kytolly.config.words import path_text
from kytolly.record.version import __version__

PACKAGES = ("tensorflow", "keras", "numpy", "gymnasium")
CHECKPOINTS_SINCE = (0, 2)  # earlier versions wrote checkpoints that nothing reads any more


@dataclasses.dataclass(frozen=True)
class RunFolder:
    """The folder `runs/NAME/`: config.yaml, result.json, and what the callbacks write.

    Attributes:
        path: The folder.
    """

    path: Path

    @classmethod
    def create(cls, path: str | Path | None, name: str) -> RunFolder:
        """Make a folder; by default `runs/NAME_TIME`. One that is not empty is refused."""
        if path is None:
            moment = datetime.datetime.now().strftime("%Y%m%d-%H%M%S")
            path = Path("runs") / f"{name.replace('/', '-')}_{moment}"
            path = next(p for p in numbered_paths(path) if not p.exists())
        path = Path(path)
        try:
            in_use = path.exists() and (not path.is_dir() or any(path.iterdir()))
            if not in_use:
                path.mkdir(parents=True, exist_ok=True)
                probe = path / ".writable"
                probe.touch()
                probe.unlink()
        except (OSError, ValueError) as error:  # ValueError: a null byte
            raise ValueError(
                f"{path_text(path)} cannot be written "
                f"({getattr(error, 'strerror', None) or error}), expected a folder for the run. "
                "Choose another --log-dir."
            ) from None
        if in_use:
            raise ValueError(
                f"{path} exists and is not empty, expected a new folder: two runs never write "
                "into one. Choose another --log-dir, or continue that run with --resume."
            )
        return cls(path)

    @classmethod
    def existing(cls, path: str | Path) -> RunFolder:
        """The folder of a run that was trained before."""
        path = Path(path)
        if not os.path.isfile(path / "config.yaml"):  # False for whatever is no path
            found = "no config.yaml in it" if os.path.isdir(path) else "it does not exist"
            raise ValueError(
                f"{path_text(path)} is no run ({found}), expected the folder that training "
                "printed as run_dir. Give that one."
            )
        return cls(path)

    @classmethod
    def resumable(cls, path: str | Path | None) -> RunFolder:
        """The folder of a run that training can continue; one of an early version is refused."""
        if path is None:
            raise ValueError("resume=True needs the run's folder: Trainer(log_dir='runs/NAME').")
        folder = cls.existing(path)
        found = read_settings(folder.path / "config.yaml")[1].get("versions")
        found = str(found.get("kytolly") if isinstance(found, dict) else None)
        numbers = re.match(r"(\d+)\.(\d+)", found)
        if numbers is None or tuple(map(int, numbers.groups())) < CHECKPOINTS_SINCE:
            raise ValueError(
                f"{path} was written by kytolly {found}, expected 0.2 or newer: older checkpoints "
                f"cannot be read any more. `kytolly evaluate {path}` still plays it; to train "
                "further, start a new run."
            )
        return folder

    def write_config(self, cfg: Any, environment: str, loop: str) -> None:
        """Write every setting and the versions of what trains with it."""
        write_yaml(
            self.path / "config.yaml",
            cfg,
            {"environment": environment, "loop": loop, "versions": versions()},
        )

    def read_settings(self) -> tuple[dict[str, Any], str]:
        """The run's settings, its algorithm's name among them, and the name of its environment."""
        path = self.path / "config.yaml"
        settings, beside = read_settings(path)
        if "algorithm" not in settings:
            lacking = "settings with an algorithm"
        elif "environment" not in beside:
            lacking = "environment"
        else:
            return settings, str(beside["environment"])
        raise ValueError(
            f"{path} lacks {lacking}, expected the file that training wrote. Restore it or train "
            "again."
        )

    def write_result(self, summary: dict[str, Any]) -> None:
        """Write `result.json`, whole or not at all."""
        temporary = self.path / "result.json.part"
        temporary.write_text(json.dumps(summary, indent=2) + "\n", encoding="utf-8")
        os.replace(temporary, self.path / "result.json")


def numbered_paths(path: Path) -> Iterator[Path]:
    """`path`, then `path-2`, `path-3` and so on."""
    yield path
    count = 2
    while True:
        yield path.with_name(f"{path.name}-{count}")
        count += 1


def versions() -> dict[str, str]:
    """Versions of Python and of the packages that decide what a run computes."""
    found = {"python": platform.python_version(), "kytolly": __version__}
    for package in PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            found[package] = "not installed"
    return found
