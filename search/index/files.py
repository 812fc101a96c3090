"""Files that strangers may have written: what cannot be used is refused in one line."""

from __future__ import annotations

import functools
import os
import re
import reprlib
import stat
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import ArrayLike

from kytolly.record.files import write_file

MAX_LINE_BYTES = 2**26  # bytes; no document is as long, and a line must fit into memory
# What separates the columns of a run file, ends its lines, or commands a terminal; and halves of
# characters, which JSON can spell and UTF-8 cannot.
NOT_IN_IDS = re.compile(r"[\s\x00-\x1f\x7f-\x9f\ud800-\udfff]")


def write_arrays(path: Path, arrays: Mapping[str, ArrayLike]) -> Path:
    """Write arrays as NumPy's archive, whole or not at all; returns `path`."""

    def write(to: Path) -> None:
        with to.open("wb") as file:  # of a path NumPy changes the ending
            np.savez(file, **arrays)  # pyright: ignore[reportArgumentType]

    return write_file(path, write)


def open_file(path: str | Path, expected: str) -> BinaryIO:
    """A regular file, opened for reading bytes; a pipe or a device is none.

    Raises:
        ValueError: There is no such file, or it cannot be read; the message ends with `expected`.
    """
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise OSError(0, "it is no regular file")
        return Path(path).open("rb")
    except FileNotFoundError:
        problem = "does not exist"
    except OSError as error:
        problem = f"cannot be read ({error.strerror})"
    except ValueError as error:  # a null byte
        problem = f"is no path ({error})"
    raise ValueError(f"{path} {problem}; {expected}.")


def text_lines(path: str | Path, expected: str) -> Iterator[tuple[int, str]]:
    """Line numbers from 1 and the lines that are not blank, without their ends.

    Raises:
        ValueError: As `decoded_lines`.
    """
    for number, line in decoded_lines(path, expected):
        if line.strip():
            yield number, line.rstrip("\r\n")


def decoded_lines(path: str | Path, expected: str) -> Iterator[tuple[int, str]]:
    """Line numbers from 1 and all lines with their ends.

    Raises:
        ValueError: As `open_file`, or a line is too long or not UTF-8; the message names it.
    """
    with open_file(path, expected) as file:
        read_line = functools.partial(file.readline, MAX_LINE_BYTES + 1)
        for number, data in enumerate(iter(read_line, b""), start=1):
            if len(data) > MAX_LINE_BYTES:
                raise ValueError(
                    f"{path}:{number}: longer than {MAX_LINE_BYTES:,} bytes; expected one record "
                    "per line: check that the file has line ends."
                )
            try:
                yield number, data.decode("utf-8-sig" if number == 1 else "utf-8")
            except UnicodeDecodeError as error:
                raise ValueError(
                    f"{path}:{number}: not UTF-8 ({error.reason} at byte {error.start} of the "
                    "line): convert the file to UTF-8."
                ) from None


def read_arrays(path: str | Path, names: Sequence[str]) -> list[np.ndarray]:
    """Arrays of a file that `numpy.savez` wrote. Nothing in it is executed.

    Raises:
        Exception: The file is no such file; zipfile, zlib and numpy each have their own.
    """
    with open_file(path, "expected a file that numpy.savez wrote") as file:
        stored_archive(file)
        file.seek(0)
        with np.load(file, allow_pickle=False) as data:
            return [data[name] for name in names]


def stored_archive(file: BinaryIO) -> zipfile.ZipFile:
    """A zip archive that is not compressed, as NumPy and Keras write them: it unpacks to no more.

    Raises:
        ValueError: It is compressed; zipfile has errors of its own.
    """
    archive = zipfile.ZipFile(file)
    unpacked, size = sum(part.file_size for part in archive.infolist()), os.fstat(file.fileno())
    if unpacked > size.st_size:
        raise ValueError(f"it unpacks to {unpacked:,} bytes and has {size.st_size:,}")
    return archive


def is_unicode(text: str) -> bool:
    """True if a text has no half of a character, which no file and no encoder takes."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def short(value: Any, length: int = 60) -> str:
    """A value for a message: what is long, deep or repeats itself is cut."""
    text = repr(value) if isinstance(value, str) else reprlib.repr(value)
    return text if len(text) <= length else text[: length - 3] + "..."
