"""The best network of a run: a file beside the checkpoints, and its copy in the run's folder."""

from __future__ import annotations

import shutil
import warnings
from pathlib import Path

from kytolly.record.checkpoint import (
    BEST,
    BEST_WEIGHTS,
    FOLDER,
    Restored,
    read_manifest,
)
from kytolly.record.files import checksum, write_file


def place_best(run_dir: Path, name: str) -> Path:
    """Make `best.keras`, or `best.weights.h5`, a copy of the file `name` in `checkpoints/`."""
    source, target = run_dir / FOLDER / name, run_dir / public_name(name)
    if target.is_file() and checksum(target) == checksum(source):
        return target
    return write_file(target, lambda to: shutil.copyfile(source, to))


def restored_best(run_dir: Path, restored: Restored) -> Path | None:
    """The best network that belongs to a checkpoint, in both its places; None where it is lost."""
    sums, _ = read_manifest(restored.path)
    name = next((file for file in sums if file.startswith("best-")), None)
    if name is None:
        return None
    kept, copy = run_dir / FOLDER / name, run_dir / public_name(name)
    if kept.is_file() and checksum(kept) == sums[name]:
        return place_best(run_dir, name)
    if copy.is_file() and checksum(copy) == sums[name]:
        write_file(kept, lambda to: shutil.copyfile(copy, to))
        return copy
    warnings.warn(
        f"{kept} and {copy.name} are damaged: the best network so far is lost, and the next "
        "evaluation begins to look for a new one.",
        stacklevel=2,
    )
    return None


def public_name(name: str) -> str:
    """The name in the run's folder of a file such as `best-100.keras`."""
    return BEST_WEIGHTS if name.endswith(".h5") else BEST
