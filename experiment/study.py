"""A study of Optuna in an SQLite file: its task, its trials, and the best of them."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import math
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypedDict

import msgspec
import numpy as np
import yaml
from filelock import FileLock, Timeout

from kytolly.config.run import RunConfig
from kytolly.config.search_space import Between, Choice
from kytolly.config.tuned import tuned_settings
from kytolly.experiment.seed_statistics import return_text
from kytolly.loop.recovery import disk_problem
from kytolly.record.files import open_regular
from kytolly.record.run_folder import plain_settings

if TYPE_CHECKING:
    import optuna

INSTALL = 'pip install "kytolly[tune]"'
NAME = "kytolly"  # of the study in its file
STARTUP_TRIALS = 5  # that no trial is compared with before
WARMUP_EVALUATIONS = 5  # of a trial, before it may be pruned
SQLITE_HEAD = b"SQLite format 3\0"
FAILED = "failed"  # attribute of a trial: why it has no return


class StudyTask(TypedDict):
    """The task of a study, as its file holds it."""

    algorithm: str
    environment: str
    space: Mapping[str, Any]
    settings: dict[str, Any]


def import_optuna() -> ModuleType:
    """Optuna, quiet; ModuleNotFoundError names the command that installs it."""
    try:
        import optuna
    except ModuleNotFoundError:
        raise ModuleNotFoundError(
            f"tuning needs Optuna, which is not installed. Install it: {INSTALL}."
        ) from None
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return optuna


@contextlib.contextmanager
def hold_study(file: Path) -> Iterator[None]:
    """Hold the study's file until the end of the block.

    Raises:
        ValueError: Another process tunes with it, or it is no SQLite file.
    """
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        if file.exists() and head_of(file) not in (b"", SQLITE_HEAD):
            raise ValueError(
                f"{file} is no SQLite file, expected a study that `kytolly tune` made, or a new "
                "name. Choose another --study."
            )
        lock_file = file.with_name(f"{file.name}.lock")
        open(lock_file, "ab", opener=open_regular).close()  # or the lock says that it is held
        lock = FileLock(lock_file)
        lock.acquire(timeout=0)
    except Timeout:
        raise ValueError(
            f"{file} is in use by another process that tunes with it, expected a study of its own "
            "for each. Wait until that one has ended, or choose another --study."
        ) from None
    except OSError as error:
        raise ValueError(
            f"{file} cannot be used as a study ({error.strerror}). Choose another --study."
        ) from None
    try:
        yield
    finally:
        lock.release()


def head_of(file: Path) -> bytes:
    """The first bytes of a file, as many as `SQLITE_HEAD` has."""
    with file.open("rb") as opened:
        return opened.read(len(SQLITE_HEAD))


def open_study(file: Path, task: StudyTask, seed: int) -> optuna.Study:
    """The study in a file, a new one where there is none; the caller holds the file.

    Args:
        file: SQLite file.
        task: The study's.
        seed: The seed of the sampler's draws; a continued study draws others, see `sampler_seed`.

    Raises:
        ValueError: The file holds a study for something else, or no study of ours.
    """
    optuna = import_optuna()
    try:
        study = optuna.create_study(
            storage=storage(file),
            study_name=NAME,
            direction="maximize",
            load_if_exists=True,
            pruner=optuna.pruners.MedianPruner(STARTUP_TRIALS, WARMUP_EVALUATIONS),
        )
        saved = study.user_attrs.get("task")
        if saved is None:
            study.set_user_attr("task", task)
        check_study(saved, study.get_trials(deepcopy=False))
    except Exception as error:  # of SQLAlchemy, of Optuna, and of what reads values in the file
        if isinstance(error, MemoryError) or disk_problem(error):
            raise
        reason = " ".join(str(error).split()) or type(error).__name__
        raise ValueError(
            f"{file} is no study that Optuna can read ({reason:.200}). Choose another --study."
        ) from None
    refuse_other_task(file, saved or task, task)
    for trial in study.get_trials(states=(optuna.trial.TrialState.RUNNING,)):
        study.tell(trial.number, state=optuna.trial.TrialState.FAIL)  # its process is gone
    study.sampler = optuna.samplers.TPESampler(seed=sampler_seed(seed, len(study.get_trials())))
    return study


def check_study(saved: object, trials: Sequence[optuna.trial.FrozenTrial]) -> None:
    """ValueError where a file, perhaps a stranger's, holds what no command of ours wrote."""
    if saved is not None:
        msgspec.convert(saved, StudyTask)
    for trial in trials:
        values = trial.values or []
        if trial.state.name == "COMPLETE" and not (len(values) == 1 and math.isfinite(values[0])):
            raise ValueError(f"trial {trial.number} is complete and has no return")
        msgspec.convert(trial.params, dict[str, bool | int | float | str | list | None])
        if set(trial.user_attrs) - {FAILED}:
            raise ValueError(f"trial {trial.number} has attributes that are not ours")


