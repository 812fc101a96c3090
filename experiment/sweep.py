"""A sweep: every combination of given values of settings, each a group of seeds."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, TypedDict

import msgspec
from msgspec import Meta

from kytolly.agent.algorithms import make_config
from kytolly.config.fields import MAX_SEED
from kytolly.config.files import read_settings
from kytolly.config.run import RunConfig
from kytolly.config.words import path_text
from kytolly.experiment.comparison import GROUP_FILE
from kytolly.experiment.members import SWEEP_FILE, reason_apart, shared_yaml_text
from kytolly.experiment.processes import ChildRun, Report, Start, default_jobs, run_children
from kytolly.experiment.seed_statistics import Improvement, SeedSummary, improvement
from kytolly.experiment.seeds import SeedGroup, SeedRun, shared_settings
from kytolly.experiment.study import chosen_settings_text
from kytolly.experiment.together import (
    MIN_SEEDS_OF_A_PROCESS,
    problem_of,
    show_lines,
    train_members,
)
from kytolly.experiment.varied import program_key
from kytolly.machine.hardware import nvidia_gpu_plausible
from kytolly.record.files import refuse_links, write_file, write_text
from kytolly.record.run_folder import RunFolder, path_part, versions

MAX_NAME_BYTES = 200  # of a folder: file systems take 255
MAX_SETTINGS = 1_000  # combinations in one sweep

Values = Mapping[str, Sequence[Any]]  # of each varied setting
Chosen = dict[str, Any]  # a value of each varied setting
Part = list[tuple[SeedGroup, int]]  # the members of one population


Seeds = Annotated[list[Annotated[int, Meta(ge=0, le=MAX_SEED)]], Meta(min_length=1)]
ValueList = Annotated[list[Any], Meta(min_length=1, max_length=MAX_SETTINGS)]


class Plan(TypedDict):
    """What a sweep's file says besides the settings that all runs share."""

    values: Annotated[dict[str, ValueList], Meta(min_length=1)]
    seeds: Seeds
    together: bool
    jobs: Annotated[int, Meta(ge=1)]  # processes at a time


class SettingsResult(TypedDict):
    """The runs of one combination, as JSON has them."""

    settings: Chosen
    run_dir: str
    runs: list[SeedRun]
    best: SeedSummary | None
    last: SeedSummary | None


class SweepResult(TypedDict):
    """The contents of a sweep's result.json; the combinations are sorted, the best one first."""

    algorithm: str
    environment: str
    wall_seconds: float
    run_dir: str
    settings: list[SettingsResult]
    improvement: Improvement | None  # of the first combination on the second
    best_config: str | None
    plot: str | None


