"""Brings a run back to its newest checkpoint, and says what an interrupted one has on disk."""

from __future__ import annotations

import logging
import math
import shlex
import shutil
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import keras
import numpy as np
import tensorflow as tf
import yaml

from kytolly.config.words import value_text
from kytolly.record.checkpoint import (
    FOLDER,
    checkpoints,
    complete_checkpoint,
    place_best,
    public_name,
    read_manifest,
)
from kytolly.record.files import checksum, write_file
from kytolly.record.run_folder import yaml_text
from kytolly.record.saved_checkpoint import (
    DAMAGE,
    check_files,
    path_without_pattern,
    short_reason,
)
from kytolly.record.saved_run import SavedConfig, SavedRun, bare_id, is_class_name, trust_text

if TYPE_CHECKING:
    from kytolly.config.run import RunConfig
    from kytolly.config.supervised import SupervisedConfig

# What TensorFlow raises for values that do not fit.
MISMATCH = (tf.errors.InvalidArgumentError, AssertionError, ValueError, TypeError)


class RunState(Protocol):
    """A run as far as it is read here: a `callback.base.TrainState`."""

    @property
    def run_dir(self) -> Path: ...

    @property
    def config(self) -> RunConfig | SupervisedConfig: ...

    @property
    def env_name(self) -> str: ...

    @property
    def loop(self) -> str: ...

    @property
    def units(self) -> str: ...

    @property
    def trackables(self) -> Mapping[str, object]: ...

    @property
    def network(self) -> keras.Model: ...


class Restored(NamedTuple):
    """The state that a run continues from.

    Attributes:
        path: The checkpoint, without the endings of its files.
        session_state: What was saved beside the tensors.
    """

    path: str
    session_state: dict[str, object]


def restored_state(
    folder: SavedRun, state: RunState, parts: Mapping[str, str]
) -> tuple[dict[str, object], list[np.ndarray] | None]:
    """Bring a run to its newest checkpoint; returns the session's state and the best weights.

    A run that was killed before its first checkpoint begins anew: the session's state is empty.

    Args:
        folder: The run's folder.
        state: The run at its beginning; its trackables get the values of the checkpoint.
        parts: Class names of the user's optimizer and policy.
    """
    changed = changed_settings(folder, state.config, state.env_name, state.loop)
    check_parts(folder, parts)
    if folder.is_before_first_checkpoint():
        return {}, None
    check_length(folder, state, changed)
    restored = restore(folder.path, state.trackables, list(changed.values()), state.network)
    best = restored_best(folder.path, restored)
    if best is None:
        return {**restored.session_state, "best_return": -math.inf, "last_evaluation": -1}, None
    from kytolly.record.network_file import weights_in

    return restored.session_state, weights_in(state.network, best)


def changed_settings(
    folder: SavedRun, cfg: RunConfig | SupervisedConfig, environment: str, loop: str
) -> dict[str, str]:
    """The differences from a run's `config.yaml`, by name and in words.

    Raises:
        ValueError: The environment, or a setting in whose units the weights are, is another.
    """
    saved = folder.read_config()
    if bare_id(saved.environment) != bare_id(environment):
        raise ValueError(
            f"the environment, or the data, is {environment}, and the run in {folder.path} was "
            f"trained on {saved.environment}: give that one, or start a new run."
        )
    now = yaml.safe_load(yaml_text(cfg, {"loop": loop}))
    pairs = {"chosen loop": (saved.loop, loop)}
    pairs |= {name: (saved.settings.get(name), value) for name, value in now["settings"].items()}
    changed = {
        name: f"{name} was {value_text(old)}, now {value_text(new)}"
        for name, (old, new) in pairs.items()
        if old != new
    }
    if saved.spec is not None and not {"memory", "memory_units"} & set(changed):
        changed |= edited_memory(saved, cfg)
    action = (saved.spec or {}).get("action", ())
    for name in getattr(cfg, "units_of_weights", ()):
        matters = name != "action_bounds" or "low" in action
        if matters and name in changed and name in saved.settings:
            raise ValueError(
                f"{changed[name]}: what the run in {folder.path} has learned is in units of the "
                f"first. Leave {name} out to continue, or start a new run."
            )
    return changed


def check_length(folder: SavedRun, state: RunState, changed: Mapping[str, str]) -> None:
    """ValueError where a run is to become shorter than it is."""
    done = max((count for count, _ in checkpoints(folder.path / FOLDER)), default=0)
    length = getattr(state.config, "total_env_steps", done)
    if "total_env_steps" in changed and length < done:
        raise ValueError(
            f"total_env_steps is {length:,}, and the run in {folder.path} has {done:,} "
            f"{state.units} behind it, expected at least as many. Give more, or leave it out."
        )


