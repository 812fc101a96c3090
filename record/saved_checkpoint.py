"""Looks at the files of a checkpoint, which may be damaged or lie in a folder of any name."""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

import tensorflow as tf

from kytolly.record.checkpoint import read_manifest
from kytolly.record.files import checksum

# What TensorFlow raises for files that are cut off or altered.
DAMAGE = (tf.errors.OpError, OSError, RuntimeError, IndexError, UnicodeDecodeError)


def check_files(path: str) -> dict[str, object]:
    """The session's state in a checkpoint; OSError where its files are not those written.

    The best network is left out, since there are two copies of it.
    """
    sums, session_state = read_manifest(path)
    for name in (name for name in sums if name.startswith("ckpt-")):
        file = Path(path).with_name(name)
        if not file.is_file():
            raise OSError(f"{name} is missing")
        if checksum(file) != sums[name]:
            raise OSError(f"{name} does not have the checksum with which it was written")
    return session_state


@contextlib.contextmanager
def path_without_pattern(folder: Path) -> Iterator[Path]:
    """The folder under a name that TensorFlow, when it reads, cannot take for a pattern.

    It looks for a checkpoint's files by `glob`, in which a run called `run[1]` does not match
    itself. Such a folder gets a link in a temporary folder, for as long as the block runs.
    """
    if os.name == "nt" or not set("*?[\\") & set(str(folder)):
        yield folder
        return
    with tempfile.TemporaryDirectory(prefix="kytolly-") as temporary:
        link = Path(temporary) / "run"
        link.symlink_to(folder.absolute(), target_is_directory=True)
        yield link


def short_reason(error: BaseException, length: int) -> str:
    """The text of an error without line breaks and TensorFlow's internal names, cut to `length`."""
    text = re.sub(r"\{\{.*?\}\}|\[Op:.*?\]|: attributes \{.*", "", str(error), flags=re.DOTALL)
    words = " ".join(text.split()).rstrip(".") or type(error).__name__
    return words if len(words) <= length else words[: length - 1] + "…"