class Sweep:
    """The runs of a sweep in one folder, which this process holds.

    Attributes:
        folder: Holds `SETTINGS/seed-N/` for each run.
        plan: What is varied, and how it is trained.
        groups: The seeds of each combination.
    """

    def __init__(
        self,
        folder: RunFolder,
        config: RunConfig,
        environment: str,
        plan: Plan,
        configs: Sequence[RunConfig],
        init: str | None,
        report: Report,
    ):
        self.folder, self._held = folder.path, folder
        self.config, self.environment, self.plan, self.init = config, environment, plan, init
        self.chosen = combinations(plan["values"])
        self._report = report
        seeds = plan["seeds"]
        self.groups = [
            SeedGroup(
                RunFolder(self.folder / name),
                cfg,
                environment,
                seeds,
                init,
                lambda line, name=name: report(f"{name}: {line}"),
                [seeds] if plan["together"] else None,
            )
            for name, cfg in zip(folder_names(self.chosen), configs, strict=True)
        ]
        self.parts = population_parts(self.groups, plan["jobs"]) if plan["together"] else []

    @classmethod
    def create(
        cls,
        log_dir: str | None,
        config: RunConfig,
        environment: str,
        plan: Plan,
        init: str | None,
        report: Report,
    ) -> Sweep:
        """A sweep in a new folder, which gets the settings of all runs.

        Args:
            log_dir: The folder; None: a new one in `runs/`.
            config: What all runs share.
            environment: Gymnasium id.
            plan: What is varied, and how it is trained.
            init: The run whose weights all begin with.
            report: Shows a line of progress.

        Raises:
            ValueError: A value does not fit, and which; or the folder is not new.
        """
        configs = combined_configs(config, plan["values"])
        folder = RunFolder.create(log_dir, f"{environment}_{config.algorithm}_sweep")
        init = None if init is None else os.path.abspath(init)
        sweep = cls(folder, config, environment, plan, configs, init, report)
        for group in sweep.groups:
            group.folder.mkdir()
            group.write_settings()
        sweep._write_plan()
        return sweep

    @classmethod
    def resume(
        cls, path: str, trust: bool, report: Report, held: bool = False, init: str | None = None
    ) -> Sweep:
        """The sweep in a folder.

        Args:
            path: The folder.
            trust: Import the Python modules that the folder names.
            report: Shows a line of progress.
            held: Another process, which started this one, holds the folder.
            init: Where the run whose weights all begin with lies here; None: as the folder says.

        Raises:
            ValueError: The folder is no sweep's.
        """
        file = Path(path) / SWEEP_FILE
        if not file.is_file():
            raise ValueError(
                f"{path_text(path)} has no {SWEEP_FILE}, expected the folder of a sweep. Give that "
                "one, or continue a single run by `kytolly train ALGO --resume`."
            )
        cfg, env, beside = shared_settings(file, trust or held)
        try:
            plan = msgspec.convert(beside.get("sweep"), Plan)
            check_count(plan["values"])
        except ValueError as error:
            raise ValueError(
                f"{path_text(file)} holds something else than a sweep wrote ({error}). Restore it, "
                "or sweep again."
            ) from None
        names = folder_names(combinations(plan["values"]))
        kept = RunFolder(Path(path))
        kept = kept if held else kept.lock_folder()
        for name in names:
            refuse_links(kept.path / name)
        files = [kept.path / name / GROUP_FILE for name in names]
        configs = [make_config(read_settings(each)[0]) for each in files]
        return cls(kept, cfg, env, plan, configs, init or beside.get("init"), report)

    @property
    def num_runs(self) -> int:
        """Runs of the sweep."""
        return len(self.groups) * len(self.plan["seeds"])

    def num_done(self) -> int:
        """Runs with a result."""
        return sum(group.num_done() for group in self.groups)

    def num_waiting(self) -> int:
        """Runs that had no result when this process looked."""
        return sum(len(group.waiting) for group in self.groups)

    def num_failed(self) -> int:
        """Runs that have failed in this process."""
        return sum(len(group.problems) for group in self.groups)

    def train_part(self, number: int) -> None:
        """Train the runs of one population that wait, in this process."""
        label = f"population {number + 1} of {len(self.parts)}: " if len(self.parts) > 1 else ""
        train_members(self.parts[number], lambda line: self._report(f"{label}{line}"))

    def divide(self, jobs: int) -> None:
        """Divide the runs, of which none has begun, into populations for so many processes."""
        self.plan["jobs"] = jobs
        self.parts = population_parts(self.groups, jobs)
        self._write_plan()

    def train_parts(self, jobs: int, start: Start = ChildRun.start) -> None:
        """Train every population with runs that wait in a process of its own, so many at a time.

        Args:
            jobs: Processes at a time.
            start: Starts a child's process where it shall run.
        """
        waiting = iter(n for n, part in enumerate(self.parts) if waits(part))

        def next_child() -> ChildRun | None:
            number = next(waiting, None)
            if number is None:
                return None
            words = ["sweep", self.config.algorithm, "--resume", str(self.folder)]
            words += ["--part", str(number)]
            words += ["--init", self.init] if self.init else []
            runs = [(group, seed) for group, seed in self.parts[number] if seed in group.waiting]
            members = [str(group.run_dir(seed).relative_to(self.folder)) for group, seed in runs]
            run_dir = self.folder / f"population-{number + 1}"
            return ChildRun(str(number), run_dir, words, members)

        def show(child: ChildRun) -> None:
            show_lines(child, self._report)

        run_children(jobs, next_child, show, self._end_part, start)

    def train_apart(self, jobs: int, start: Start = ChildRun.start) -> None:
        """Train each run that waits in a process, so many at a time; `start` says where."""
        groups = {group.folder: group for group in self.groups}

        def group_of(child: ChildRun) -> SeedGroup:
            return groups[child.run_dir.parent]

        def next_child() -> ChildRun | None:
            found = (child for group in self.groups if (child := group.next_child()) is not None)
            return next(found, None)

        def end(child: ChildRun) -> None:
            group = group_of(child)
            try:
                group.end_child(child)
            except ValueError as error:
                if self._is_untrained():
                    raise ValueError(f"{group.folder.name}: {error}") from None
                seeds, group.waiting = group.waiting, []
                group.problems |= dict.fromkeys(seeds, str(error))
                self._report(f"{group.folder.name}: {error}")

        def show_progress(child: ChildRun) -> None:
            group_of(child).show_progress(child)

        run_children(jobs, next_child, show_progress, end, start)

    @contextlib.contextmanager
    def training(self) -> Any:
        """Hold the folder during a block that trains; one in which nothing trained is removed."""
        try:
            yield
        except ValueError:
            if self._is_untrained():
                self._remove()
            raise
        finally:
            self._held.release()

    def save_result(self, seconds: float) -> SweepResult:
        """Write best.yaml, sweep.png and result.json; returns what the last holds."""
        rows = [
            settings_result(chosen, group)
            for chosen, group in zip(self.chosen, self.groups, strict=True)
        ]
        rows.sort(key=score, reverse=True)
        known = [row for row in rows if row["best"]]
        result: SweepResult = {
            "algorithm": self.config.algorithm,
            "environment": self.environment,
            "wall_seconds": seconds,
            "run_dir": str(self.folder),
            "settings": rows,
            "improvement": improvement_of(known),
            "best_config": self._save_best(known[0]) if known else None,
            "plot": self._save_plot(known) if known else None,
        }
        self._held.write_result(dict(result))
        return result

    def _write_plan(self) -> None:
        beside: dict[str, Any] = {"environment": self.environment, "loop": self.config.loop}
        beside |= {"versions": versions(), "sweep": self.plan}
        beside |= {"init": self.init} if self.init else {}
        write_text(self.folder / SWEEP_FILE, shared_yaml_text(self.config, beside))

    def _end_part(self, child: ChildRun) -> None:
        """Note which runs of a population have no result; what is wrong at once may be for all."""
        if not child.process.returncode:
            return
        if child.process.returncode == 2 and self._is_untrained():
            raise ValueError(child.problem())
        part = self.parts[int(child.name)]
        is_one_group = len({group.folder for group, _ in part}) == 1
        for group, seed in part:
            if seed in group.waiting and not group.is_done(seed):
                name = f"seed-{seed}"  # as `PopulationTraining` calls it
                name = name if is_one_group else f"{group.folder.name}/{name}"
                group.problems[seed] = problem_of(child, name)

    def _is_untrained(self) -> bool:
        """True where no run has begun."""
        return not any(self.folder.glob("*/seed-*/config.yaml"))

    def _remove(self) -> None:
        """Remove what was written before any run, so that the folder can be used again."""
        for group in self.groups:
            for path in [*group.folder.glob("seed-*.log"), group.folder / GROUP_FILE]:
                path.unlink(missing_ok=True)
            with contextlib.suppress(OSError):
                group.folder.rmdir()
        for path in [*self.folder.glob("population-*.log"), self.folder / SWEEP_FILE]:
            path.unlink(missing_ok=True)
        self._held.remove_if_empty()

    def _save_best(self, row: SettingsResult) -> str:
        group = next(each for each in self.groups if str(each.folder) == row["run_dir"])
        best = row["best"]
        count = 0 if best is None else len(best["returns"])
        text = chosen_settings_text(
            group.config,
            self.environment,
            row["settings"],
            f"The best of {len(self.groups)} settings of a sweep, by its return over {count} seeds",
        )
        return str(write_text(self.folder / "best.yaml", text))

    def _save_plot(self, rows: Sequence[SettingsResult]) -> str:
        from kytolly.experiment.plots import plot_settings

        returns = {settings_label(row["settings"]): row["best"] for row in rows}
        figure = plot_settings({name: best for name, best in returns.items() if best})
        file = self.folder / "sweep.png"
        write_file(file, lambda to: figure.savefig(to, dpi=150, format="png"))
        return str(file)


