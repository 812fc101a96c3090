"""The state of a run on disk: its checkpoints, and its best network as a Keras file."""

from __future__ import annotations

import contextlib
import json
import logging
import re
import shutil
import warnings
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from kytolly.record.files import (
    PARTIAL,
    checksum,
    path_without_pattern,
    sync,
    write_file,
    write_text,
)

FOLDER = "checkpoints"
BEST = "best.keras"
MAX_LIST_BYTES = 2**28  # of a checkpoint's JSON file, with the history of a run
BEST_WEIGHTS = "best.weights.h5"  # only where Keras cannot save the model itself

OWN_FILE = re.compile(r"(ckpt|best)-[0-9][\w.-]*", re.ASCII)  # in the folder of the checkpoints
# What a run writes there, and what a kill leaves of it: nothing else is removed.
ENDINGS = r"(\.json|\.index|\.data-\d+-of-\d+|\.keras|\.weights\.h5)"
REMOVABLE = re.compile(rf"(ckpt|best)-(\d+){ENDINGS}?(_temp|\.tempstate\d+)?", re.ASCII)
# What TensorFlow raises for files that are cut off or altered, and for values that do not fit.
DAMAGE = (tf.errors.OpError, OSError, RuntimeError, IndexError, UnicodeDecodeError)
MISMATCH = (tf.errors.InvalidArgumentError, AssertionError, ValueError, TypeError)


class Restored(NamedTuple):
    """The state that a run continues from.

    Attributes:
        path: The checkpoint, without the endings of its files.
        host_state: What was saved beside the tensors.
    """

    path: str
    host_state: dict[str, Any]


def write_checkpoint(
    checkpoint: tf.train.Checkpoint | None,
    run_dir: Path,
    env_steps: int,
    keep: int,
    host_state: Mapping[str, Any] | None = None,
    best: str | None = None,
) -> None:
    """Write `checkpoints/ckpt-N` after N env steps, then remove all but the newest `keep`.

    `ckpt-N.json` is written last and makes it complete: it holds the checksums and the host state.

    Args:
        checkpoint: The tensors; None where those of this env step are on disk already.
        run_dir: The run's folder, which exists.
        env_steps: N.
        keep: Checkpoints that stay.
        host_state: What belongs to this moment and is no tensor, as JSON can hold it.
        best: Name of the file in `checkpoints/` with the best network so far.
    """
    folder = run_dir / FOLDER
    name = f"ckpt-{env_steps}"
    folder.mkdir(exist_ok=True)
    host_text = json.dumps(host_state)  # fails, if it does, before anything is touched
    if checkpoint is not None:
        remove(path for path in own_files(folder, name) if path.is_dir())  # a stranger's
        (folder / f"{name}.json").unlink(missing_ok=True)
        try:
            checkpoint.write(str(folder / name))
        except BaseException:
            remove(own_files(folder, name))
            raise
    files = [folder / f"{name}.index", *sorted(folder.glob(f"{name}.data-*"))]
    for path in files:
        sync(path)
    files += [folder / best] if best else []
    sums = json.dumps({path.name: checksum(path) for path in files})
    write_text(folder / f"{name}.json", f'{{"files": {sums},\n "host_state": {host_text}}}\n')
    prune(folder, env_steps, keep)


def complete_checkpoint(trackables: Mapping[str, Any]) -> tf.train.Checkpoint:
    """A checkpoint of the objects, and of every variable of the Keras layers within them.

    TensorFlow does not follow the lists of layers that a Keras model holds: it would leave their
    weights out, and assert_consumed() would not miss them. So they are named once more.
    """
    variables: dict[str, list[tf.Variable]] = {}
    seen: set[int] = set()

    def visit(path: str, value: Any) -> None:
        if id(value) in seen:
            return
        seen.add(id(value))
        if isinstance(value, keras.Layer):
            variables[path] = [variable.value for variable in value.variables]
        elif isinstance(value, tf.Module):
            for name, item in sorted(vars(value).items()):
                visit(f"{path}.{name}", item)
        elif isinstance(value, Mapping):
            for name, item in value.items():
                visit(f"{path}.{name}", item)
        elif isinstance(value, (list, tuple)):
            for index, item in enumerate(value):
                visit(f"{path}.{index}", item)

    visit("state", trackables)
    return tf.train.Checkpoint(
        **trackables, **({"keras_variables": variables} if variables else {})
    )


