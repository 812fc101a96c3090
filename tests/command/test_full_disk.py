"""A disk that takes no more: earlier files stay whole, one line says so, no traceback."""

import dataclasses
import errno
import hashlib
import json
import os
import random
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import tensorflow as tf

from kytolly.command.exits import exit_status
from kytolly.experiment.study import open_study
from kytolly.loop.recovery import disk_problem, is_out_of_memory
from kytolly.record.files import write_output, write_text
from kytolly.trainer import Trainer
from kytolly.training_run import TrainResult

ROOT = Path(__file__).parents[2]
DQN = {
    "algorithm": "dqn",
    "total_env_steps": 60,
    "warmup_env_steps": 20,
    "batch_size": 4,
    "hidden_units": (8,),
    "replay_capacity": 200,
    "evaluation_episodes": 1,
    "final_evaluation_episodes": 1,
    "xla": False,
}
NUMBERS = {name: value for name, value in DQN.items() if type(value) is int}
FLAGS = [f"--{name.replace('_', '-')}={value}" for name, value in NUMBERS.items()]
FLAGS += ["--no-xla", "--hidden-units", "8"]
TRAIN = ["train", "dqn", "--env", "CartPole-v1", *FLAGS]
LIMITS = (0, 3_000)
MANY_LIMITS = (0, 1, 100, 1_000, 3_000, 10_000, 20_000, 50_000)
COMMANDS = {
    "train": [*TRAIN, "--log-dir", "new"],
    "oom": [*TRAIN, "--on-oom", "shrink", "--on-nan", "restart", "--log-dir", "new"],
    "resume": ["train", "dqn", "--resume", "run", "--total-env-steps", "90"],
    "plot": ["plot", "run", "--out", "old.png"],
    "record": ["record", "run", "--out", "new.mp4", "--episodes", "1"],
    "gif": ["record", "run", "--out", "new.gif", "--episodes", "1"],
    "saved_model": ["export", "run", "--format", "saved_model", "--out", "new"],
    "litert": ["export", "run", "--format", "litert", "--out", "new.tflite"],
    "onnx": ["export", "run", "--format", "onnx", "--out", "new.onnx"],
    "seeds": [*TRAIN, "--seeds", "0-1", "--apart", "--jobs", "1", "--log-dir", "new"],
    "tune": ["tune", "dqn", "--env", "CartPole-v1", "--trials", "1", "--study", "new.db"],
    "evaluate": ["evaluate", "run", "--episodes", "1"],
}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A run and a picture."""
    path = tmp_path_factory.mktemp("full")
    Trainer(path / "run", progress=False).train(DQN, "CartPole-v1")
    (path / "old.png").write_bytes(b"an old picture")
    return path


def sums(folder):
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def run_cases(folder, tmp_path, limits, commands):
    """Results by (command, bytes), or by (command, fault), of the limits of each command."""
    cases = {}
    for name in limits:
        for limit in limits[name]:
            place = tmp_path / f"{name}-{limit}"
            shutil.copytree(folder, place)
            is_fault = isinstance(limit, tuple)
            bytes_and_fault = (None, limit) if is_fault else (limit, None)
            cases[name, limit] = [
                COMMANDS[name],
                bytes_and_fault[0],
                str(place),
                bytes_and_fault[1],
            ]
    program = "from tests.helpers.full_disk import main; main()"
    env = {**os.environ, "KYTOLLY_COMPILE_CACHE": "off", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", program],
        input=json.dumps(list(cases.values())),
        capture_output=True,
        text=True,
        check=True,
        env=env,
    )
    found = [json.loads(line) for line in done.stdout.splitlines()]
    return dict(zip(cases, found, strict=True))


def check_cases(folder, tmp_path, limits, commands=COMMANDS):
    before = sums(folder)
    for (name, limit), found in run_cases(folder, tmp_path, limits, commands).items():
        case, errors = f"{name} with {limit}: {found['errors'][-2000:]}", found["errors"]
        status = 1 if "temporary directory" in errors else found["status"]  # Python's, asked first
        is_fault = isinstance(limit, tuple)
        assert "Traceback" not in errors and status in ((0, 1, 2) if is_fault else (0, 1)), case
        assert status == 1 or limit or name == "evaluate", case
        if found["status"]:
            assert errors.splitlines()[-1].startswith("kytolly: "), case
        after = sums(tmp_path / f"{name}-{limit}")
        changed = [file for file, digest in before.items() if after.get(file) != digest]
        if name != "resume":
            assert changed == [] or not found["status"], case
            continue
        # A resumed run writes on; its old checkpoints go, and what is there is whole.
        for file in changed:
            assert any(part in file for part in RESUMED), case
            if file.endswith(".keras") and (tmp_path / f"{name}-{limit}" / file).exists():
                with zipfile.ZipFile(tmp_path / f"{name}-{limit}" / file) as network:
                    assert network.testzip() is None, case


RESUMED = ("metrics.csv", "events.", "config.yaml", "result.json", "checkpoints/")
RESUMED += ("best.keras", "learning_curve.png")
ERRORS = (errno.ENOSPC, errno.EROFS, errno.EDQUOT, errno.EIO, errno.EACCES, errno.ENOENT)


def faults(count, seed):
    """Random faults: the change of a file from which on all fail, most of them early, and how."""
    draw = random.Random(seed)
    return [(int(2 ** draw.uniform(0.0, 7.0)), draw.choice(ERRORS)) for _ in range(count)]


def test_a_full_disk_or_any_fault_costs_no_earlier_file_and_is_one_line(folder, tmp_path):
    limits = {"oom": LIMITS[1:], "plot": LIMITS, "resume": [*LIMITS, *faults(1, seed=0)]}
    limits["litert"] = faults(1, seed=3)
    check_cases(folder, tmp_path, limits)


@pytest.mark.learning
def test_a_fault_at_any_change_of_a_file_is_one_line(folder, tmp_path):
    limits = {name: dict.fromkeys(faults(20, seed=n)) for n, name in enumerate(COMMANDS)}
    check_cases(folder, tmp_path, limits)


@pytest.mark.learning
def test_every_command_on_a_full_disk(folder, tmp_path):
    check_cases(folder, tmp_path, dict.fromkeys(COMMANDS, MANY_LIMITS))


def test_a_full_disk_is_no_lack_of_memory():
    full = tf.errors.ResourceExhaustedError(None, None, "ckpt-1.index; No space left on device")
    memory = tf.errors.ResourceExhaustedError(None, None, "OOM when allocating tensor")
    assert disk_problem(full) and not is_out_of_memory(full)
    assert is_out_of_memory(memory) and not disk_problem(memory)


@pytest.mark.parametrize(
    "error, status",
    [
        (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), 1),
        (OSError(errno.EDQUOT, os.strerror(errno.EDQUOT), "metrics.csv"), 1),
        (tf.errors.ResourceExhaustedError(None, None, "x; No space left on device"), 1),
        (OSError(errno.EROFS, os.strerror(errno.EROFS)), 2),
        (FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), "gone/metrics.csv"), 2),
    ],
)
def test_what_a_disk_refuses_is_one_line(error, status, capsys):
    def command():
        raise error

    assert exit_status(command) == status
    (line,) = capsys.readouterr().err.splitlines()
    assert "written" in line or "used" in line


def rows_to(path):
    return write_output(path, lambda to: to.write_text("rows\n"))


def no_room(*paths):
    raise OSError(errno.ENOSPC, "no room")


def test_an_output_that_is_a_pipe_or_a_link_is_written_and_never_replaced(tmp_path, monkeypatch):
    pipe, link, file = tmp_path / "pipe", tmp_path / "link", tmp_path / "file"
    os.mkfifo(pipe)
    link.symlink_to(file)
    file.write_text("old\n")
    with pytest.raises(OSError, match="room"), monkeypatch.context() as full:
        full.setattr(os, "replace", no_room)
        rows_to(link)
    assert file.read_text() == "old\n"  # not cut before there is something in its place
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    for path in (pipe, link, tmp_path / "new"):
        rows_to(path)
    assert os.read(reader, 100) == b"rows\n" and pipe.is_fifo()
    assert link.is_symlink() and file.read_text() == (tmp_path / "new").read_text() == "rows\n"
    os.close(reader)


def test_an_output_that_is_a_device_is_never_renamed_over(monkeypatch):
    monkeypatch.setattr(os, "replace", lambda *paths: pytest.fail("the device would be gone"))
    with pytest.raises(OSError, match="No space"):
        rows_to(Path("/dev/full"))


def test_a_file_of_a_run_that_is_a_pipe_is_replaced(tmp_path):
    os.mkfifo(tmp_path / "result.json")  # to open it would wait for a reader
    assert write_text(tmp_path / "result.json", "{}").read_text() == "{}"


@pytest.mark.parametrize(
    "python", ["python", pytest.param("unbuffered", marks=pytest.mark.learning)]
)
def test_standard_output_on_a_full_disk_is_one_line(python):
    program = "from kytolly.command.entry import entry; entry()"
    flags = ["-u"] if python == "unbuffered" else []
    line = [sys.executable, *flags, "-c", program, "completion", "bash"]
    with open("/dev/full", "w") as full:
        done = subprocess.run(line, stdout=full, stderr=subprocess.PIPE, text=True, cwd=ROOT)
    assert done.returncode == 1 and "Exception ignored" not in done.stderr
    (text,) = done.stderr.splitlines()
    assert text.startswith("kytolly: ")
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(line, stdout=writer, stderr=subprocess.PIPE, text=True, cwd=ROOT)
    os.close(writer)
    assert done.returncode == 1 and not done.stderr


def test_no_standard_output_is_no_fault(monkeypatch):
    monkeypatch.setattr(sys, "stdout", None)  # as after `>&-`
    assert exit_status(lambda: 0) == 0


def test_a_full_disk_of_a_study_is_said(tmp_path, monkeypatch):
    optuna = pytest.importorskip("optuna")

    def full(**settings):
        raise optuna.exceptions.StorageInternalError("(OperationalError) database or disk is full")

    monkeypatch.setattr(optuna, "create_study", full)
    with pytest.raises(optuna.exceptions.StorageInternalError) as error:
        open_study(tmp_path / "n.db", {}, 0)
    assert disk_problem(error.value)


def test_a_run_with_files_missing_is_no_success(tmp_path):
    result = TrainResult(None, [], None, tmp_path, "time", {}, {"best.keras": "No room"})
    with pytest.raises(OSError, match="not all of"):
        result.require_written()
    assert exit_status(result.require_written) == 1
    dataclasses.replace(result, unwritten={}).require_written()