def combinations(values: Values) -> list[Chosen]:
    """Every combination of the values, those of the last setting changing first."""
    products = itertools.product(*values.values())
    return [dict(zip(values, each, strict=True)) for each in products]


def combined_configs(config: RunConfig, values: Values) -> list[RunConfig]:
    """The config of each combination.

    Raises:
        ValueError: There are too many, or a value does not fit, and in which combination.
    """
    check_count(values)
    configs = []
    for chosen in combinations(values):
        try:
            configs.append(make_config({**dataclasses.asdict(config), **chosen}))
        except ValueError as error:
            raise ValueError(f"with {settings_label(chosen)}, {error}") from None
    return configs


def check_count(values: Values) -> None:
    """Refuse too many combinations."""
    count = math.prod(map(len, values.values()))
    if count > MAX_SETTINGS:
        raise ValueError(
            f"the values of {', '.join(values)} have {count:,} combinations, expected at most "
            f"{MAX_SETTINGS:,}. Give fewer values, or search by `kytolly tune`."
        )


def settings_label(chosen: Chosen) -> str:
    """The settings in a table, such as `learning_rate=0.001,clip_range=0.2`."""
    return ",".join(f"{name}={value_label(value)}" for name, value in chosen.items())


def value_label(value: object) -> str:
    """A value in a table: `0.001`, `yes`, `none`, `64x64` or a word."""
    words = {"None": "none", "True": "yes", "False": "no"}
    if isinstance(value, (list, tuple)):
        return "x".join(map(str, value))
    return words.get(str(value), str(value))


