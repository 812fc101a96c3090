"""Writes files whole: after a crash at any moment a file is the old one or the new one."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

PARTIAL = ".partial-"  # begins the name of a file that is being written


def write_file(path: Path, write: Callable[[Path], Any]) -> Path:
    """Write a file beside `path`, bring it to the disk and put it in its place; returns `path`.

    Args:
        path: The file; its folder exists.
        write: Writes the content to the path that it is given.
    """
    partial = path.with_name(f"{PARTIAL}{path.name}")
    try:
        write(partial)
        sync(partial)
        os.replace(partial, path)
    except BaseException:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)
        raise
    sync(path.parent)
    return path


def write_text(path: Path, text: str) -> Path:
    """Write a text file in UTF-8, as it is given, whole or not at all; returns `path`."""
    return write_file(path, lambda to: to.write_text(text, encoding="utf-8", newline=""))


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
