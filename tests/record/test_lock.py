import os
import signal
import subprocess
import sys

import pytest

from kytolly.config.dqn import DQNConfig
from kytolly.record.run_folder import RunFolder
from kytolly.record.saved_run import SavedRun

HOLD = """
import sys, time
from pathlib import Path
from kytolly.record.run_folder import RunFolder
while not Path(sys.argv[2]).exists():
    time.sleep(0.001)
try:
    folder = RunFolder.create(sys.argv[1], "dqn")
except ValueError as error:
    print(error, flush=True)
else:
    print("won", flush=True)
    (folder.path / "config.yaml").write_text("a: 1")
    time.sleep(60)
"""


def start(folder, go):
    return subprocess.Popen(
        [sys.executable, "-c", HOLD, folder, go], stdout=subprocess.PIPE, text=True
    )


def test_of_several_starts_at_once_exactly_one_wins_and_its_death_frees_the_folder(tmp_path):
    run, go = tmp_path / "run", tmp_path / "go"
    children = [start(run, go) for _ in range(4)]
    go.touch()
    try:
        words = [child.stdout.readline() for child in children]
        assert words.count("won\n") == 1
        assert all("in use by another" in w or "not empty" in w for w in words if w != "won\n")
        with pytest.raises(ValueError, match="is in use by another process"):
            RunFolder(SavedRun.existing(run).path).lock_folder()
        winner = children[words.index("won\n")]
        os.kill(winner.pid, signal.SIGKILL)
        winner.wait()
        RunFolder(
            SavedRun.existing(run).path
        ).lock_folder().release()  # the lock file that it left means nothing
    finally:
        for child in children:
            child.kill()
            child.wait()
            child.stdout.close()


def test_a_start_that_was_killed_before_it_wrote_anything_does_not_block_the_next(tmp_path):
    (tmp_path / ".lock").touch()
    (tmp_path / ".partial-config.yaml").write_text("half")
    with RunFolder.create(tmp_path, "dqn") as folder:
        folder.write_config(DQNConfig(), "CartPole-v1", "device")
    with pytest.raises(ValueError, match="not empty"):
        RunFolder.create(tmp_path, "dqn")
