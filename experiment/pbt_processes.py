"""Population-based training whose members have processes of their own, on this machine or others.

A round trains every member up to the evaluation at which `PopulationBased` decides; there each is
saved and ends. The next round begins with those checkpoints: the processes are new, and nothing
depends on where they run.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kytolly.experiment.members import GROUP_FILE
from kytolly.experiment.pbt import PopulationBased
from kytolly.experiment.pbt_member import PARENT, give_parent
from kytolly.experiment.processes import ChildRun, Report, Start, run_children
from kytolly.experiment.seed_statistics import return_text
from kytolly.record.checkpoint import FOLDER, checkpoints, read_manifest
from kytolly.record.saved_run import read_result


class MemberProcesses:
    """The members of a population-based training, each in a process for each round.

    Args:
        pbt: Decides which members continue from which.
        environment: Gymnasium id.
        folders: Of the members' runs.
        report: Shows a line of progress.
        jobs: Processes at a time.
        start: Starts a member's process where it shall run.

    Attributes:
        configs: The members begin with these.
        problems: Why a member has no result.
    """

    def __init__(
        self,
        pbt: PopulationBased,
        environment: str,
        folders: Sequence[Path],
        report: Report,
        jobs: int,
        start: Start = ChildRun.start,
    ):
        self.pbt, self.environment, self.jobs, self.start = pbt, environment, jobs, start
        self.configs, self.folders = pbt.configs(), folders
        self.problems: dict[int, str] = {}
        self._report = report

    def train(self) -> None:
        """Train round after round, until every member has a result or has failed.

        Raises:
            ValueError: What is wrong for every member.
        """
        while going := self._going():
            self._give_parents(going)
            self._train_round([m for m in going if self._state_at_end(m) is None])
            states = {m: state for m in self._going() if (state := self._state_at_end(m))}
            if states:
                self._decide(states)
        for folder in self.folders:
            shutil.rmtree(folder / PARENT, ignore_errors=True)

    def _going(self) -> list[int]:
        """The members that have neither a result nor failed."""
        members = range(self.pbt.size)
        return [m for m in members if m not in self.problems and not read_result(self.folders[m])]

    @property
    def _last(self) -> int:
        """Env steps at the newest decision."""
        return self.pbt.events[-1].env_steps if self.pbt.events else 0

    @property
    def _end(self) -> int:
        """Env steps after which the round ends, with the next evaluation."""
        return (self._last // self.pbt.interval + 1) * self.pbt.interval

    def _numbers(self) -> dict[str, list[float]]:
        """[P] numbers by name in this round."""
        if self.pbt.events:
            return self.pbt.events[-1].numbers
        return self.pbt.numbers_of(self.configs)

    def _give_parents(self, members: Sequence[int]) -> None:
        """Give the members that continue from others what those had at the newest decision.

        Whoever resumes does it again, for members that have not been saved since.
        """
        if not self.pbt.events:
            return
        sources = self.pbt.events[-1].sources
        for member in members:
            newest = next((step for step, _ in checkpoints(self.folders[member] / FOLDER)), 0)
            if newest < self._last:
                self.problems[member] = f"it has no checkpoint after {self._last:,} env steps"
                self._report(f"{self.folders[member].name}: {self.problems[member]}")
            elif sources[member] != member and newest == self._last:
                give_parent(self.folders[member], self.folders[sources[member]], newest)

    def _state_at_end(self, member: int) -> Mapping[str, Any] | None:
        """The state of a member whose newest checkpoint ends this round; None where none does."""
        for step, path in checkpoints(self.folders[member] / FOLDER)[:1]:
            _, state = read_manifest(path)
            if state.get("last_evaluation") == step >= self._end:
                return state
        return None

    def _train_round(self, members: Sequence[int]) -> None:
        waiting = list(members)

        def next_child() -> ChildRun | None:
            return self._child(waiting.pop(0)) if waiting else None

        def show_warnings(child: ChildRun) -> None:
            for line in child.new_warnings():
                self._report(f"{child.name}: {line}")

        def end(child: ChildRun) -> None:
            member = self.folders.index(child.run_dir)
            is_whole = child.result() is not None or self._state_at_end(member) is not None
            if is_whole and not child.process.returncode:
                return
            problem = child.problem()
            if child.never_began() and not any(self.pbt.folder.glob("*/config.yaml")):
                raise ValueError(problem)
            self.problems[member] = problem
            self._report(
                f"{child.name}: failed{'' if problem in child.reported else f': {problem}'}"
            )

        run_children(self.jobs, next_child, show_warnings, end, self.start)

    def _child(self, member: int) -> ChildRun:
        """The process of a member for this round."""
        cfg, run_dir = self.configs[member], self.folders[member]
        words = ["train", cfg.algorithm, "--env", self.environment, "--json"]
        words += ["--trust"] if cfg.wrappers else []  # this process was trusted with them
        if (run_dir / "config.yaml").is_file():
            words += ["--resume", str(run_dir)]
        else:
            settings = str(self.pbt.folder / GROUP_FILE)  # it has all settings: --no-tuned
            words += ["--config", settings, "--no-tuned", "--seed", str(cfg.seed)]
            words += ["--log-dir", str(run_dir)]
        for name, values in self._numbers().items():
            words += [f"--{name.replace('_', '-')}", repr(values[member])]
        words += ["--until", str(self._end)]
        return ChildRun(run_dir.name, run_dir, words)

    def _decide(self, states: Mapping[int, Mapping[str, Any]]) -> None:
        """Decide by the evaluations at the end of a round."""
        steps = {state["last_evaluation"] for state in states.values()}
        if len(steps) > 1:
            raise RuntimeError(f"members ended a round after {steps} env steps, expected the same")
        scores = [-math.inf] * self.pbt.size
        for member, state in states.items():
            scores[member] = state["evaluation"]["return_mean"]
        (env_steps,) = steps
        event = self.pbt.decide(env_steps, scores, self._numbers())
        if event is None:
            raise RuntimeError(f"a round ended after {env_steps} env steps without a decision")
        count = sum(source != member for member, source in enumerate(event.sources))
        known = [scores[member] for member in states]
        total, mean = self.pbt.config.total_env_steps, sum(known) / len(known)
        self._report(
            f"{len(states)} members, {env_steps:,} of {total:,} env steps each, evaluation return "
            f"{return_text(mean)} on average, {return_text(max(known))} at best; {count} continue "
            "from others"
        )