def is_finite(network: Any) -> bool:
    """True where every weight of a Keras model is a number."""
    return all(np.isfinite(weight).all() for weight in network.get_weights())


def checkpoints(folder: Path) -> list[tuple[int, str]]:
    """Env steps and path of every complete checkpoint in a folder, the newest first."""
    names = (re.fullmatch(r"(ckpt-(\d+))\.json", path.name) for path in folder.glob("*.json"))
    return sorted(((int(n[2]), str(folder / n[1])) for n in names if n), reverse=True)


def prune(folder: Path, newest: int, keep: int) -> None:
    """Remove all but the newest `keep` checkpoints up to env step `newest`.

    Later ones go too: the run was resumed from an earlier one. So do best networks that no
    checkpoint names any more, and what killed writes left.
    """
    kept = [pair for pair in checkpoints(folder) if pair[0] <= newest][:keep]
    lines = [f'model_checkpoint_path: "ckpt-{newest}"']
    lines += [f'all_model_checkpoint_paths: "{Path(path).name}"' for _, path in reversed(kept)]
    text = "\n".join(lines) + "\n"  # what tf.train.latest_checkpoint() reads
    listing = folder / "checkpoint"
    if not listing.is_file() or listing.read_text(encoding="utf-8") != text:
        write_text(listing, text)
    steps = {step for step, _ in kept}
    named = set()
    for _, path in kept:
        with contextlib.suppress(OSError):  # a damaged one names nothing
            named |= set(read_manifest(path)[0])
    for path in own_files(folder):
        match = REMOVABLE.fullmatch(path.name)
        kept = match and (path.name in named or (match[1] == "ckpt" and int(match[2]) in steps))
        if not kept:
            remove([path])


def own_files(folder: Path, name: str | None = None) -> list[Path]:
    """The files of all checkpoints, or of the one of that name, with what killed writes left."""
    return [
        path
        for path in folder.glob("*")  # none where the folder is gone
        if (match := REMOVABLE.fullmatch(path.name.removeprefix(PARTIAL)))
        and name in (None, f"{match[1]}-{match[2]}")
    ] + ([] if name else list(folder.glob(f"{PARTIAL}checkpoint")))


def remove(paths: Iterable[Path]) -> None:
    """Remove files and folders, where that is possible."""
    for path in list(paths):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)


def read_manifest(path: str) -> tuple[dict[str, str], dict[str, Any]]:
    """The checksums by file name, and the host state, of a checkpoint; OSError where damaged.

    A name is one of a file in the folder of the checkpoints, or nothing could be written there.
    """
    try:
        file = Path(f"{path}.json")
        if not file.is_file() or file.stat().st_size > MAX_LIST_BYTES:  # a pipe would never end
            raise ValueError
        values = json.loads(file.read_text(encoding="utf-8"))
        sums, host_state = dict(values["files"]), dict(values["host_state"] or {})
        if all(OWN_FILE.fullmatch(name) for name in sums):
            return sums, host_state
    except (ValueError, KeyError, TypeError, RecursionError):
        pass
    raise OSError(f"{Path(path).name}.json is no list of checksums")


def check_files(path: str) -> dict[str, Any]:
    """The host state of a checkpoint; OSError where its files are not those that were written.

    The best network is left out, since there are two copies of it.
    """
    sums, host_state = read_manifest(path)
    for name in (name for name in sums if name.startswith("ckpt-")):
        file = Path(path).with_name(name)
        if not file.is_file():
            raise OSError(f"{name} is missing")
        if checksum(file) != sums[name]:
            raise OSError(f"{name} does not have the checksum with which it was written")
    return host_state


