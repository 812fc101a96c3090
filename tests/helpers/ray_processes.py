"""The processes of a Ray that the tests have started: others may run on this machine as well."""

import contextlib
import os
from pathlib import Path


def ray_processes(name):
    """Ids of this process's own Ray processes that are actors of a class of that name.

    A child of an actor has its name, too, until it runs its own program.
    """
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            process = int(folder.name)
            if is_named(process, name) and not is_named(parent(process), name):
                found += [process] if is_ours(process) else []
    return found


def is_named(process, name):
    """True for a process that Ray has given the name of an actor's class."""
    words = (Path("/proc") / str(process) / "cmdline").read_bytes()
    return words.startswith(f"ray::{name}".encode())


def parent(process):
    """The id of a process's parent."""
    status = (Path("/proc") / str(process) / "stat").read_text()
    return int(status.rpartition(")")[2].split()[1])


def is_ours(process):
    """True for a descendant of this process."""
    while process > 1 and process != os.getpid():
        process = parent(process)
    return process == os.getpid()
