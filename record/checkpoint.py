"""Writes the state of a run: its checkpoints, and its best network as a Keras file."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

from kytolly.record.files import PARTIAL, checksum, read_regular, sync, write_file, write_text

FOLDER = "checkpoints"
BEST = "best.keras"
MAX_LIST_BYTES = 2**28  # of a checkpoint's JSON file, with the history of a run
BEST_WEIGHTS = "best.weights.h5"  # only where Keras cannot save the model itself
# A file in the folder of the checkpoints.
FILE_NAME = re.compile(r"(ckpt|best)-[0-9][\w.-]*", re.ASCII)
# What a run writes there, and what a kill leaves of it: nothing else is removed.
ENDINGS = r"(\.json|\.index|\.data-\d+-of-\d+|\.keras|\.weights\.h5)"
REMOVABLE = re.compile(rf"(ckpt|best)-(\d+){ENDINGS}?(_temp|\.tempstate\d+)?", re.ASCII)


def write_checkpoint(
    checkpoint: tf.train.Checkpoint | None,
    run_dir: Path,
    env_steps: int,
    keep: int,
    session_state: Mapping[str, object] | None = None,
    best: str | None = None,
) -> None:
    """Write `checkpoints/ckpt-N` after N env steps, then remove all but the newest `keep`.

    `ckpt-N.json` is written last and makes it complete: it holds checksums and the session's state.

    Args:
        checkpoint: The tensors; None where those of this env step are on disk already.
        run_dir: The run's folder, which exists.
        env_steps: N.
        keep: Checkpoints that stay.
        session_state: What belongs to this moment and is no tensor, as JSON can hold it.
        best: Name of the file in `checkpoints/` with the best network so far.
    """
    folder = run_dir / FOLDER
    name = f"ckpt-{env_steps}"
    folder.mkdir(exist_ok=True)
    state_text = json.dumps(session_state)  # fails, if it does, before anything is touched
    if checkpoint is not None:
        remove(path for path in checkpoint_files(folder, name) if path.is_dir())  # a stranger's
        (folder / f"{name}.json").unlink(missing_ok=True)
        try:
            checkpoint.write(str(folder / name))
        except BaseException:
            remove(checkpoint_files(folder, name))
            raise
    files = [folder / f"{name}.index", *sorted(folder.glob(f"{name}.data-*"))]
    for path in files:
        sync(path)
    files += [folder / best] if best else []
    sums = json.dumps({path.name: checksum(path) for path in files})
    write_text(folder / f"{name}.json", f'{{"files": {sums},\n "host_state": {state_text}}}\n')
    prune(folder, env_steps, keep)


def complete_checkpoint(trackables: Mapping[str, object]) -> tf.train.Checkpoint:
    """A checkpoint of the objects, and of every variable of the Keras layers within them.

    TensorFlow does not follow the lists of layers that a Keras model holds: it would leave their
    weights out, and assert_consumed() would not miss them. So they are named once more.
    """
    variables: dict[str, list[tf.Variable]] = {}
    seen: set[int] = set()

    def visit(path: str, value: object) -> None:
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


def is_finite(network: keras.Model) -> bool:
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
    staying = [pair for pair in checkpoints(folder) if pair[0] <= newest][:keep]
    lines = [f'model_checkpoint_path: "ckpt-{newest}"']
    lines += [f'all_model_checkpoint_paths: "{Path(path).name}"' for _, path in reversed(staying)]
    text = "\n".join(lines) + "\n"  # what tf.train.latest_checkpoint() reads
    listing = folder / "checkpoint"
    if not listing.is_file() or listing.read_text(encoding="utf-8") != text:
        write_text(listing, text)
    steps = {step for step, _ in staying}
    named: set[str] = set()
    for _, path in staying:
        with contextlib.suppress(OSError):  # a damaged one names nothing
            named |= set(read_manifest(path)[0])
    for path in checkpoint_files(folder):
        match = REMOVABLE.fullmatch(path.name)
        stays = match and (path.name in named or (match[1] == "ckpt" and int(match[2]) in steps))
        if not stays:
            remove([path])


def checkpoint_files(folder: Path, name: str | None = None) -> list[Path]:
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


def read_manifest(path: str) -> tuple[dict[str, str], dict[str, object]]:
    """The checksums by file name, and the session's state, of a checkpoint; OSError if damaged.

    A name is one of a file in the folder of the checkpoints, or nothing could be written there.
    """
    try:
        values = json.loads(read_regular(Path(f"{path}.json"), MAX_LIST_BYTES))
        sums, session_state = dict(values["files"]), dict(values["host_state"] or {})
        if all(FILE_NAME.fullmatch(name) for name in sums):
            return sums, session_state
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        pass
    raise OSError(f"{Path(path).name}.json is no list of checksums")


def save_network(network: keras.Model, folder: Path, name: str = "best") -> Path:
    """Write a Keras model to `best.keras`, whole or not at all; returns the path.

    Where Keras cannot save the model, since it has no get_config(), its weights go to
    `best.weights.h5`, with a warning. `name` takes the place of "best".
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # Keras's own may be errors
            return write_file(folder / f"{name}.keras", network.save)
    except (NotImplementedError, TypeError) as error:
        from kytolly.record.weights_only import warn_of_weights_only

        warn_of_weights_only(type(network).__name__, error, (BEST, BEST_WEIGHTS))
        return write_file(folder / f"{name}.weights.h5", network.save_weights)


def place_best(run_dir: Path, name: str) -> Path:
    """Make `best.keras`, or `best.weights.h5`, a copy of the file `name` in `checkpoints/`."""
    source, target = run_dir / FOLDER / name, run_dir / public_name(name)
    if target.is_file() and checksum(target) == checksum(source):
        return target
    return write_file(target, lambda to: shutil.copyfile(source, to))


def public_name(name: str) -> str:
    """The name in the run's folder of a file such as `best-100.keras`."""
    return BEST_WEIGHTS if name.endswith(".h5") else BEST
