"""The search of an algorithm's settings with Optuna, each trial a run in its process."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import shutil
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

from kytolly.agent.algorithms import make_config
from kytolly.config.fields import MAX_SEED
from kytolly.config.run import RunConfig
from kytolly.config.search_space import Between, Choice
from kytolly.experiment.members import shared_yaml_text
from kytolly.experiment.pbt import evaluation_interval
from kytolly.experiment.plots import Setting, TrialSummary, plot_trials
from kytolly.experiment.processes import ChildRun, Report, Start, run_children
from kytolly.experiment.seed_statistics import return_text
from kytolly.experiment.study import (
    FAILED,
    StudyTask,
    best_trial,
    counted_trials,
    distributions,
    hold_study,
    open_study,
    settings_text,
    trial_return,
)
from kytolly.record.files import refuse_links, write_file, write_text

if TYPE_CHECKING:
    import optuna

STATES = {"COMPLETE": "complete", "PRUNED": "pruned", "FAIL": "failed"}

Space = Mapping[str, Between | Choice]
# Trains the trials of a call: so many in the study, so many at a time, until so many seconds.
RunTrials = Callable[["TrialRuns", int, int, float | None], None]


class BestTrial(TypedDict):
    """The trial of the highest return, as JSON has it."""

    number: int
    return_mean: float | None
    params: dict[str, Setting]
    config: str


class TuningResult(TypedDict):
    """The contents of a study's result.json."""

    algorithm: str
    environment: str
    study: str
    wall_seconds: float
    trials: list[TrialSummary]
    best: BestTrial | None
    plot: str | None


class TuningStopped(KeyboardInterrupt):
    """Ctrl-C has ended the search; `result` holds what is known by then."""

    def __init__(self, result: TuningResult):
        super().__init__()
        self.result = result


def tune(
    file: Path,
    config: RunConfig,
    environment: str,
    space: Space,
    trials: int,
    jobs: int,
    timeout: float | None,
    report: Report,
    run: RunTrials | None = None,
) -> TuningResult:
    """Train until a study has so many trials, and write what they say.

    Args:
        file: SQLite file of the study, continued where it exists. The folder of the same name gets
            the trials, best.yaml, trials.png and result.json.
        config: What every trial begins with.
        environment: Where every trial trains.
        space: What is searched.
        trials: Trials of the study, those of earlier calls included.
        jobs: Trials at a time: processes, or members of a population.
        timeout: Seconds after which no trial begins.
        report: Shows a line of progress.
        run: Trains them; None: `TrialRuns.run`, a process for each.

    Returns:
        What result.json holds.

    Raises:
        ValueError: The study is another one's, or what is wrong for every trial.
        TuningStopped: On Ctrl-C.
    """
    began = time.perf_counter()
    folder = file.with_suffix("")
    is_new = not file.exists()
    if is_new and folder.exists() and any(folder.iterdir()):
        raise ValueError(
            f"{folder} holds files, and there is no study {file} that they belong to, expected a "
            "new folder for the trials. Choose another --study."
        )
    settings = dataclasses.asdict(config)
    settings = {key: value for key, value in settings.items() if key not in ("seed", *space)}
    task: StudyTask = {
        "algorithm": config.algorithm,
        "environment": environment,
        "settings": settings,
        "space": space,
    }
    with hold_study(file):
        study = open_study(file, task, config.seed)
        folder.mkdir(exist_ok=True)
        if folder.is_symlink():
            raise ValueError(
                f"{folder} is a link, expected the study's own folder: trials would be written to "
                "where it leads. Put what it links to in its place."
            )
        refuse_links(folder)
        search = TrialRuns(study, space, config, environment, folder, report)
        try:
            (run or TrialRuns.run)(search, trials, jobs, timeout)
        except KeyboardInterrupt:
            seconds = time.perf_counter() - began
            raise TuningStopped(save_result(study, config, environment, file, seconds)) from None
        except ValueError:
            if is_new and not any(path.is_dir() for path in folder.iterdir()):
                # nothing can train with it
                file.unlink()
                shutil.rmtree(folder)
            raise
        return save_result(study, config, environment, file, time.perf_counter() - began)


