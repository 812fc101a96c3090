"""Trials of a study as members of populations, of which the weaker half ends early."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from kytolly.agent.algorithms import make_config
from kytolly.config.files import read_settings
from kytolly.config.run import RunConfig
from kytolly.experiment.members import apart_error, prepare_population, reason_apart
from kytolly.experiment.processes import ChildRun, Report, Start, run_children
from kytolly.experiment.study import import_optuna
from kytolly.experiment.together import problem_line, show_lines
from kytolly.experiment.varied import free_settings, program_key
from kytolly.record.metrics_file import evaluations
from kytolly.record.saved_run import read_result

if TYPE_CHECKING:
    import optuna

    from kytolly.experiment.tuning import TrialRuns

# Shares of a run after which the weaker half of a population ends: a trial of four goes to the end.
HALVINGS = (0.25, 0.5)

Trials = dict[str, RunConfig]  # by name


def train_populations(search: TrialRuns, trials: int, size: int, timeout: float | None) -> None:
    """Train until a study has so many trials, in populations of a size.

    The first trial of a population is drawn from the whole search space. The others have its values
    of the settings that decide what the program is.

    Args:
        search: The trials of this call.
        trials: As of `TrialRuns.run`.
        size: Members of a population.
        timeout: As of `TrialRuns.run`.

    Raises:
        ValueError: No program can hold the trials, or what is wrong for all of them.
    """
    count = begin(search, trials, timeout)
    search.report(f"{count} trials to train, {size} in one program, in {search.folder}")
    while programs := next_programs(search, size):
        for members in programs:
            train_trials(search, members)


def train_elsewhere(
    search: TrialRuns, trials: int, size: int, timeout: float | None, jobs: int, start: Start
) -> None:
    """`train_populations`, each population in a child process.

    Args:
        search: As of `train_populations`, as are the next three.
        trials: See there.
        size: See there.
        timeout: See there.
        jobs: Populations at a time.
        start: Starts a child's process where it shall run.
    """
    count = begin(search, trials, timeout)
    search.report(f"{count} trials to train, {size} in a population, in {search.folder}")
    programs: list[Trials] = []

    def next_child() -> ChildRun | None:
        if not programs:
            programs.extend(next_programs(search, size))
        return child_of(search, programs.pop(0)) if programs else None

    def end(child: ChildRun) -> None:
        if child.process.returncode == 2 and not any(search.folder.glob("trial-*/config.yaml")):
            raise ValueError(child.problem())  # what is wrong for every trial
        for member in child.members:
            end_trial(search, child, member)

    run_children(jobs, next_child, lambda child: show_lines(child, search.report), end, start)


def begin(search: TrialRuns, trials: int, timeout: float | None) -> int:
    """Plan the trials that the study lacks, if programs can hold them; returns how many."""
    reason = reason_apart(search.config, search.environment)
    if reason:
        raise apart_error(reason)
    return search.begin(trials, timeout)


def next_programs(search: TrialRuns, size: int) -> list[Trials]:
    """The next trials, divided into those of one program; none where no more are due."""
    programs: dict[object, Trials] = {}
    for name, cfg in next_trials(search, size).items():
        programs.setdefault(program_key(cfg), {})[name] = cfg
    return list(programs.values())


def child_of(search: TrialRuns, trials: Trials) -> ChildRun:
    """The process that trains trials of one program."""
    members = [search.run_dir(name).name for name in trials]
    numbers = [member.removeprefix("trial-") for member in members]
    words = ["tune", search.config.algorithm, "--part-of", str(search.folder)]
    words += ["--part", ",".join(numbers)]
    return ChildRun(members[0], search.folder / f"population-{numbers[0]}", words, members)


def end_trial(search: TrialRuns, child: ChildRun, member: str) -> None:
    """Tell the study what a trial's evaluations gave and how it ended."""
    name, run_dir = member.replace("-", " "), search.folder / member
    for env_steps, value in evaluations(run_dir):
        search.tell_evaluation(name, env_steps, value)
    result, why = read_result(run_dir), problem_line(child, member)
    # Status 1: others have failed, each of which has a line.
    pruned = result is None and not why and child.process.returncode in (0, 1)
    search.end(name, result, pruned, child.seconds, lambda: why or child.problem())


def next_trials(search: TrialRuns, size: int) -> Trials:
    """The next trials of one program; fewer where no more are due."""
    first = search.next_trial()
    if first is None:
        return {}
    name, cfg = first
    trials = {name: cfg}
    params, free = search.asked[name].params, free_settings(cfg)
    with fixed(search.study, {name: params[name] for name in params if name not in free}):
        while len(trials) < size and (drawn := search.next_trial()):
            trials |= dict([drawn])
    return trials


