"""One run on a node of a cluster: its process, and what of its folder the driver lacks.

Only a node's process makes a `NodeRun`. Importing this loads no TensorFlow.
"""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from subprocess import Popen
from typing import NamedTuple

from kytolly.experiment.processes import start_process
from kytolly.record.files import PARTIAL, open_regular
from kytolly.record.run_folder import LOCK

Files = Mapping[str, bytes]  # contents by path within a folder; "" is a file itself


class Order(NamedTuple):
    """What a node shall run.

    Attributes:
        words: The command line, with the paths of the driver.
        folder: What the process writes into, as the command line names it.
        members: The folders in `folder` that it writes, as paths in it; none: all of `folder`.
        inputs: What the driver has under each path of the command line.
        log: A file for what the process prints, on a disk that all share; None where none is
            shared: then `words` are changed to paths of the node.
        threads: TensorFlow's.
        cwd: The driver's current folder, which the node may have, too.
        variables: Environment variables.
    """

    words: Sequence[str]
    folder: str
    members: Sequence[str]
    inputs: Mapping[str, Files]
    log: str | None
    threads: int
    cwd: str
    variables: Mapping[str, str]


class Changes(NamedTuple):
    """What has happened to a run since the last changes.

    Attributes:
        files: Path within the order's folder, whether to append, contents: the oldest first.
        names: All files of the folder.
        log: What the process has printed.
        status: Its exit status; None while it runs.
    """

    files: list[tuple[str, bool, bytes]]
    names: set[str]
    log: bytes
    status: int | None


class NodeRun:
    """The process of a run on this node, in a temporary folder or on a disk that all share.

    One is watched at a time. As each has a process, nothing of it stays when the next begins.
    """

    def is_there(self) -> None:
        """Answer, once the node has room for this."""

    def start(self, order: Order) -> Changes:
        """Start the process.

        Raises:
            ValueError: The node lacks the folder that all nodes should share.
        """
        self._folder = Path(tempfile.mkdtemp(prefix="kytolly-"))
        self._sent: dict[str, tuple[int, int, int]] = {}  # inode, size and time of each file
        self._events: dict[str, bytes] = {}  # contents of TensorBoard's files that were sent
        self._log_position = 0
        self._places: dict[str, str] = {}  # the node's own paths, and the driver's
        self._members = order.members
        os.environ.update(order.variables)
        self._shared = order.log is not None
        if order.log is not None:
            log, words = Path(order.log), list(order.words)
            if not log.parent.is_dir():
                raise ValueError(
                    f"the node {os.uname().nodename} has no folder {log.parent}, expected one on a "
                    "disk that all nodes share. Mount it there, or leave --cluster-dir out."
                )
        else:
            log = self._folder / "log"
            words = [self._place(word, order) for word in order.words]
        self._log, self._home = log, Path(self._place(order.folder, order))
        cwd = Path(order.cwd) if os.path.isdir(order.cwd) else self._folder
        with open(log, "ab", opener=open_regular) as file:
            self._process: Popen = start_process(words, order.threads, file, cwd)
        return self.changes()

    def changes(self) -> Changes:
        """What is new. Files come in the order in which they were written, as they name others."""
        status = self._process.poll()  # first: what is read afterwards is then complete
        if self._shared:
            return Changes([], set(), b"", status)
        with self._log.open("rb") as log:
            log.seek(self._log_position)
            text = log.read()
        text = text if status is not None else text[: text.rfind(b"\n") + 1]
        self._log_position += len(text)
        found = sorted(
            (stat.st_mtime_ns, name, stat)
            for name, stat in _files_with_stat(self._home).items()
            if within(name, self._members)
        )
        files = []
        for _, name, stat in found:
            mark = (stat.st_ino, stat.st_size, stat.st_mtime_ns)
            if self._sent.get(name) == mark:
                continue
            try:
                content = (self._home / name).read_bytes()[: stat.st_size]
            except FileNotFoundError:  # removed since
                continue
            # TensorBoard's file grows: its records, with their times, are sent once.
            begin = self._events.get(name, b"")
            grows = bool(begin) and content.startswith(begin)
            if "events." in name:
                self._events[name] = content
            content = content[len(begin) :] if grows else content
            named = Path(name).name in ("config.yaml", "result.json")
            files.append((name, grows, self._as_driver_says(content) if named else content))
            self._sent[name] = mark
        return Changes(files, {name for _, name, _ in found}, self._as_driver_says(text), status)

    def stop(self) -> None:
        """Ask the process to save its run and to end."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)

    def clear(self) -> None:
        """Remove the temporary folder of a process that has ended."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def _place(self, word: str, order: Order) -> str:
        """The node's own path for a path of the driver; another word is itself."""
        if self._shared or word not in (order.folder, *order.inputs):
            return word
        place = self._folder / str(len(order.inputs) + 1)
        if word in order.inputs:
            place = self._folder / str(list(order.inputs).index(word))
        place = place / Path(word).name
        for name, content in order.inputs.get(word, {}).items():
            file = place / name if name else place
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)
        place.parent.mkdir(exist_ok=True)
        self._places[str(place)] = word
        return str(place)

    def _as_driver_says(self, text: bytes) -> bytes:
        """A text with the paths of the driver."""
        for place, word in self._places.items():
            text = text.replace(place.encode(), word.encode())
        return text


def within(name: str, members: Sequence[str]) -> bool:
    """True for the path of a file in one of the members' folders, if there are members."""
    return not members or any(name.startswith(f"{member}/") for member in members)


def read_tree(path: Path, is_wanted: Callable[[str], bool] = bool) -> Files:
    """The contents of a file, or of the wanted files in a folder; nothing where neither exists.

    Args:
        path: It.
        is_wanted: Says whether a path in the folder is wanted; each is where this is not given.
    """
    if path.is_file():
        return {"": path.read_bytes()}
    return {name: (path / name).read_bytes() for name in _files_with_stat(path) if is_wanted(name)}


def _files_with_stat(folder: Path) -> dict[str, os.stat_result]:
    """The files in a folder by their path in it, but for those that are being written."""
    found = {}
    for path in folder.rglob("*"):
        if path.name == LOCK or path.name.startswith(PARTIAL) or "temp" in path.suffix:
            continue
        try:
            if path.is_file() and not path.is_symlink():
                found[str(path.relative_to(folder))] = path.stat()
        except FileNotFoundError:
            continue
    return found
