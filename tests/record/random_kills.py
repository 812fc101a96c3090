"""Kills runs at random moments, from outside, and resumes each until it ends.

    python -c "from tests.record.random_kills import main; main()" FOLDER RUN KILLS SEED

RUN is a name in `runs.RUNS`. A run that is never killed comes first, in FOLDER/whole. The killed
ones, FOLDER/run-1 and so on, share KILLS kills: each start of a process ends a random time after a
random change of what it does, unless the run ends before. FOLDER/kills.json holds what each kill
interrupted, by run. SEED decides which lines and times they are.

A file that is run as `__main__` would be imported again by every process of an environment.
"""

import collections
import json
import os
import pathlib
import random
import signal
import sys
import time

from kytolly.callback.checkpoint import CheckpointSaver
from kytolly.loop.device import DeviceEvaluator, DeviceLoop
from kytolly.loop.host import HostLoop
from kytolly.loop.host_env_runner import HostEvaluator
from tests.helpers.file_operations import before_operations
from tests.record.killed_runs import begin, ended
from tests.record.runs import RUNS, VARIANTS

MAX_KILLS = 4  # of one run
STARTING = 0.15  # share of the kills while a process builds and compiles
PHASES = ("training", "evaluating", "checkpoint", "files")  # that share the others
WHEN = (0.0, 0.7)  # which of a whole run's lines of that phase comes before
MIDDLE = (0.25, 0.7)  # the same for the variants, of which no kill comes before training


def send_phases(send):
    """Let this process send what it does whenever that changes."""
    stack = ["between"]

    def within(owner, method, phase):
        function = getattr(owner, method)

        def call(self, *args, **options):
            stack.append(phase(*args) if callable(phase) else phase)
            send(stack[-1])
            try:
                return function(self, *args, **options)
            finally:
                stack.pop()
                send(stack[-1])

        setattr(owner, method, call)

    for loop in (DeviceLoop, HostLoop):
        within(loop, "run", lambda steps, *_: "training" if steps else "compiling")
    for evaluator in (DeviceEvaluator, HostEvaluator):
        within(evaluator, "evaluate", "evaluating")
    within(CheckpointSaver, "_save", "checkpoint")
    before_operations(lambda name: send(stack[-1] if stack[-1] == "checkpoint" else "files"))


class Clock:
    """How long a run that is never killed takes to train at first, and what it does how long."""

    def __init__(self, folder, run):
        began = last = time.perf_counter()
        child, lines = begin(folder, run.config, send_phases, run.env, **run.options())
        self.start_seconds, phase, self.seconds = 0.0, "starting", collections.defaultdict(list)
        while line := lines.readline():
            now = time.perf_counter()
            self.seconds[phase].append(now - last)
            last, phase = now, line.decode().strip()
            if phase == "training" and not self.start_seconds:
                self.start_seconds = now - began
        assert ended(child, lines)[0] == 0, "the run that is never killed was killed"


def kill_once(folder, run, clock, rng):
    """Start a process and kill it; returns what it did then, None if it had ended."""
    child, lines = begin(folder, run.config, send_phases, run.env, **run.options())
    phase, variant = "starting", run in VARIANTS.values()
    if not variant and rng.random() < STARTING:
        time.sleep(rng.uniform(0.0, clock.start_seconds))
    else:
        wanted = rng.choice(PHASES)
        seconds = clock.seconds[wanted]
        count = 1 + int(len(seconds) * rng.uniform(*(MIDDLE if variant else WHEN)))
        while count and (line := lines.readline()):
            phase = line.decode().strip()
            count -= phase == wanted
        time.sleep(rng.uniform(0.0, sum(seconds) / len(seconds)))
    os.kill(child, signal.SIGKILL)
    code, rest = ended(child, lines)
    return (rest[-1] if rest else phase) if code else None


def kill_often(home, run, kills, rng):
    """Train a run whole, and others with `kills` kills; write what these interrupted."""
    clock, report = Clock(home / "whole", run), {}
    while kills:
        name = f"run-{len(report) + 1}"
        report[name] = phases = []
        while kills and len(phases) < MAX_KILLS:
            phase = kill_once(home / name, run, clock, rng)
            if phase is None:  # it ended before
                break
            phases.append(phase)
            kills -= 1
        else:
            child, lines = begin(home / name, run.config, send_phases, run.env, **run.options())
            assert ended(child, lines)[0] == 0
    (home / "kills.json").write_text(json.dumps(report))


def main():
    home, run, kills, seed = sys.argv[1:]
    kill_often(pathlib.Path(home), RUNS[run], int(kills), random.Random(f"{seed} {run}"))
