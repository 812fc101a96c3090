"""The same training with several seeds, in one folder: together, or each in a process."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NotRequired, TypedDict

from kytolly.agent.algorithms import make_config
from kytolly.config.files import read_settings
from kytolly.config.run import RunConfig
from kytolly.config.words import path_text
from kytolly.experiment.comparison import DEFAULT_METRIC, GROUP_FILE, make_groups, read_runs
from kytolly.experiment.members import shared_yaml_text
from kytolly.experiment.plots import plot_comparison
from kytolly.experiment.processes import ChildRun, Report, Start, run_children
from kytolly.experiment.seed_statistics import SeedSummary, return_text, summary
from kytolly.record.files import write_file, write_text
from kytolly.record.metrics_file import evaluations
from kytolly.record.run_folder import RunFolder, versions
from kytolly.record.saved_run import SavedConfig, SavedRun, read_result

LINE_SECONDS = 5.0  # between two lines about a seed


class SeedRun(TypedDict):
    """One seed's results, as JSON has them; those of a seed without a result are absent."""

    seed: int
    run_dir: str
    failed: NotRequired[str]
    best: NotRequired[float]
    last: NotRequired[float | None]
    env_steps: NotRequired[int]
    updates: NotRequired[int]
    wall_seconds: NotRequired[float]
    stopped_by: NotRequired[str]


class SeedsResult(TypedDict):
    """The contents of a group's result.json."""

    algorithm: str
    environment: str
    wall_seconds: float
    run_dir: str
    runs: list[SeedRun]
    best: SeedSummary | None
    last: SeedSummary | None
    plot: str | None


