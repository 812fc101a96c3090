"""The processes of a Ray that the tests have started: others may run on this machine as well."""

import contextlib
import os
from pathlib import Path


def ray_processes(name):
    """Ids of this process's own Ray processes that are actors of a class of that name."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            words = (folder / "cmdline").read_bytes()
            if words.startswith(f"ray::{name}".encode()) and is_ours(int(folder.name)):
                found.append(int(folder.name))
    return found


def is_ours(process):
    """True for a descendant of this process."""
    while process > 1 and process != os.getpid():
        status = (Path("/proc") / str(process) / "stat").read_text()
        process = int(status.rpartition(")")[2].split()[1])
    return process == os.getpid()
