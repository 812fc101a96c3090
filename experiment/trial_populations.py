"""Trials of a study as members of populations, of which the weaker half ends early."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from kytolly.config.run import RunConfig
from kytolly.experiment.members import apart_error, prepare_population, reason_apart
from kytolly.experiment.study import import_optuna
from kytolly.experiment.varied import free_settings, program_key
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
    reason = reason_apart(search.config, search.environment)
    if reason:
        raise apart_error(reason)
    count = search.begin(trials, timeout)
    search.report(f"{count} trials to train, {size} in one program, in {search.folder}")
    while drawn := next_trials(search, size):
        programs: dict[object, Trials] = {}
        for name, cfg in drawn.items():
            programs.setdefault(program_key(cfg), {})[name] = cfg
        for members in programs.values():
            train_trials(search, members)


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
    names, configs = list(trials), list(trials.values())
    folders = [search.run_dir(name) for name in names]
    training = prepare_population(configs, search.environment, folders, search.report)
    halving = Halving(search.config.total_env_steps)

    def weak_members(env_steps: int, scores: dict[int, float]) -> list[int]:
        for member, score in scores.items():
            search.tell_evaluation(names[member], env_steps, score)
        return halving.weak_members(env_steps, scores)

    training.weak_members = weak_members
    training.train()
    for member, name in enumerate(names):
        result = read_result(folders[member])
        problem = training.problems.get(member, "its return is not finite")
        pruned = member in halving.ended
        search.end(name, result, pruned, time.perf_counter() - began, lambda why=problem: why)


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
        # A return that is not a number is the lowest.
        order = sorted(scores, key=lambda m: (scores[m] == scores[m], scores[m]))
        weak = order[: len(order) // 2]
        self.ended |= set(weak)
        return weak
