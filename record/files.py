"""Writes files whole: after a crash at any moment a file is the old one or the new one."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import stat
from collections.abc import Callable
from pathlib import Path

PARTIAL = ".partial-"  # begins the name of a file that is being written


def write_file(path: Path, write: Callable[[Path], object]) -> Path:
    """Write a file beside `path`, bring it to the disk and put it in its place; returns `path`.

    Args:
        path: The file; its folder exists.
        write: Writes the content to the path that it is given.
    """
    partial = path.with_name(f"{PARTIAL}{path.name}")
    partial.unlink(missing_ok=True)  # what a kill left, or a link: it would be written through
    try:
        write(partial)
        sync(partial)
        os.replace(partial, path)
    except BaseException as error:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.filename == str(partial):
            error.filename = str(path)
        raise
    sync(path.parent)
    return path


def write_text(path: Path, text: str) -> Path:
    """Write a text file in UTF-8, as it is given, whole or not at all; returns `path`."""
    return write_file(path, lambda to: to.write_text(text, encoding="utf-8", newline=""))


def write_output(path: Path, write: Callable[[Path], object]) -> Path:
    """Write what a user names as an output, whole or not at all; returns `path`.

    A device or a pipe, and whatever /dev/stdout is, is written as it is and never replaced; of a
    link, what it leads to is written.
    """
    is_device = path.absolute().parts[:2] in ((os.sep, "dev"), (os.sep, "proc"))
    if not is_device and (path.is_file() or not path.exists()):
        write_file(path.resolve(), write)
    else:
        write(path)
    return path


def open_regular(path: str, flags: int) -> int:
    """Open a file of a run, as an opener of `open`; OSError where the name is a link.

    What a stranger's folder links to lies elsewhere, and is not ours to change.
    """
    here = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    number = os.open(path, flags | here, 0o666)
    if not stat.S_ISREG(os.fstat(number).st_mode):
        os.close(number)
        raise OSError(errno.EINVAL, "it is no regular file", str(path))
    return number


def read_regular(path: Path, max_bytes: int) -> bytes:
    """The contents of a file, which may be a stranger's.

    Raises:
        FileNotFoundError: There is no file; a pipe, which would never end, is none.
        ValueError: It is larger.
    """
    if not path.is_file():
        raise FileNotFoundError(errno.ENOENT, "there is no such file", str(path))
    with path.open("rb") as file:
        content = file.read(max_bytes + 1)
    if len(content) > max_bytes:
        raise ValueError(f"has more than {max_bytes:,} bytes")
    return content


def refuse_links(folder: Path) -> None:
    """ValueError where a folder to be written in has a link: writes would change what is elsewhere.

    A missing folder has none; OSError where it cannot be read.
    """
    with contextlib.suppress(FileNotFoundError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_symlink():
                from kytolly.config.words import path_text

                raise ValueError(
                    f"{path_text(entry.path)} is a link, expected a file or folder of the run: "
                    "training would write to where it leads. Put what it links to in its place."
                )


def sync(path: Path) -> None:
    """Bring a file, or the names in a folder, to the disk: a power cut does not undo them."""
    is_folder = path.is_dir()
    if is_folder and os.name == "nt":  # Windows has no such call for folders
        return
    number = os.open(path, os.O_RDONLY if is_folder else os.O_RDWR)
    try:
        os.fsync(number)
    finally:
        os.close(number)


def checksum(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal digits."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()