def folder_names(settings: Sequence[Chosen]) -> list[str]:
    """A folder's name for each combination: its label, or its number where that is no name."""
    names = [
        ",".join(f"{path_part(k)}={path_part(value_label(v))}" for k, v in chosen.items())
        for chosen in settings
    ]
    fits = max(len(os.fsencode(name)) for name in names) <= MAX_NAME_BYTES
    if fits and len({name.lower() for name in names}) == len(names):
        return names
    return [f"settings-{number}" for number in range(1, len(names) + 1)]


def reason_sweep_apart(configs: Sequence[RunConfig], environment: str) -> str | None:
    """Why the runs need processes of their own; None where populations can hold them."""
    reasons = (reason_apart(cfg, environment) for cfg in configs)
    return next((reason for reason in reasons if reason), None)


def program_groups(groups: Sequence[SeedGroup]) -> list[list[SeedGroup]]:
    """The groups of seeds that one program can train together."""
    found: dict[Any, list[SeedGroup]] = {}
    for group in groups:
        found.setdefault(program_key(group.config), []).append(group)
    return list(found.values())


def dividing_settings(programs: Sequence[Sequence[SeedGroup]], values: Values) -> list[str]:
    """The varied settings whose values are not the same ones in all programs."""

    def texts(program: Sequence[SeedGroup], name: str) -> set[str]:
        return {str(getattr(group.config, name)) for group in program}

    return [name for name in values if len({frozenset(texts(p, name)) for p in programs}) > 1]


def default_processes(configs: Sequence[RunConfig], seeds: int) -> int:
    """Processes at a time that make a sweep by populations faster."""
    if configs[0].device != "cpu" and nvidia_gpu_plausible():
        return 1
    programs = len({program_key(cfg) for cfg in configs})
    busy = max(programs, len(configs) * seeds // MIN_SEEDS_OF_A_PROCESS)
    return min(2, default_jobs(), busy)


def population_parts(groups: Sequence[SeedGroup], jobs: int) -> list[Part]:
    """The members of each population: those of one program, divided where processes are idle."""
    parts: list[Part] = [
        [(group, seed) for group in program for seed in group.seeds]
        for program in program_groups(groups)
    ]
    while len(parts) < jobs and len(largest := max(parts, key=len)) > 1:
        index, half = parts.index(largest), len(largest) // 2
        parts[index : index + 1] = [largest[:half], largest[half:]]
    return parts


def waits(part: Part) -> bool:
    """True where a run of a population waits."""
    return any(seed in group.waiting for group, seed in part)


def settings_result(chosen: Chosen, group: SeedGroup) -> SettingsResult:
    """The runs of one combination, as JSON has them."""
    runs, best, last = group.summaries()
    return {
        "settings": chosen,
        "run_dir": str(group.folder),
        "runs": runs,
        "best": best,
        "last": last,
    }


def score(row: SettingsResult) -> tuple[float, float]:
    """What combinations are sorted by: the return of the best weights, then the last evaluation."""
    return tuple(  # pyright: ignore[reportReturnType]  two of them
        -math.inf
        if each is None or math.isnan(each["interquartile_mean"])
        else each["interquartile_mean"]
        for each in (row["best"], row["last"])
    )


def improvement_of(rows: Sequence[SettingsResult]) -> Improvement | None:
    """The probability that the first combination improves on the second; None where unknown."""
    first, second = [row["best"] for row in rows[:2]] if len(rows) > 1 else (None, None)
    if first is None or second is None or min(map(len, (first["returns"], second["returns"]))) < 2:
        return None
    return improvement([(first["returns"], second["returns"])])