class SeedGroup:
    """The runs of several seeds in one folder, which this process holds.

    Attributes:
        folder: The group's folder, which holds `seed-N/` for each seed.
        config, environment: What all runs share; each has its own seed.
        init: The run whose weights all begin with; None where they begin with random ones.
        waiting: The seeds without a result.
        parts: The seeds of each population; None where each seed has a process.
        problems: Why a seed failed, by seed.
    """

    def __init__(
        self,
        folder: RunFolder,
        config: RunConfig,
        environment: str,
        seeds: Sequence[int],
        init: str | None,
        report: Report,
        parts: list[list[int]] | None = None,
    ):
        self.folder, self._held, self.parts = folder.path, folder, parts
        self.config, self.environment, self.init = config, environment, init
        self.seeds = list(seeds)
        self.problems: dict[int, str] = {}
        self.waiting = [seed for seed in seeds if read_result(self.run_dir(seed)) is None]
        self._num_ended = len(self.seeds) - len(self.waiting)
        self._report = report
        self._line_at: dict[str, float] = {}
        self._best: dict[str, float] = {}

    @classmethod
    def create(
        cls,
        log_dir: str | None,
        config: RunConfig,
        environment: str,
        seeds: Sequence[int],
        init: str | None,
        report: Report,
        parts: list[list[int]] | None = None,
    ) -> SeedGroup:
        """A group in a new folder, which gets the settings of all runs.

        Args:
            log_dir: The folder; None: a new one in `runs/`.
            config: What all runs share.
            environment: Gymnasium id.
            seeds: One run for each.
            init: The run whose weights all begin with.
            report: Shows a line of progress.
            parts: The seeds of each population; None: each seed has a process.
        """
        folder = RunFolder.create(log_dir, f"{environment}_{config.algorithm}_seeds")
        init = None if init is None else os.path.abspath(init)
        group = cls(folder, config, environment, seeds, init, report, parts)
        group.write_settings()
        return group

    @classmethod
    def resume(
        cls,
        path: str,
        algorithm: str,
        environment: str | None,
        seeds: Sequence[int],
        trust: bool,
        report: Report,
    ) -> SeedGroup:
        """The group in a folder whose seeds are not all done.

        Args:
            path: The folder.
            algorithm: The algorithm that the user expects in it.
            environment: The environment that the user expects; None: the group's own.
            seeds: What is trained.
            trust: Import the Python modules that the folder names.
            report: Shows a line of progress.

        Raises:
            ValueError: The folder is no group's, or another one than expected.
        """
        file = Path(path) / GROUP_FILE
        if not file.is_file():
            raise ValueError(
                f"{path_text(path)} has no {GROUP_FILE}, expected the folder of a training with "
                "--seeds. Give that one, or continue a single run without --seeds."
            )
        cfg, env, beside = shared_settings(file, trust, environment)
        found = beside.get("environment", "")
        if (cfg.algorithm, found) != (algorithm, env):
            raise ValueError(
                f"{algorithm} on {env} is asked for, and the group in {path_text(path)} is "
                f"{cfg.algorithm} on {found}. Change one of them."
            )
        # Before the group looks at which seeds are done.
        held = RunFolder(Path(path)).lock_folder()
        parts = beside.get("together")
        new = [seed for seed in seeds if parts and not any(seed in part for part in parts)]
        if parts is not None and new:
            parts = [*parts, new]
            write_text(file, shared_yaml_text(cfg, {**beside, "together": parts}))
        return cls(held, cfg, env, seeds, beside.get("init"), report, parts)

    @classmethod
    def part(cls, path: str, seeds: Sequence[int], init: str | None, report: Report) -> SeedGroup:
        """Some seeds of the group in a folder, which another process holds."""
        settings, beside = read_settings(Path(path) / GROUP_FILE)
        env = beside.get("environment", "")
        parts = beside.get("together")
        return cls(RunFolder(Path(path)), make_config(settings), env, seeds, init, report, parts)

    def write_settings(self) -> None:
        """Write what all runs share, and how the seeds are divided."""
        beside = {"environment": self.environment, "loop": self.config.loop, "versions": versions()}
        beside |= {"init": self.init} if self.init else {}
        beside |= {} if self.parts is None else {"together": self.parts}
        write_text(self.folder / GROUP_FILE, shared_yaml_text(self.config, beside))

    def train_apart(self, jobs: int) -> SeedsResult:
        """Train the seeds that wait, so many at a time; returns what result.json holds.

        Raises:
            ValueError: What is wrong for every seed; a new folder is removed.
        """
        return self.train(lambda: self.train_children(jobs))

    def train_children(self, jobs: int, start: Start = ChildRun.start) -> None:
        """Train each seed that waits in a process, so many at a time; `start` says where."""
        run_children(jobs, self.next_child, self.show_progress, self.end_child, start)

    def train(self, work: Callable[[], None]) -> SeedsResult:
        """Do what trains the seeds that wait; returns what result.json holds.

        Raises:
            ValueError: What is wrong for every seed; a new folder is removed.
        """
        began = time.perf_counter()
        try:
            work()
            result = self._summary(time.perf_counter() - began)
            self._held.write_result(dict(result))
            return result
        except ValueError:
            self._remove_if_untrained()
            raise
        finally:
            self._held.release()

    def num_done(self) -> int:
        """Seeds with a result."""
        return sum(map(self.is_done, self.seeds))

    def is_done(self, seed: int) -> bool:
        """True where a seed has a result."""
        return read_result(self.run_dir(seed)) is not None

    def run_dir(self, seed: int) -> Path:
        """The folder of one seed's run."""
        return self.folder / f"seed-{seed}"

    def next_child(self) -> ChildRun | None:
        """The run of the next seed: a new one, or what is left of one that was stopped."""
        if not self.waiting:
            return None
        seed = self.waiting.pop(0)
        run_dir = self.run_dir(seed)
        words = ["train", self.config.algorithm, "--env", self.environment, "--json"]
        words += ["--trust"] if self.config.wrappers else []  # this process was trusted with them
        if (run_dir / "config.yaml").is_file():
            words += ["--resume", str(run_dir)]
        else:
            settings = str(self.folder / GROUP_FILE)  # it has all settings: --no-tuned
            words += ["--config", settings, "--no-tuned", "--seed", str(seed)]
            words += ["--log-dir", str(run_dir)]
            words += ["--init", self.init] if self.init else []
        return ChildRun(f"seed {seed}", run_dir, words)

    def show_progress(self, child: ChildRun) -> None:
        """Report what is new: warnings at once, an evaluation every few seconds."""
        for warning in child.new_warnings():
            self._report(f"{child.name}: {warning}")
        new = child.new_evaluations()
        now = time.monotonic()
        if not new:
            return
        best = max([value for _, value in new] + [self._best.get(child.name, -float("inf"))])
        self._best[child.name] = best
        if now - self._line_at.get(child.name, -LINE_SECONDS) >= LINE_SECONDS:
            self._line_at[child.name] = now
            env_steps, value = new[-1]
            self._report(
                f"{child.name}: {env_steps:,} of {self.config.total_env_steps:,} env steps, "
                f"evaluation return {return_text(value)} (best {return_text(best)})"
            )

    def end_child(self, child: ChildRun) -> None:
        """Note how a seed ended; what is wrong before anything trains is wrong for all."""
        seed = int(child.name.split()[1])
        result = child.result()
        self._num_ended += 1
        count = f"({self._num_ended} of {len(self.seeds)})"
        if child.process.returncode or result is None:
            problem = self.problems[seed] = child.problem()
            if child.never_began() and self.is_untrained():
                raise ValueError(problem)
            reason = "" if problem in child.reported else f": {problem}"
            self._report(f"{child.name}: failed {count}{reason}")
        else:
            score = result["evaluation"]["return_mean"]
            self._report(
                f"{child.name}: return {return_text(score)} after {child.seconds:.1f} s {count}"
            )

    def is_untrained(self) -> bool:
        """True where no seed has a run yet."""
        return not any(self.folder.glob("seed-*/config.yaml"))

    def _remove_if_untrained(self) -> None:
        """Remove what was written where no run began, so that the folder can be used again."""
        if self.is_untrained():
            logs = [*self.folder.glob("seed-*.log"), *self.folder.glob("part-*.log")]
            for path in [*logs, self.folder / GROUP_FILE]:
                path.unlink(missing_ok=True)
            RunFolder(self.folder).remove_if_empty()

    def _summary(self, seconds: float) -> SeedsResult:
        """The contents of result.json; the plot is made with it."""
        runs, best, last = self.summaries()
        return {
            "algorithm": self.config.algorithm,
            "environment": self.environment,
            "wall_seconds": seconds,
            "run_dir": str(self.folder),
            "runs": runs,
            "best": best,
            "last": last,
            "plot": self._save_plot(),
        }

    def summaries(self) -> tuple[list[SeedRun], SeedSummary | None, SeedSummary | None]:
        """Every seed's results; over seeds, those of the best weights and the last evaluations."""
        runs = [self.run_summary(seed) for seed in self.seeds]
        best = [run["best"] for run in runs if "best" in run]
        last = [value for run in runs if (value := run.get("last")) is not None]
        return runs, summary(best) if best else None, summary(last) if last else None

    def run_summary(self, seed: int) -> SeedRun:
        """One seed's results: of its best weights, and of its last evaluation during training."""
        run_dir = self.run_dir(seed)
        result = read_result(run_dir)
        run: SeedRun = {"seed": seed, "run_dir": str(run_dir)}
        if seed in self.problems:
            run["failed"] = self.problems[seed]
        if result is None:
            return run
        during = evaluations(run_dir)
        run["best"] = result["evaluation"]["return_mean"]
        run["last"] = during[-1][1] if during else None
        for name in ("env_steps", "updates", "wall_seconds", "stopped_by"):
            run[name] = result[name]
        return run

    def _save_plot(self) -> str | None:
        """Save `seeds.png`; None where no run was evaluated."""
        paths = [path for path in map(self.run_dir, self.seeds) if read_result(path)]
        paths = [path for path in paths if evaluations(path)]
        if not paths:
            return None
        runs, unit = read_runs(paths)
        figure = plot_comparison(make_groups(runs, True), DEFAULT_METRIC, unit)
        file = self.folder / "seeds.png"
        write_file(file, lambda to: figure.savefig(to, dpi=150, format="png"))
        return str(file)


def shared_settings(
    file: Path, trust: bool, environment: str | None = None
) -> tuple[RunConfig, str, dict[str, Any]]:
    """What a file says that the runs beside it share: config, environment, and the rest.

    Args:
        file: Such as a group's.
        trust: Import the Python modules that it names.
        environment: What the user gives himself in place of the file's.
    """
    settings, beside = read_settings(file)
    saved = SavedConfig(settings, beside.get("environment", ""), beside.get("loop"), "")
    folder = SavedRun(file.parent)
    env = environment or folder.trusted_environment(saved, trust=trust)
    folder.trusted_wrappers(saved, trust=trust)
    return make_config(settings), env, beside
