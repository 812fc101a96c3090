"""The seeds of one training as populations, one in this process, others in child processes."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from filelock import FileLock, Timeout

from kytolly.config.run import RunConfig
from kytolly.config.words import PREFIX
from kytolly.experiment.members import prepare_population
from kytolly.experiment.processes import (
    POLL_SECONDS,
    THREADS,
    ChildRun,
    Report,
    Start,
    default_jobs,
    run_children,
)
from kytolly.experiment.seeds import SeedGroup
from kytolly.machine.hardware import nvidia_gpu_plausible, usable_cores
from kytolly.record.run_folder import LOCK

# Fewer seeds are no faster in two processes, each of which compiles: most of their time is that.
MIN_SEEDS_OF_A_PROCESS = 10
LOCK_SECONDS = 60.0  # that a process whose parent was killed may take to save its runs
# Lines of a child process that say what its parent says.
AT_INTERRUPTION = (f"{PREFIX}interrupted", f"{PREFIX}stopping")

Parts = list[list[int]]  # the seeds of each population


def default_parts(cfg: RunConfig, seeds: Sequence[int], jobs: int | None) -> Parts:
    """The seeds in equal populations, of which each has a process of its own.

    Args:
        cfg: What the runs share.
        seeds: All of them.
        jobs: Processes; None: as many as make the training faster.
    """
    if jobs is None:
        on_gpu = cfg.device != "cpu" and nvidia_gpu_plausible()
        jobs = 1 if on_gpu else min(2, default_jobs(), len(seeds) // MIN_SEEDS_OF_A_PROCESS)
    return equal_parts(seeds, jobs)


def equal_parts(seeds: Sequence[int], count: int) -> Parts:
    """The seeds in at most `count` populations of equal size."""
    count = max(1, min(count, len(seeds)))
    ends = [len(seeds) * n // count for n in range(count + 1)]
    return [list(seeds[a:b]) for a, b in itertools.pairwise(ends)]


def unfinished(group: SeedGroup, parts: Parts) -> Parts:
    """The parts with a seed that waits."""
    return [part for part in parts if set(part) & set(group.waiting)]


def train_processes(group: SeedGroup, report: Report) -> None:
    """Train the seeds of a group that wait: one population here, each other in a child process.

    Args:
        group: Gets the problems of seeds without a result.
        report: Shows a line of progress.
    """
    parts = unfinished(group, group.parts or [])
    if not parts:
        return
    children = [child_of(group, part) for part in parts[1:]]
    threads = threads_of(group)

    def look() -> None:
        for child in children:
            show_lines(child, report)

    def say(line: str) -> None:
        report(line)
        look()

    try:
        for child in children:
            child.start(threads)
        train_part(group, parts[0], say)
        while any(child.process.poll() is None for child in children):
            time.sleep(POLL_SECONDS)
            look()
    finally:
        for child in children:
            child.stop_if_started()
        look()
    for child in children:
        note_problems(group, child)


def train_elsewhere(group: SeedGroup, jobs: int, start: Start, report: Report) -> None:
    """Train the seeds of a group that wait, each population in a child process.

    Args:
        group: Gets the problems of seeds without a result.
        jobs: Processes at a time.
        start: Starts a child's process where it shall run.
        report: Shows a line of progress.
    """
    waiting = [child_of(group, part) for part in unfinished(group, group.parts or [])]

    def next_child() -> ChildRun | None:
        return waiting.pop(0) if waiting else None

    def end(child: ChildRun) -> None:
        if child.process.returncode == 2 and group.is_untrained():
            raise ValueError(child.problem())  # what is wrong for every seed
        note_problems(group, child)

    run_children(jobs, next_child, lambda child: show_lines(child, report), end, start)


def show_lines(child: ChildRun, report: Report) -> None:
    """Show what a child that trains several runs has printed."""
    for line in child.new_lines():
        if not line.startswith(AT_INTERRUPTION):
            report(line)


def note_problems(group: SeedGroup, child: ChildRun) -> None:
    """Note why seeds of a child that has ended have no result."""
    if child.process.returncode:
        names = {seed: group.run_dir(seed).name for seed in group.waiting}
        missing = [s for s in group.waiting if names[s] in child.members and not group.is_done(s)]
        group.problems |= {seed: problem_of(child, names[seed]) for seed in missing}


def train_part(group: SeedGroup, part: Sequence[int], report: Report) -> None:
    """Train the seeds of one part that wait, in this process."""
    label = f"{seeds_text(part)}: " if len(group.parts or []) > 1 else ""
    train_members([(group, seed) for seed in part], lambda line: report(f"{label}{line}"))


def train_members(members: Sequence[tuple[SeedGroup, int]], report: Report) -> None:
    """Train seeds of groups as one population: those that wait, in this process.

    Args:
        members: The group and the seed of each; the groups have one environment.
        report: Shows a line of progress.
    """
    folders = [group.run_dir(seed) for group, seed in members]
    wanted = [index for index, (group, seed) in enumerate(members) if seed in group.waiting]
    configs = [dataclasses.replace(group.config, seed=seed) for group, seed in members]
    is_resumed = any((folders[index] / "config.yaml").is_file() for index in wanted)
    if is_resumed:
        for index in wanted:
            wait_until_free(folders[index])
    first = members[0][0]
    training = prepare_population(
        configs,
        first.environment,
        folders,
        report,
        resume=is_resumed,
        init_run=None if first.init is None else Path(first.init),
        wanted=wanted,
    )
    training.train()
    for index, why in training.problems.items():
        group, seed = members[index]
        group.problems[seed] = why


def child_of(group: SeedGroup, part: Sequence[int]) -> ChildRun:
    """The process that trains the seeds of a part that wait."""
    seeds = [seed for seed in part if seed in group.waiting]
    words = ["train", group.config.algorithm, "--part-of", str(group.folder)]
    words += ["--seeds", ",".join(map(str, seeds))]
    words += ["--init", group.init] if group.init else []
    members = [group.run_dir(seed).name for seed in seeds]
    return ChildRun(seeds_text(part), group.folder / f"part-{part[0]}", words, members)


def problem_of(child: ChildRun, name: str) -> str:
    """The reason why a member has no result, or else why its process has ended."""
    return problem_line(child, name) or child.problem()


def problem_line(child: ChildRun, name: str) -> str:
    """What a child has printed last of a member; nothing where it printed nothing."""
    lines = child.log.read_text("utf-8", "replace").splitlines()
    begin = f"{PREFIX}{name}: "
    return next((s.removeprefix(begin) for s in reversed(lines) if s.startswith(begin)), "")


def seeds_text(seeds: Sequence[int]) -> str:
    """Seeds for a reader, such as `seeds 0-9`, `seeds 0,3,5` or `seed 3`."""
    first, last = seeds[0], seeds[-1]
    if last > first and list(seeds) == list(range(first, last + 1)):
        return f"seeds {first}-{last}"
    return f"seed{'s' * (len(seeds) > 1)} {','.join(map(str, seeds))}"


def wait_until_free(run_dir: Path) -> None:
    """Wait for a process that still saves a run because whoever started it was killed."""
    if (run_dir / LOCK).is_file():
        with contextlib.suppress(Timeout), FileLock(run_dir / LOCK, timeout=LOCK_SECONDS):
            pass


def begin_process(threads: int) -> None:
    """Give TensorFlow, before it is imported, the threads of this process."""
    if "tensorflow" not in sys.modules:  # which reads them once
        for name in THREADS:
            os.environ.setdefault(name, str(threads))


def threads_of(group: SeedGroup) -> int:
    """TensorFlow's threads in each process; the same in a resumed one, for the same numbers."""
    return max(1, usable_cores() // len(group.parts or [()]))
