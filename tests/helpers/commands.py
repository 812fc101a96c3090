"""Commands in the process of the tests, and options of trainings that take a moment."""

import contextlib
import io
import os
import types
import warnings
from pathlib import Path

from kytolly.command import entry

SHORT = (
    "--total-env-steps 200 --batch-size 8 --hidden-units 4 --replay-capacity 500 --no-xla "
    "--warmup-env-steps 50 --train-interval-env-steps 10 --updates-per-interval 1 "
    "--evaluation-episodes 2 --final-evaluation-episodes 3 "
    "--evaluation-interval-env-steps 100"
).split()
SHORT_PPO = (
    "--total-env-steps 150 --num-envs 3 --rollout-steps 25 --num-minibatches 3 --epochs 2 "
    "--hidden-units 4 --no-xla --evaluation-episodes 1 --final-evaluation-episodes 2 "
    "--evaluation-interval-env-steps 150"
).split()


def kytolly(*words, cwd):
    """The command in this process: its exit status and what it printed."""
    out, errors = io.StringIO(), io.StringIO()
    folder, show_warning = os.getcwd(), warnings.showwarning
    xla = os.environ.get("KYTOLLY_XLA")
    os.chdir(cwd)
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
            status = entry.main([str(word) for word in words])
    finally:
        os.chdir(folder)
        warnings.showwarning = show_warning
        os.environ.pop("KYTOLLY_XLA", None)
        os.environ.update({} if xla is None else {"KYTOLLY_XLA": xla})
    return types.SimpleNamespace(status=status, out=out.getvalue(), errors=errors.getvalue())


def start_here(child, threads):
    """Run the process of a child in this one, to its end."""
    done = kytolly(*child.words, cwd=Path.cwd())
    child.log.write_text(done.errors)
    child.begin(types.SimpleNamespace(returncode=done.status, poll=lambda: done.status))


def as_cluster(module, monkeypatch, slots=2):
    """Let `--on` of a command's module start its children in this process."""
    node = types.SimpleNamespace(slots=slots, start=start_here)
    monkeypatch.setattr(module, "join_cluster", lambda _: contextlib.nullcontext(node))


def error_line(argv, capsys):
    """The one line on standard error of a command that must exit with status 2."""
    assert entry.main([str(word) for word in argv]) == 2
    captured = capsys.readouterr()
    lines = captured.err.strip().splitlines()
    assert captured.out == "" and len(lines) == 1 and lines[0].startswith("kytolly: "), captured
    return lines[0]