class TrialRuns:
    """The trials of one call, which are told to the study as they train.

    Attributes:
        study: Gets the trials.
        config, environment: What every trial begins with.
        folder: Holds `trial-N/` for each trial.
        report: Shows a line of progress.
        asked: The trials of this call by name.
    """

    def __init__(
        self,
        study: optuna.Study,
        space: Space,
        config: RunConfig,
        environment: str,
        folder: Path,
        report: Report,
    ):
        self.study, self.config = study, config
        self.environment, self.folder = environment, folder
        self._distributions = distributions(space)
        self.report = report
        self.asked: dict[str, optuna.Trial] = {}
        self._num_left = 0
        self._until = math.inf

    def run(
        self, trials: int, jobs: int, timeout: float | None, start: Start = ChildRun.start
    ) -> None:
        """Train until the study has so many trials, or no time is left to begin one.

        Raises:
            ValueError: The folder holds a run that the next trials would be taken for.
        """
        count = self.begin(trials, timeout)
        jobs = max(1, min(jobs, count))
        self.report(f"{count} trials to train, {jobs} at a time, in {self.folder}")
        run_children(jobs, self._next_child, self._tell_evaluations, self._end_child, start)

    def begin(self, trials: int, timeout: float | None) -> int:
        """Plan the trials that the study lacks, and say how many; the arguments are those of `run`.

        Raises:
            ValueError: The folder holds a run that the next trials would be taken for.
        """
        self._refuse_other_runs(len(self.study.get_trials()))
        self._num_left = trials - len(counted_trials(self.study))
        self._until = math.inf if timeout is None else time.monotonic() + timeout
        return max(0, self._num_left)

    def _refuse_other_runs(self, num_trials: int) -> None:
        """Refuse a folder with trials that the study does not have: they are another study's."""
        for run_dir in sorted(self.folder.glob("trial-*")):
            number = run_dir.name.removeprefix("trial-")
            if number.isascii() and number.isdigit() and int(number) >= num_trials:
                raise other_run(run_dir)

    def next_trial(self) -> tuple[str, RunConfig] | None:
        """Name and config of the next trial whose settings fit together; None where none is due."""
        while self._num_left > 0 and time.monotonic() < self._until:
            self._num_left -= 1
            trial = self.study.ask(self._distributions)
            name = f"trial {trial.number}"
            self.asked[name] = trial
            seed = (self.config.seed + trial.number) % (MAX_SEED + 1)
            values = {**dataclasses.asdict(self.config), **trial.params, "seed": seed}
            try:
                cfg = make_config(values)
            except ValueError as error:
                self.fail(name, str(error))
                continue
            run_dir = self.run_dir(name)
            if os.path.lexists(run_dir):  # made by somebody else since this call began
                raise other_run(run_dir)
            write_text(
                self._settings_file(name), shared_yaml_text(cfg, {"environment": self.environment})
            )
            return name, cfg
        return None

    def run_dir(self, name: str) -> Path:
        """The folder of a trial's run."""
        return self.folder / name.replace(" ", "-")

    def _settings_file(self, name: str) -> Path:
        return self.folder / f"{self.run_dir(name).name}.yaml"

    def _next_child(self) -> ChildRun | None:
        """The run of the next trial."""
        found = self.next_trial()
        if found is None:
            return None
        name, cfg = found
        words = ["train", cfg.algorithm, "--env", self.environment, "--json"]
        words += ["--config", str(self._settings_file(name)), "--log-dir", str(self.run_dir(name))]
        words += ["--trust"] if cfg.wrappers else []  # this process was trusted with them
        return ChildRun(name, self.run_dir(name), words)

    def _tell_evaluations(self, child: ChildRun) -> None:
        """Tell the study new evaluations, and stop a run that lags behind the others."""
        trial = self.asked[child.name]
        for env_steps, value in child.new_evaluations():
            self.tell_evaluation(child.name, env_steps, value)
        if not child.stopped and trial.should_prune():
            child.stop()

    def tell_evaluation(self, name: str, env_steps: int, value: float) -> None:
        """Tell the study what a trial's evaluation gave after so many env steps."""
        if math.isfinite(value):
            self.asked[name].report(value, env_steps // evaluation_interval(self.config))

    def _end_child(self, child: ChildRun) -> None:
        """Tell the study how a trial ended; what is wrong at once is wrong for all."""
        result = None if child.process.returncode else child.result()
        self.end(child.name, result, child.stopped, child.seconds, child.problem)
        if child.process.returncode and not child.stopped and child.never_began():
            raise ValueError(child.problem())

    def end(
        self,
        name: str,
        result: dict[str, Any] | None,
        pruned: bool,
        seconds: float,
        problem: Callable[[], str],
    ) -> None:
        """Tell the study how a trial ended.

        Args:
            name: Of the trial.
            result: What its run's result.json holds, if it has one.
            pruned: It was stopped because it lagged behind.
            seconds: That it took.
            problem: Says why it has no return, where it is not pruned.
        """
        shutil.rmtree(self.run_dir(name) / "checkpoints", ignore_errors=True)  # none is continued
        if result is not None and math.isfinite(result["evaluation"]["return_mean"]):
            value = result["evaluation"]["return_mean"]
            self.study.tell(self.asked[name], value)
            self._report_trial(name, f"return {return_text(value)} after {seconds:.1f} s")
        elif pruned:
            from optuna.trial import TrialState

            ended = self.study.tell(self.asked[name], state=TrialState.PRUNED)
            self._report_trial(name, f"pruned at return {trial_return(ended)}, {seconds:.1f} s")
        else:
            self.fail(name, problem())

    def fail(self, name: str, reason: str) -> None:
        """Tell the study that a trial has no return."""
        from optuna.trial import TrialState

        self.asked[name].set_user_attr(FAILED, reason)
        self.study.tell(self.asked[name], state=TrialState.FAIL)
        self._report_trial(name, f"failed: {reason}")

    def _report_trial(self, name: str, outcome: str) -> None:
        """Report how a trial ended, the best one so far, and its settings."""
        best = best_trial(self.study)
        so_far = "" if best is None else f" (best {trial_return(best)}, trial {best.number})"
        self.report(f"{name}: {outcome}{so_far}; {params_text(self.asked[name].params)}")


def other_run(run_dir: Path) -> ValueError:
    """The error where a run stands in the place of a trial that has not begun."""
    return ValueError(
        f"{run_dir} exists, and the study has no such trial yet, expected a new folder for each: "
        "its result would be taken for the trial's. Move it away, or choose another --study."
    )


def save_result(
    study: optuna.Study, config: RunConfig, environment: str, file: Path, seconds: float
) -> TuningResult:
    """Write best.yaml, trials.png and result.json; returns what the last holds."""
    folder = file.with_suffix("")
    best = best_trial(study)
    trials = [trial_summary(trial, folder) for trial in counted_trials(study)]
    result: TuningResult = {
        "algorithm": config.algorithm,
        "environment": environment,
        "study": str(file),
        "wall_seconds": seconds,
        "trials": trials,
        "best": None,
        "plot": None,
    }
    if trials:
        figure = plot_trials(trials)
        picture = folder / "trials.png"
        write_file(picture, lambda to: figure.savefig(to, dpi=120, format="png"))
        result["plot"] = str(picture)
    if best is not None:
        best_yaml = write_text(folder / "best.yaml", settings_text(config, environment, best))
        result["best"] = {
            "number": best.number,
            "return_mean": best.value,
            "params": best.params,
            "config": str(best_yaml),
        }
    write_text(folder / "result.json", json.dumps(result, indent=2) + "\n")
    return result


def trial_summary(trial: optuna.trial.FrozenTrial, folder: Path) -> TrialSummary:
    """A trial as the result has it."""
    summary: TrialSummary = {
        "number": trial.number,
        "state": STATES[trial.state.name],
        "value": trial.value,
        "params": trial.params,
        "run_dir": str(folder / f"trial-{trial.number}"),
    }
    if FAILED in trial.user_attrs:
        summary["failed"] = trial.user_attrs[FAILED]
    return summary


def params_text(params: Mapping[str, Setting]) -> str:
    """The settings of a trial in one line."""
    return ", ".join(
        f"{name} {value:.3g}" if isinstance(value, float) else f"{name} {value}"
        for name, value in params.items()
    )