def storage(file: Path) -> optuna.storages.RDBStorage:
    """Optuna's storage in an SQLite file of any name.

    Optuna takes a URL, in which `%`, `?` and braces are no characters of a name. So SQLite opens
    the file by itself, and the URL says only that it is SQLite's.
    """
    optuna = import_optuna()
    path = file.absolute()
    open_file = functools.partial(sqlite3.connect, path, check_same_thread=False)
    return optuna.storages.RDBStorage("sqlite:///study", engine_kwargs={"creator": open_file})


def sampler_seed(seed: int, num_trials: int) -> int:
    """Seed of the sampler's draws in a study that has so many trials.

    The sampler begins to draw anew with every command: with the same seed, a continued study
    would draw the settings of its first trials again.
    """
    if num_trials == 0:
        return seed
    return int(np.random.SeedSequence((seed, num_trials)).generate_state(1)[0])


def refuse_other_task(file: Path, saved: StudyTask, task: StudyTask) -> None:
    """Refuse a study whose returns cannot be compared with those to come."""
    before, now = (json.loads(json.dumps(either)) for either in (saved, task))
    for name in ("algorithm", "environment", "space", "settings"):
        old, new = before[name], now[name]
        if old == new:
            continue
        if isinstance(new, dict):
            keys = [key for key in {**old, **new} if old.get(key) != new.get(key)]
            what = {"space": "searched", "settings": "set"}[name]
            old, new = (
                ", ".join(f"{key} {values.get(key, f'not {what}')}" for key in keys)
                for values in (old, new)
            )
        other = "other" if name == "settings" else "another"
        raise ValueError(
            f"the study {file} was made with {other} {name} ({old}), and this command has {new}: "
            "their returns cannot be compared. Repeat the study's own command, or choose another "
            "--study."
        )


def distributions(
    space: Mapping[str, Between | Choice],
) -> dict[str, optuna.distributions.BaseDistribution]:
    """The search space in Optuna's classes."""
    optuna = import_optuna()
    return {
        name: optuna.distributions.CategoricalDistribution(searched.values)
        if isinstance(searched, Choice)
        else optuna.distributions.FloatDistribution(searched.low, searched.high, log=searched.log)
        for name, searched in space.items()
    }


def counted_trials(study: optuna.Study) -> list[optuna.trial.FrozenTrial]:
    """The trials that have ended by themselves: those that were interrupted do not count."""
    ended = ("COMPLETE", "PRUNED")
    return [t for t in study.get_trials() if t.state.name in ended or FAILED in t.user_attrs]


def best_trial(study: optuna.Study) -> optuna.trial.FrozenTrial | None:
    """The complete trial of the highest return; None where there is none."""
    complete = [trial for trial in study.get_trials() if trial.state.name == "COMPLETE"]
    return max(
        complete, key=lambda trial: -math.inf if trial.value is None else trial.value, default=None
    )


def settings_text(cfg: RunConfig, environment: str, trial: optuna.trial.FrozenTrial) -> str:
    """The settings of a trial as YAML that `kytolly train --config` reads.

    Args:
        cfg: What every trial began with.
        environment: Where it was trained.
        trial: The trial.
    """
    note = f"Trial {trial.number}: return {trial_return(trial)} on one seed."
    return chosen_settings_text(cfg, environment, trial.params, note)


def trial_return(trial: optuna.trial.FrozenTrial) -> str:
    """The return of a trial, for a reader."""
    return "none" if trial.value is None else return_text(trial.value)


def chosen_settings_text(
    cfg: RunConfig, environment: str, chosen: Mapping[str, object], note: str
) -> str:
    """Settings that were found to be good as YAML that `kytolly train --config` reads.

    They are those that were chosen, those that are not the defaults, and those that this project
    has tuned for the environment, which would win over what the file does not name.
    """
    values, default = dataclasses.asdict(cfg), dataclasses.asdict(type(cfg)())
    tuned = tuned_settings(cfg.algorithm, environment)
    told = {
        name: value
        for name, value in values.items()
        if name in tuned or value != default[name] or type(value) is not type(default[name])
    }
    told = {"algorithm": cfg.algorithm, **told, **chosen}
    told.pop("seed", None)
    return (
        f"# kytolly train {cfg.algorithm} --env {environment} --config THIS_FILE\n# {note}\n"
    ) + yaml.safe_dump(plain_settings(told), sort_keys=False)
