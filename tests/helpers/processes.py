"""A stand-in for the processes of `experiment.processes`: a run that writes itself while polled."""

import json
import signal
from pathlib import Path

from kytolly.config.files import read_settings
from kytolly.experiment import processes
from tests.helpers.written_runs import write_run


class Processes:
    """Every process that was started, and what each does.

    `returns(words, seed)` gives the evaluations of a run, one at each poll; a text in their place
    is why it fails, before it begins if it is the first one.
    """

    def __init__(self, monkeypatch, returns):
        self.started, self.most_at_once, self.interrupt_at = [], 0, None
        self.returns = returns
        monkeypatch.setattr(processes, "POLL_SECONDS", 0)
        monkeypatch.setattr(processes.subprocess, "Popen", self.start)

    def start(self, argv, env, stderr, **options):
        assert options["start_new_session"]  # else Ctrl-C would reach it twice
        process = Process(self, argv[4:], env, stderr.name)
        self.started.append(process)
        running = sum(one.returncode is None for one in self.started)
        self.most_at_once = max(self.most_at_once, running)
        return process


class Process:
    def __init__(self, owner, words, env, log):
        self.owner, self.words, self.env, self.log = owner, words, env, log
        self.returncode, self.polls, self.signals, self.waits = None, 0, [], 0
        self.resumed = "--resume" in words
        flags = [word for word in words if word not in ("--json", "--no-tuned", "--trust")]
        options = dict(zip(flags[2::2], flags[3::2], strict=True))
        self.run_dir = Path(options.get("--log-dir") or options["--resume"])
        settings = {}
        if "--config" in options:
            settings = read_settings(options["--config"])[0]
        self.seed = int(options.get("--seed", settings.get("seed", -1)))
        self.settings = {**settings, "seed": self.seed}
        self.evaluations = owner.returns(self.words, self.seed)
        self.environment = options["--env"]

    def poll(self):
        self.polls += 1
        if self.owner.interrupt_at == sum(one.polls for one in self.owner.started):
            raise KeyboardInterrupt
        if self.returncode is None:
            shown = self.evaluations[: self.polls]
            if isinstance(shown[-1], str):
                return self.end(2, shown[-1])
            self.write(shown)
            if self.polls > len(self.evaluations):
                score = {"return_mean": max(self.evaluations)}
                result = {"evaluation": score, "env_steps": 100 * len(shown), "updates": 3}
                result |= {"wall_seconds": 1.0, "stopped_by": "total_env_steps"}
                (self.run_dir / "result.json").write_text(json.dumps(result))
                self.returncode = 0
        return self.returncode

    def write(self, shown):
        for path in self.run_dir.glob("*"):
            path.unlink()
        if self.run_dir.exists():
            self.run_dir.rmdir()
        write_run(self.run_dir, shown, environment=self.environment, **self.settings)

    def end(self, status, line):
        with open(self.log, "w") as file:
            file.write(f"kytolly: {line}\n")
        self.returncode = status
        return status

    def send_signal(self, number):
        self.signals.append(number)
        if number == signal.SIGTERM:
            self.returncode = 143

    def wait(self):
        self.waits += 1
        assert self.returncode is not None
