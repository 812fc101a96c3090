"""The state of a run on disk: its checkpoints, and its best network as a Keras file."""

from __future__ import annotations

import logging
import os
import re
import shutil
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

import keras
import numpy as np
import tensorflow as tf

FOLDER = "checkpoints"
BEST = "best.keras"
BEST_WEIGHTS = "best.weights.h5"  # only where Keras cannot save the model itself

# What TensorFlow raises for files that are cut off or altered, and for values that do not fit.
DAMAGE = (tf.errors.OpError, OSError, RuntimeError, IndexError, UnicodeDecodeError)
MISMATCH = (tf.errors.InvalidArgumentError, AssertionError, ValueError, TypeError)


def write_checkpoint(
    checkpoint: tf.train.Checkpoint, run_dir: Path, env_steps: int, keep: int
) -> None:
    """Write `checkpoints/ckpt-N` after N env steps, then remove all but the newest `keep`."""
    folder = run_dir / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    checkpoint.write(str(folder / f"ckpt-{env_steps}"))
    prune(folder, env_steps, keep)


def complete_checkpoint(trackables: Mapping[str, Any]) -> tf.train.Checkpoint:
    """A checkpoint of the objects, and of every variable of the Keras layers within them.

    TensorFlow does not follow the lists of layers that a Keras model holds: it would leave their
    weights out, and assert_consumed() would not miss them. So they are named once more.
    """
    found: dict[str, list[tf.Variable]] = {}
    seen: set[int] = set()

    def visit(path: str, value: Any) -> None:
        if id(value) in seen:
            return
        seen.add(id(value))
        if isinstance(value, keras.Layer):
            found[path] = [variable.value for variable in value.variables]
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
    return tf.train.Checkpoint(**trackables, **({"keras_variables": found} if found else {}))


def is_finite(network: Any) -> bool:
    """Whether every weight of a Keras model is a number."""
    return all(np.isfinite(weight).all() for weight in network.get_weights())


def checkpoints(folder: Path) -> list[tuple[int, str]]:
    """Env steps and path of every complete checkpoint in a folder, the newest first."""
    names = (re.fullmatch(r"(ckpt-(\d+))\.index", path.name) for path in folder.glob("*.index"))
    return sorted(((int(n[2]), str(folder / n[1])) for n in names if n), reverse=True)


def prune(folder: Path, newest: int, keep: int) -> None:
    """Remove all but the newest `keep` checkpoints up to env step `newest`.

    Later ones go too: the run was resumed from an earlier one. So does what killed writes left.
    """
    kept = [pair for pair in checkpoints(folder) if pair[0] <= newest][:keep]
    steps = {step for step, _ in kept}
    lines = [f'model_checkpoint_path: "ckpt-{newest}"']
    lines += [f'all_model_checkpoint_paths: "{Path(path).name}"' for _, path in reversed(kept)]
    text = "\n".join(lines) + "\n"  # what tf.train.latest_checkpoint() reads
    replace_file(folder / "checkpoint", lambda partial: partial.write_text(text, encoding="utf-8"))
    for path in folder.iterdir():
        name = re.match(r"ckpt-(\d+)\D", path.name)
        if name is None or int(name[1]) in steps:
            continue
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def save_network(network: Any, run_dir: Path) -> Path:
    """Write a Keras model to `best.keras`, whole or not at all; returns the path.

    Where Keras cannot save the model, since it has no get_config(), its weights go to
    `best.weights.h5`, with a warning.
    """
    try:
        return replace_file(run_dir / BEST, network.save)
    except (NotImplementedError, TypeError) as error:
        reason = " ".join(str(error).split(". ")[0].split())
        warnings.warn(
            f"{BEST} cannot be written ({reason}): only the weights are kept, in {BEST_WEIGHTS}. "
            f"Give {type(network).__name__} a get_config() and train again to play this run "
            "with `kytolly evaluate`.",
            stacklevel=2,
        )
        return replace_file(run_dir / BEST_WEIGHTS, network.save_weights)


def load_best_weights(network: Any, run_dir: Path) -> None:
    """Give a network what `save_network` has written of it, if it has."""
    for path in (run_dir / BEST, run_dir / BEST_WEIGHTS):
        if path.is_file():
            network.load_weights(path)


def replace_file(path: Path, write: Callable[[Path], Any]) -> Path:
    """Write a file beside `path`, then put it in its place; returns `path`."""
    partial = path.with_name(f".partial-{path.name}")
    try:
        write(partial)
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)
    return path


def restore(run_dir: str | Path, trackables: Mapping[str, Any]) -> str:
    """Bring objects to the newest state of a run that can be read.

    Args:
        run_dir: The run's folder.
        trackables: The objects, under the names with which they were saved.

    Returns:
        Path of the checkpoint. Every value in it was used, and every variable of the objects has
        its value from there.

    Raises:
        ValueError: There is no checkpoint, none can be read, or another configuration wrote it.
    """
    folder = Path(run_dir) / FOLDER
    found = checkpoints(folder)
    if not found:
        raise ValueError(
            f"{folder} holds no checkpoint, expected files such as ckpt-1000.index: resume the "
            "folder of a run that has trained, or start a new run."
        )
    damaged: list[str] = []
    for _, path in found:
        try:
            _read(path, trackables)
        except DAMAGE as error:
            damaged.append(f"{Path(path).name} ({one_line(error, 160)})")
            continue
        if damaged:
            warnings.warn(
                f"Damaged in {folder}: {', '.join(damaged)}. The run continues from the previous "
                f"checkpoint, {Path(path).name}.",
                stacklevel=2,
            )
        return path
    raise ValueError(
        f"No checkpoint in {folder} can be read: {', '.join(damaged)}. Copy the folder back from "
        "where it came from, or start a new run."
    )


def _read(path: str, trackables: Mapping[str, Any]) -> None:
    """Read one checkpoint; ValueError where its values and the objects do not match."""
    tf.get_logger().addFilter(no_list_of_values)
    try:
        complete_checkpoint(trackables).read(path).assert_consumed()
    except UnicodeDecodeError:  # a ValueError, but one that speaks of damage
        raise
    except MISMATCH as error:
        raise ValueError(
            f"{path} was saved by another configuration: {one_line(error, 300)}. Resume with the "
            "settings in the run's config.yaml and the same environment and model, or start a "
            "new run."
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


def one_line(error: BaseException, length: int) -> str:
    """What an error says, without line breaks and TensorFlow's internal names, cut to `length`."""
    text = re.sub(r"\{\{.*?\}\}|\[Op:.*?\]|: attributes \{.*", "", str(error), flags=re.DOTALL)
    words = " ".join(text.split()).rstrip(".") or type(error).__name__
    return words if len(words) <= length else words[: length - 1] + "…"


def load_network(path: Path) -> keras.Model:
    """The network in a `.keras` file."""
    if not path.is_file():
        raise ValueError(
            f"{path} does not exist, expected the best weights of a run: it was stopped before "
            "its first evaluation. Continue it with --resume."
        )
    try:
        return cast(keras.Model, keras.models.load_model(path))
    except Exception as error:
        reason = " ".join(str(error).split())[:300]
        raise ValueError(
            f"{path} cannot be loaded ({reason}). A model class of your own must be registered "
            "with keras.saving.register_keras_serializable and imported first; a damaged file "
            "must be trained again."
        ) from error
