"""Runs command lines in children that may write only so many bytes to a file, as on a full disk.

    python -c "from tests.helpers.full_disk import main; main()" < CASES.json

CASES.json is a list of [command line, bytes, folder, fault]. A fault is null, or [n, errno]: from
its n-th change of a file on, Python gets that error in place of each. Each child is forked from
this process, which has imported everything and run nothing, and works in the folder. Of each case a
line of JSON is printed: its exit status and what it wrote to standard error. The limit is the
system's own (RLIMIT_FSIZE), so that it holds for TensorFlow and for other programs too.
"""

import itertools
import json
import os
import resource
import sys
import tempfile
import traceback

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
import keras  # noqa: F401
import matplotlib.backends.backend_agg  # noqa: F401

from kytolly.command.entry import main as run_command
from kytolly.loop import device, host_env_runner  # noqa: F401
from tests.helpers.file_operations import before_operations


def fail_from(first, number):
    """Let every change of a file fail from the `first` one on."""
    changes = itertools.count(1)

    def fail(name):
        if next(changes) >= first:
            raise OSError(number, os.strerror(number))

    before_operations(fail)


def run_limited(line, most_bytes, folder, fault):
    """Exit status and standard error of a command in a child."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        status = 70
        try:
            os.chdir(folder)
            os.close(reader)
            os.dup2(writer, 2)
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            sys.stderr = os.fdopen(2, "w", buffering=1, closefd=False)
            # Some Pythons keep bytecode that such a disk has cut; nobody could import it again.
            sys.dont_write_bytecode = True
            os.environ["PYTHONDONTWRITEBYTECODE"] = "1"  # for the processes that a command starts
            if most_bytes is not None:
                resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, resource.RLIM_INFINITY))
            if fault is not None:
                fail_from(*fault)
            status = run_command(line)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        errors = pipe.read().decode("utf-8", "replace")
    _, status = os.waitpid(child, 0)
    return {"status": os.waitstatus_to_exitcode(status), "errors": errors}


def main():
    """Run the cases of standard input."""
    tempfile.tempdir = None
    for case in json.load(sys.stdin):
        print(json.dumps(run_limited(*case)), flush=True)