@contextmanager
def fixed(study: optuna.Study, params: dict[str, object]) -> Iterator[None]:
    """Draw trials with these values during a block."""
    sampler = study.sampler
    optuna = import_optuna()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        study.sampler = optuna.samplers.PartialFixedSampler(params, sampler)
    try:
        yield
    finally:
        study.sampler = sampler


def train_trials(search: TrialRuns, trials: Trials) -> None:
    """Train one population and tell the study how each of its trials ended."""
    began = time.perf_counter()
    names = list(trials)
    folders = [search.run_dir(name) for name in names]

    def tell(env_steps: int, scores: dict[int, float]) -> None:
        for member, score in scores.items():
            search.tell_evaluation(names[member], env_steps, score)

    problems, ended = train_halving(
        list(trials.values()), search.environment, folders, search.report, tell
    )
    for member, name in enumerate(names):
        result = read_result(folders[member])
        problem = problems.get(member, "its return is not finite")
        seconds = time.perf_counter() - began
        search.end(name, result, member in ended, seconds, lambda why=problem: why)


def train_part(folder: Path, numbers: Sequence[int], report: Report) -> int:
    """Train trials of a study as one population, for another process that has the study.

    A population that was stopped goes on. Returns how many trials failed.

    Args:
        folder: The study's.
        numbers: Of the trials, whose settings are in `folder`.
        report: Shows a line of progress.
    """
    folders = [folder / f"trial-{number}" for number in numbers]
    read = [read_settings(path.with_suffix(".yaml")) for path in folders]
    configs = [make_config(settings) for settings, _ in read]
    problems, _ = train_halving(configs, read[0][1]["environment"], folders, report)
    return len(problems)


def train_halving(
    configs: Sequence[RunConfig],
    environment: str,
    folders: Sequence[Path],
    report: Report,
    tell: Callable[[int, dict[int, float]], None] = lambda env_steps, scores: None,
) -> tuple[dict[int, str], set[int]]:
    """Train a population whose weaker half ends early; goes on where it was stopped.

    Args:
        configs: One for each member.
        environment: Where all train.
        folders: Of the members' runs.
        report: Shows a line of progress.
        tell: Gets env steps and the members' returns after an evaluation.

    Returns:
        Why members failed, and the members that ended early.
    """
    halving = Halving(configs[0].total_env_steps)
    is_resumed = any((folder / "config.yaml").is_file() for folder in folders)
    if is_resumed:
        halving.replay([evaluations(folder) for folder in folders])
    wanted = [member for member in range(len(configs)) if member not in halving.ended]
    training = prepare_population(
        configs, environment, folders, report, resume=is_resumed, wanted=wanted
    )

    def weak_members(env_steps: int, scores: dict[int, float]) -> list[int]:
        tell(env_steps, scores)
        return halving.weak_members(env_steps, scores)

    training.weak_members = weak_members
    training.train()
    return training.problems, halving.ended


class Halving:
    """Ends the weaker half of the members that train, at `HALVINGS`.

    Attributes:
        ended: The members that were ended.

    Source: Jamieson & Talwalkar 2016, "Non-stochastic Best Arm Identification and Hyperparameter
    Optimization", arXiv:1502.07943, section 3, successive halving.
    """

    def __init__(self, total_env_steps: int):
        self._due = [share * total_env_steps for share in HALVINGS]
        self.ended: set[int] = set()

    def weak_members(self, env_steps: int, scores: dict[int, float]) -> list[int]:
        """The members that end after so many env steps, by their returns."""
        if not self._due or env_steps < self._due[0]:
            return []
        self._due = [due for due in self._due if due > env_steps]
        # A return that is not a number is the lowest. Digits that metrics.csv has not decide
        # nothing: whoever resumes reads them there.
        seen = {member: float(f"{score:.7g}") for member, score in scores.items()}
        order = sorted(seen, key=lambda m: (seen[m] == seen[m], seen[m]))
        weak = order[: len(order) // 2]
        self.ended |= set(weak)
        return weak

    def replay(self, evaluations: Sequence[Sequence[tuple[int, float]]]) -> None:
        """Repeat what was decided in a population that was stopped.

        Args:
            evaluations: Env steps and return of each evaluation of each member.
        """
        returns = [dict(of_member) for of_member in evaluations]
        for env_steps in sorted(set().union(*returns)):
            alive = [member for member in range(len(returns)) if member not in self.ended]
            scores = {m: returns[m][env_steps] for m in alive if env_steps in returns[m]}
            if len(scores) == len(alive):  # else not all had come so far
                self.weak_members(env_steps, scores)