def edited_memory(saved: SavedConfig, cfg: Any) -> dict[str, str]:
    """In words, that somebody wrote another memory into `config.yaml` than its spec has."""
    try:
        entries = (saved.spec or {})["observation"].get("entries", {})
        has_memory = entries.get("agent_first") == {"shape": [], "dtype": "bool"}
        units = entries["agent_memory"]["shape"][0] if has_memory else 0
    except (AttributeError, IndexError, KeyError, TypeError):  # nothing that training wrote
        return {}
    if units == cfg.state_units:
        return {}
    settings = f"memory {cfg.memory or 'none'}, memory_units {cfg.memory_units}"
    return {"state": f"a state had {units} numbers, now {cfg.state_units} ({settings})"}


def check_parts(folder: SavedRun, parts: Mapping[str, str]) -> None:
    """Refuse other classes of the user's optimizer and policy than the run was trained with."""
    before = folder.read_config().parts or {}
    for part in ("optimizer", "policy"):
        if before.get(part) != parts.get(part):
            was, now = (names.get(part) or "the usual one" for names in (before, parts))
            raise ValueError(
                f"the {part} is {now}, and the run in {folder.path} was trained with {was}: resume "
                f"it in Python with that {part}, or start a new run."
            )


def say_what_is_saved(end: BaseException, state: RunState) -> None:
    """Let what ends a run early tell how to continue it: Ctrl-C in its text, others in a note."""
    if isinstance(end, KeyboardInterrupt):
        end.args = (what_is_saved(state),)
    else:
        end.add_note(what_is_saved(state))


def what_is_saved(state: RunState) -> str:
    """One line: the state of an interrupted run on disk, and how to continue it."""
    run_dir, saved = state.run_dir, checkpoints(state.run_dir / FOLDER)
    where, command = "`resume=True`", state.config.command
    plays = command == f"kytolly train {state.config.algorithm}"  # texts have no environment
    if command is not None and not (plays and is_class_name(state.env_name)):
        trust = trust_text(state.env_name, state.config) if plays else ""
        where = f"`{command} --resume {shlex.quote(str(run_dir))}{trust}`"
    if not saved:
        return f"Nothing is saved in {run_dir}: training had not begun. Begin it with {where}."
    count = f"{saved[0][0]:,} {state.units}"
    return f"The run is saved in {run_dir} after {count}. Continue it with {where}."


def restore(
    run_dir: str | Path,
    trackables: Mapping[str, object],
    changed: Sequence[str] = (),
    network: keras.Model | None = None,
) -> Restored:
    """Bring objects to the newest state of a run that can be read.

    Args:
        run_dir: The run's folder.
        trackables: The objects, under the names with which they were saved.
        changed: The settings that differ from the saved run's, in words, for the error message.
        network: The one among the objects that acts: an old file may hold more weights of it.

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
            session_state = check_files(path)
            _read(path, trackables, changed, network)
        except DAMAGE as error:
            damaged.append(f"{Path(path).name} ({short_reason(error, 160)})")
            continue
        if damaged:
            warnings.warn(
                f"Damaged in {folder}: {', '.join(damaged)}. The run continues from the previous "
                f"checkpoint, {Path(path).name}.",
                stacklevel=2,
            )
        return Restored(path, session_state)
    raise ValueError(
        f"No checkpoint in {folder} can be read: {', '.join(damaged)}. Copy the folder back from "
        "where it came from, or start a new run."
    )


def _read(
    path: str,
    trackables: Mapping[str, object],
    changed: Sequence[str],
    network: keras.Model | None,
) -> None:
    """Read one checkpoint; ValueError where its values and the objects do not match."""
    from kytolly.record.dead_weights import without_dead_weights

    tf.get_logger().addFilter(no_list_of_values)
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


def restored_best(run_dir: Path, restored: Restored) -> Path | None:
    """The best network that belongs to a checkpoint, in both its places; None where it is lost."""
    sums, _ = read_manifest(restored.path)
    name = next((file for file in sums if file.startswith("best-")), None)
    if name is None:
        return None
    source, copy = run_dir / FOLDER / name, run_dir / public_name(name)
    if source.is_file() and checksum(source) == sums[name]:
        return place_best(run_dir, name)
    if copy.is_file() and checksum(copy) == sums[name]:
        write_file(source, lambda to: shutil.copyfile(copy, to))
        return copy
    warnings.warn(
        f"{source} and {copy.name} are damaged: the best network so far is lost, and the next "
        "evaluation begins to look for a new one.",
        stacklevel=2,
    )
    return None