def save_network(network: Any, folder: Path, name: str = "best") -> Path:
    """Write a Keras model to `best.keras`, whole or not at all; returns the path.

    Where Keras cannot save the model, since it has no get_config(), its weights go to
    `best.weights.h5`, with a warning. `name` takes the place of "best".
    """
    try:
        return write_file(folder / f"{name}.keras", network.save)
    except (NotImplementedError, TypeError) as error:
        reason = " ".join(str(error).split(". ")[0].split())
        warnings.warn(
            f"{BEST} cannot be written ({reason}): only the weights are kept, in {BEST_WEIGHTS}. "
            f"Give {type(network).__name__} a get_config() and train again to play this run "
            "with `kytolly evaluate`.",
            stacklevel=2,
        )
        return write_file(folder / f"{name}.weights.h5", network.save_weights)


def restore(
    run_dir: str | Path, trackables: Mapping[str, Any], changed: Sequence[str] = ()
) -> Restored:
    """Bring objects to the newest state of a run that can be read.

    Args:
        run_dir: The run's folder.
        trackables: The objects, under the names with which they were saved.
        changed: The settings that differ from the saved run's, in words, for the error message.

    Returns:
        The checkpoint. Every value in it was used, and every variable of the objects has its
        value from there.

    Raises:
        ValueError: There is no checkpoint, none can be read, or another configuration wrote it.
    """
    folder = Path(run_dir) / FOLDER
    known = checkpoints(folder)
    if not known:
        raise ValueError(
            f"{folder} holds no checkpoint, expected files such as ckpt-1000.json: resume the "
            "folder of a run that has trained, or start a new run."
        )
    damaged: list[str] = []
    for _, path in known:
        try:
            host_state = check_files(path)
            _read(path, trackables, changed)
        except DAMAGE as error:
            damaged.append(f"{Path(path).name} ({short_reason(error, 160)})")
            continue
        if damaged:
            warnings.warn(
                f"Damaged in {folder}: {', '.join(damaged)}. The run continues from the previous "
                f"checkpoint, {Path(path).name}.",
                stacklevel=2,
            )
        return Restored(path, host_state)
    raise ValueError(
        f"No checkpoint in {folder} can be read: {', '.join(damaged)}. Copy the folder back from "
        "where it came from, or start a new run."
    )


def _read(path: str, trackables: Mapping[str, Any], changed: Sequence[str]) -> None:
    """Read one checkpoint; ValueError where its values and the objects do not match."""
    from kytolly.record.dead_weights import without_dead_weights

    tf.get_logger().addFilter(no_list_of_values)
    network = getattr(getattr(trackables.get("agent"), "policy", None), "network", None)
    try:
        with (
            path_without_pattern(Path(path).parent) as folder,
            without_dead_weights(str(folder / Path(path).name), network) as readable,
        ):
            complete_checkpoint(trackables).read(readable).assert_consumed()
    except UnicodeDecodeError:  # a ValueError, but one that speaks of damage
        raise
    except MISMATCH as error:
        reason = "; ".join([*changed, short_reason(error, 300)])
        raise ValueError(
            f"{path} was saved by another configuration: {reason}. Resume with the settings in "
            "the run's config.yaml and the same environment and model, or start a new run."
        ) from None


def no_list_of_values(record: logging.LogRecord) -> bool:
    """Filter what TensorFlow logs after a checkpoint could not be read.

    It logs one line for each value, some time after the error that already said why.
    """
    message = record.getMessage()
    return not (
        message.startswith("Value in checkpoint could not be found in the restored object")
        or "is being deleted with unrestored values" in message
    )


def short_reason(error: BaseException, length: int) -> str:
    """The text of an error without line breaks and TensorFlow's internal names, cut to `length`."""
    text = re.sub(r"\{\{.*?\}\}|\[Op:.*?\]|: attributes \{.*", "", str(error), flags=re.DOTALL)
    words = " ".join(text.split()).rstrip(".") or type(error).__name__
    return words if len(words) <= length else words[: length - 1] + "…"


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
