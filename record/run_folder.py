"""A run on disk: its folder, its configuration and its result."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import importlib.metadata
import itertools
import json
import os
import platform
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from filelock import FileLock, Timeout

from kytolly.config.fields import DefaultCount, DefaultShare
from kytolly.record.files import PARTIAL, refuse_links, write_text
from kytolly.record.version import __version__

if TYPE_CHECKING:
    from kytolly.config.run import RunConfig
    from kytolly.config.supervised import SupervisedConfig

LOCK = ".lock"  # the system knows which process holds it; a file left behind means nothing
PACKAGES = ("tensorflow", "keras", "numpy", "gymnasium")
MAX_PATH_BYTES = 4_096  # on Linux
MAX_INSIDE_BYTES = 256  # bytes of a file's path within a run: TensorFlow's names are long


@dataclasses.dataclass(frozen=True)
class RunFolder:
    """The folder `runs/NAME/`: config.yaml, result.json, and what the callbacks write.

    Attributes:
        path: The folder.
    """

    path: Path
    lock: FileLock | None = dataclasses.field(default=None, repr=False, compare=False)

    @classmethod
    def create(cls, path: str | Path | None, name: str) -> RunFolder:
        """Make a folder; by default `runs/NAME_TIME`. One that is not empty is refused."""
        if path is None:
            moment = datetime.datetime.now().strftime("%Y%m%d-%H%M%S")
            name = f"{path_part(name)}_{moment}"
            names = itertools.chain([name], (f"{name}-{count}" for count in itertools.count(2)))
            path = next(path for path in map(Path("runs").joinpath, names) if not path.exists())
        path = Path(path)
        check_path(path)
        try:
            check_empty(path)
            path.mkdir(parents=True, exist_ok=True)
            folder = cls(path).lock_folder()
        except OSError as error:
            raise unwritable(path, error.strerror) from None
        try:
            check_empty(path)  # once more: another run may have begun and ended here
        except ValueError:
            folder.release()
            raise
        return folder

    def lock_folder(self) -> RunFolder:
        """The folder, held by this process until `release` or its death; refused where it is held.

        Raises:
            ValueError: Another run holds the folder, it cannot be written, or it has a link.
        """
        try:
            for folder in (self.path, self.path / "checkpoints"):
                refuse_links(folder)
        except OSError as error:
            raise unwritable(self.path, error.strerror) from None
        lock = FileLock(self.path / LOCK)
        try:
            lock.acquire(timeout=0)
        except Timeout:
            raise ValueError(
                f"{self.path} is in use by another process that trains in it, expected a folder "
                "of its own for each run. Wait until that one has ended, or choose another folder."
            ) from None
        except OSError as error:
            raise unwritable(self.path, error.strerror) from None
        return dataclasses.replace(self, lock=lock)

    def release(self) -> None:
        """Let other processes use the folder."""
        if self.lock is not None:
            self.lock.release()

    def remove_if_empty(self) -> None:
        """Remove a folder in which nothing was written."""
        if all(path.name == LOCK for path in self.path.iterdir()):
            shutil.rmtree(self.path)

    def __enter__(self) -> RunFolder:
        return self

    def __exit__(self, *error: object) -> None:
        self.release()

    def write_config(
        self,
        cfg: RunConfig | SupervisedConfig,
        environment: str,
        loop: str,
        spec: Mapping[str, object] | None = None,
        init: Path | None = None,
        parts: Mapping[str, str] | None = None,
    ) -> None:
        """Write every setting, the versions of what trains with it, and what the agent sees.

        Args:
            cfg: The config.
            environment: The name of the environment.
            loop: The loop that runs.
            spec: As `environment.spec.spec_to_dict` makes it; None without agent.
            init: Folder of the run whose weights this one began with, if any.
            parts: Class names of the user's own optimizer and policy.
        """
        beside: dict[str, object] = {"environment": environment, "loop": loop}
        beside |= {"parts": dict(parts)} if parts else {}
        beside |= {"versions": versions()}
        beside |= {} if init is None else {"init": str(init)}
        path = self.path / "config.yaml"
        text = yaml_text(cfg, beside)
        if spec is not None:  # its innermost lists take one line each
            text = yaml.safe_dump({"spec": spec}, sort_keys=False, default_flow_style=None) + text
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            write_text(path, text)

    def write_result(self, summary: Mapping[str, object]) -> None:
        """Write `result.json`, whole or not at all; one that differs only in times stays."""
        path = self.path / "result.json"
        times = ("wall_seconds", "compile_seconds", "memory")
        if path.is_file():
            with contextlib.suppress(ValueError):
                from kytolly.config.files import read_json

                old = read_json(path, dict[str, Any], "it is written anew")
                if old == {**summary, **{name: old.get(name) for name in times}}:
                    return
        write_text(path, json.dumps(summary, indent=2) + "\n")


def path_part(name: str) -> str:
    """A name as part of a file's name: what a shell, or Windows, takes for something else is `-`.

    An environment is called `module:Env-v0` or `ALE/Pong-v5`.
    """
    return re.sub(r"[^\w.+-]+", "-", name)


def check_empty(path: Path) -> None:
    """Refuse a folder for a new run that holds anything but what a killed start may leave."""
    left = path.is_dir() and all(
        p.name == LOCK or p.name.startswith(PARTIAL) for p in path.iterdir()
    )
    if path.exists() and not left:
        raise ValueError(
            f"{path} exists and is not empty, expected a new folder: two runs never write "
            "into one. Choose another --log-dir, or continue that run with --resume."
        )


def check_path(path: Path) -> None:
    """Refuse a path that is no name of a folder, or where the files of a run would have none."""
    text = str(path)
    if "\0" in text:
        raise unwritable(path, "a null byte in its name")
    if any("\ud800" <= letter <= "\udfff" for letter in text):  # TensorFlow takes no other
        raise unwritable(path, "a name that is not UTF-8")
    if len(os.fsencode(path.absolute())) > MAX_PATH_BYTES - MAX_INSIDE_BYTES:
        raise unwritable(path, "a name too long for the files in it")


def unwritable(path: Path, reason: str | None) -> ValueError:
    """The error for a folder that cannot be written."""
    from kytolly.config.words import path_text

    return ValueError(
        f"{path_text(path)} cannot be written ({reason}), expected a folder for the run. Choose "
        "another --log-dir, or make it writable."
    )


def versions() -> dict[str, str]:
    """Versions of Python and of the packages that decide what a run computes."""
    packages = {"python": platform.python_version(), "kytolly": __version__}
    for package in PACKAGES:
        try:
            packages[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            packages[package] = "not installed"
    return packages


def yaml_text(config: RunConfig | SupervisedConfig, beside: Mapping[str, object]) -> str:
    """Every field of a configuration, and what else identifies the run, as YAML."""
    values = plain_settings(dataclasses.asdict(config))
    return yaml.safe_dump({**beside, "settings": values}, sort_keys=False)


def plain_settings(values: Mapping[str, object]) -> dict[str, object]:
    """The same settings in types that YAML knows."""
    return {name: plain_setting(value) for name, value in values.items()}


def plain_setting(value: object) -> object:
    """A setting in a type that YAML knows."""
    if isinstance(value, DefaultCount):
        return int(value)
    if isinstance(value, DefaultShare):
        return float(value)
    return list(value) if isinstance(value, tuple) else value
