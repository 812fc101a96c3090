"""Trains a tiny run in processes that end at their n-th file operation, as kill -9 would end them.

    python killed_runs.py FOLDER KIND [twice]

KIND is an algorithm and a loop, as in dqn-device. A run is killed, and so is its continuation.
Without `twice`, one that is not killed is also copied before each of its file operations: that is
what a kill leaves, at half the cost. Each process is forked from this one, which has imported
everything and run nothing.
"""

import json
import os
import pathlib
import shutil
import signal
import sys
import traceback
import warnings

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
import gymnasium
import matplotlib.backends.backend_agg  # noqa: F401

from kytolly.loop import device, host_env_runner  # noqa: F401
from kytolly.trainer import Trainer
from tests.helpers.file_operations import before_operations
from tests.record.runs import COMMON, OWN

SHORT = {
    "xla": False,
    "total_env_steps": 120,
    "log_interval_env_steps": 20,
    "evaluation_interval_env_steps": 20,
    "checkpoint_interval_env_steps": 40,
    "early_stop_patience": 50,
}
SHORT_OF = {"dqn": {"batch_size": 4, "n_step": 2}, "ppo": {}}


def config(kind):
    algorithm, loop = kind.split("-")
    return (
        COMMON
        | OWN[algorithm]
        | SHORT
        | SHORT_OF[algorithm]
        | {"algorithm": algorithm, "loop": loop}
    )


def begin(folder, cfg, prepare, env="CartPole-v1", **options):
    """Train or resume a run in a child; returns its id and a file of the lines that it sends.

    `prepare` is called in the child with the function that sends a line.
    """
    reader, writer = os.pipe()
    child = os.fork()
    if child:
        os.close(writer)
        return child, open(reader, "rb", buffering=0)
    warnings.simplefilter("ignore")
    status = 1
    try:
        prepare(lambda line: os.write(writer, f"{line}\n".encode()))
        resume = (folder / "config.yaml").exists()
        Trainer(folder, progress=False).train(cfg, env, resume=resume, **options)
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)


def ended(child, lines):
    """How a child ended, and the lines that it sent until then."""
    with lines:
        rest = lines.read().decode().split()
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code in (0, -signal.SIGKILL), f"a run ended with {code}"
    return code, rest


def train(folder, kind, die_at=0, copies=None):
    """Train or resume the run; returns how it ended and its number of operations.

    It dies at operation `die_at`, or is copied before each, to `copies/killed-N`.
    """

    def prepare(send):
        done = []

        def count(name):
            done.append(name)
            send(name)
            if len(done) == die_at:
                os.kill(os.getpid(), signal.SIGKILL)

        before_operations(count)

    def prepare_copies(send):
        done, own = [], []

        def copy(name):
            if own:  # copying is no operation of the run
                return
            done.append(name)
            send(name)
            own.append(True)
            if folder.exists():
                shutil.copytree(folder, copies / f"killed-{len(done)}")
            own.clear()

        before_operations(copy)

    code, operations = ended(*begin(folder, config(kind), prepare_copies if copies else prepare))
    return code, len(operations)


def kill_and_resume(folder, kind, point, again):
    """Kill a run at a point, and its continuation at another; resume it to its end."""
    code, _ = train(folder, kind, point)
    assert code == -signal.SIGKILL, f"there is no operation {point}"
    train(folder, kind, again)
    assert train(folder, kind)[0] == 0


if __name__ == "__main__":
    home, kind = pathlib.Path(sys.argv[1]), sys.argv[2]
    copies = None if "twice" in sys.argv else home
    gymnasium.make("CartPole-v1")  # imports what a child would import otherwise
    _, count = train(home / "whole", kind, copies=copies)
    for point in range(1, count + 1) if copies else ():
        assert train(home / f"killed-{point}", kind)[0] == 0
    kill_and_resume(home / "killed-twice", kind, 2 * count // 3, count // 4)
    times = {str(p): p.stat().st_mtime_ns for p in (home / "whole").rglob("*") if p.is_file()}
    (home / "times.json").write_text(json.dumps(times))
    shutil.copytree(home / "whole", home / "before")
    train(home / "whole", kind)  # resumed at its end
    print(count)
