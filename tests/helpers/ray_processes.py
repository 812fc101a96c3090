"""The processes of Ray that this process has started, and of no other one's cluster."""

import contextlib
from pathlib import Path


def ray_processes(name):
    """Their numbers, the oldest first, of those that show a name such as `EnvActor`."""
    parents, found = {}, []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended
            words = (folder / "stat").read_text().rpartition(")")[2].split()
            parents[folder.name] = words[1]
            if (folder / "cmdline").read_bytes().startswith(f"ray::{name}".encode()):
                found.append(folder.name)
    own = Path("/proc/self").readlink().name

    def is_own(number):
        while number in parents and number != own:
            number = parents[number]
        return number == own

    return sorted(int(number) for number in found if is_own(number))
