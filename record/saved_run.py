"""A run that was trained before: its configuration, its result, and whether training may go on."""

from __future__ import annotations

import dataclasses
import os
import re
import shlex
from pathlib import Path
from typing import Any, NamedTuple, TypedDict

from kytolly.record.run_folder import check_path

CHECKPOINTS_SINCE = (0, 2)


class EvaluationResult(TypedDict):
    """The evaluation in a result.json, as far as it is read."""

    return_mean: float


class RunResult(TypedDict):
    """The result.json of an agent's run, as far as it is read; it holds more."""

    evaluation: EvaluationResult
    env_steps: int
    updates: int
    wall_seconds: float
    stopped_by: str


class SavedConfig(NamedTuple):
    """The contents of a run's `config.yaml`.

    Attributes:
        settings: The run's settings, its algorithm's name among them.
        environment: The name of its environment.
        loop: The loop that ran.
        version: Of the kytolly that wrote it.
        spec: What the agent sees and does, as plain data; None in a run that no agent trained, or
            that was written before runs recorded it.
        init: The folder of the run whose weights it began with, if any.
        parts: Class names of the user's own optimizer and policy, or None.
    """

    settings: dict[str, Any]
    environment: str
    loop: str | None
    version: str
    spec: dict[str, Any] | None = None
    init: str | None = None
    parts: dict[str, str | None] | None = None


@dataclasses.dataclass(frozen=True)
class SavedRun:
    """The folder of a run as somebody left it: every file in it may be damaged, or a stranger's.

    Attributes:
        path: The folder.
    """

    path: Path

    @classmethod
    def existing(cls, path: str | os.PathLike[str]) -> SavedRun:
        """The folder of a run that was trained before."""
        path = Path(os.path.expanduser(path))
        if not os.path.isfile(path / "config.yaml"):  # False for whatever is no path
            from kytolly.record.missing_run import missing_run

            raise missing_run(path)
        return cls(path)

    @classmethod
    def resumable(cls, path: str | Path | None) -> SavedRun:
        """The folder of a run that training can continue; one of an early version is refused."""
        if path is None:
            raise ValueError("resume=True needs the run's folder: Trainer(log_dir='runs/NAME').")
        folder = cls.existing(path)
        check_path(folder.path)
        folder.check_version(folder.read_config())
        folder.check_checkpoints()
        return folder

    def check_checkpoints(self) -> None:
        """Refuse a run that has ended and has no checkpoints, such as those of the zoo.

        Before the folder is locked: nothing is written into it.
        """
        folder = self.path / "checkpoints"
        if not self.is_before_first_checkpoint() and not any(folder.glob("ckpt-*.json")):
            raise ValueError(
                f"{folder} holds no checkpoint, expected files such as ckpt-1000.json: resume the "
                "folder of a run that has trained, or start a new run."
            )

    def check_version(self, saved: SavedConfig) -> None:
        """Refuse a run of an early version, whose checkpoints nothing reads any more."""
        numbers = re.match(r"(\d+)\.(\d+)", saved.version)
        if numbers is None or tuple(map(int, numbers.groups())) < CHECKPOINTS_SINCE:
            raise ValueError(
                f"{self.path} was written by kytolly {saved.version}, expected 0.2 or newer: older "
                f"checkpoints cannot be read any more. `kytolly evaluate {self.path}` still plays "
                "it; to train further, start a new run."
            )

    def is_before_first_checkpoint(self) -> bool:
        """True where the run was stopped before it could save anything: it can begin anew."""
        folder = self.path / "checkpoints"
        listing, result = folder / "checkpoint", self.path / "result.json"
        return not (any(folder.glob("ckpt-*.json")) or listing.exists() or result.exists())

    def read_config(self) -> SavedConfig:
        """The contents of `config.yaml`; ValueError where algorithm or environment is missing."""
        path = self.path / "config.yaml"
        from kytolly.config.files import read_settings

        settings, beside = read_settings(path)
        if "algorithm" not in settings:
            lacking = "settings with an algorithm"
        elif "environment" not in beside:
            lacking = "environment"
        else:
            return SavedConfig(
                settings,
                beside["environment"],
                beside.get("loop"),
                beside.get("versions", {}).get("kytolly", "None"),
                beside.get("spec"),
                beside.get("init") or None,
                beside.get("parts"),
            )
        raise ValueError(
            f"{path} lacks {lacking}, expected the file that training wrote. Restore it or train "
            "again."
        )

    def trusted_environment(self, saved: SavedConfig, trust: bool) -> str:
        """The id of the run's environment; one that imports a module of its own must be trusted."""
        name = saved.environment
        if ":" in name and not trust:
            raise self._untrusted("environment", name, "an id without a module", f"--env {name}")
        if is_class_name(name):
            raise ValueError(
                f"the run in {self.path} was trained in {name}, which is no id that Gymnasium "
                "knows, expected one: the environment was made in Python. Give its id as --env "
                "MODULE:ID, where the module registers it, or env= in Python."
            )
        return name

    def trusted_wrappers(self, saved: SavedConfig, trust: bool = False) -> list[str]:
        """The wrappers of the run's environment, which are modules of its own."""
        names = [str(name) for name in saved.settings.get("wrappers") or ()]
        if names and not trust:
            flags = " ".join(f"--wrapper {shlex.quote(name)}" for name in names)
            raise self._untrusted("wrapper", names[0], "none", flags)
        return names

    def _untrusted(self, kind: str, name: str, expected: str, flags: str) -> ValueError:
        return ValueError(
            f"{self.path / 'config.yaml'} names the {kind} {name!r}, which would import the Python "
            f"module {name.partition(':')[0]}, expected {expected}: give {flags}, or --trust, if "
            "you know who wrote this folder."
        )


def trust_text(environment: str, config: Any) -> str:
    """The option that a command needs to import what a run names, its wrappers included."""
    imports = ":" in environment or getattr(config, "wrappers", None)
    return " --trust" if imports else ""


def is_class_name(environment: str) -> bool:
    """True for the name of an environment that was made in Python and is no id."""
    import gymnasium  # which loading an agent does without

    return environment.isidentifier() and environment not in gymnasium.registry


def bare_id(environment: str) -> str:
    """The id of an environment, without the module that registers it."""
    return environment.rpartition(":")[2]


def read_result(run_dir: Path) -> dict[str, Any] | None:
    """The part of result.json that is read; None without it, ValueError where it is damaged."""
    path = run_dir / "result.json"
    if not path.exists():
        return None
    from kytolly.config.files import read_json

    return read_json(path, RunResult, "expected the result of a run: remove it, and resume the run")
