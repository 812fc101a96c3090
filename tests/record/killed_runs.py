"""Trains a tiny run in processes that end at their n-th file operation, as kill -9 would end them.

    python killed_runs.py FOLDER KIND POINT...

KIND is an algorithm and a loop, as in dqn-device. A point is how many file operations of the first
process are done before it dies. With 0 it is never killed. Each process is forked from this one,
which has imported everything and run nothing.
"""

import io
import json
import os
import pathlib
import shutil
import signal
import sys
import warnings

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
import tensorflow as tf

from kytolly.trainer import Trainer

COMMON = {
    "xla": False,
    "total_env_steps": 120,
    "hidden_units": [4],
    "learning_rate": 0.01,
    "evaluation_episodes": 2,
    "final_evaluation_episodes": 2,
    "log_interval_env_steps": 20,
    "evaluation_interval_env_steps": 20,
    "checkpoint_interval_env_steps": 40,
    "early_stop_patience": 50,
}
OWN = {
    "dqn": {
        "batch_size": 4,
        "replay_capacity": 64,
        "warmup_env_steps": 8,
        "train_interval_env_steps": 4,
        "updates_per_interval": 1,
        "n_step": 2,
    },
    "ppo": {
        "num_envs": 2,
        "rollout_steps": 10,
        "num_minibatches": 2,
        "epochs": 2,
        "normalize_observations": True,
        "normalize_rewards": True,
    },
}


def count_operations(die_at):
    """Let this process die at an operation that changes a file; returns the list of them."""
    done = []

    def counted(function, changes=lambda *args, **options: True):
        def call(*args, **options):
            if changes(*args, **options):
                done.append(function.__name__)
                if len(done) == die_at:
                    os.kill(os.getpid(), signal.SIGKILL)
            return function(*args, **options)

        return call

    def opens_to_write(file, mode="r", *args, **options):
        return any(letter in mode for letter in "wa+x")

    for name in ("replace", "fsync", "unlink", "truncate", "mkdir"):
        setattr(os, name, counted(getattr(os, name)))
    io.open = counted(io.open, opens_to_write)
    pathlib.io.open = io.open
    tf.train.Checkpoint.write = counted(tf.train.Checkpoint.write)
    tf.summary.experimental.write_raw_pb = counted(tf.summary.experimental.write_raw_pb)
    return done


def config(kind):
    algorithm, loop = kind.split("-")
    return {"algorithm": algorithm, "loop": loop, **COMMON, **OWN[algorithm]}


def train(folder, kind, die_at=0):
    """Train or resume the run in a child; returns how it ended and its number of operations."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        warnings.simplefilter("ignore")
        status = 1
        try:
            done = count_operations(die_at)
            Trainer(folder, progress=False).train(
                config(kind), "CartPole-v1", resume=(folder / "config.yaml").exists()
            )
            os.write(writer, str(len(done)).encode())
            status = 0
        finally:
            sys.stderr.flush()
            os._exit(status)
    os.close(writer)
    with os.fdopen(reader) as file:
        count = file.read()
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code in (0, -signal.SIGKILL), f"{folder} ended with {code}"
    return code, int(count or 0)


def kill_and_resume(folder, kind, point, again=None):
    """Kill a run at a point (and its continuation at another); resume it to its end."""
    code, _ = train(folder, kind, point)
    assert code == -signal.SIGKILL, f"there is no operation {point}"
    if again:
        train(folder, kind, again)
    assert train(folder, kind)[0] == 0


if __name__ == "__main__":
    home, kind = pathlib.Path(sys.argv[1]), sys.argv[2]
    _, count = train(home / "whole", kind)
    points = [int(word) for word in sys.argv[3:]] or range(1, count + 1)
    for point in points:
        if point <= count:
            kill_and_resume(home / f"killed-{point}", kind, point)
    kill_and_resume(home / "killed-twice", kind, 2 * count // 3, count // 4)
    times = {str(p): p.stat().st_mtime_ns for p in (home / "whole").rglob("*") if p.is_file()}
    (home / "times.json").write_text(json.dumps(times))
    shutil.copytree(home / "whole", home / "before")
    train(home / "whole", kind)  # resumed at its end
    print(count)
