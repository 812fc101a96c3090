"""Brings a run back to its newest checkpoint, and says what an interrupted one has on disk."""

from __future__ import annotations

import math
import shlex
from typing import Any

import yaml

from kytolly.config.words import value_text
from kytolly.record.checkpoint import FOLDER, checkpoints, restore, restored_best
from kytolly.record.run_folder import RunFolder, bare_id, yaml_text


def restored_state(folder: RunFolder, state: Any) -> tuple[dict[str, Any], list[Any] | None]:
    """Bring a run to its newest checkpoint; returns the host state and the best weights so far.

    A run that was killed before its first checkpoint begins anew: the host state is empty.

    Args:
        folder: The run's folder.
        state: `callback.base.TrainState`; its trackables get the values of the checkpoint.
    """
    changed = changed_settings(folder, state.config, state.env_name, state.loop)
    check_parts(folder, dict(getattr(state.trackables.get("agent"), "part_names", ())))
    if folder.is_before_first_checkpoint():
        return {}, None
    restored = restore(folder.path, state.trackables, list(changed.values()))
    best = restored_best(folder.path, restored)
    if best is None:
        return {**restored.host_state, "best_return": -math.inf, "last_evaluation": -1}, None
    from kytolly.record.network_file import weights_in

    return restored.host_state, weights_in(state.network, best)


def changed_settings(folder: RunFolder, cfg: Any, environment: str, loop: str) -> dict[str, str]:
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
    for name in getattr(cfg, "units_of_weights", ()):
        if name in changed and name in saved.settings:
            raise ValueError(
                f"{changed[name]}: what the run in {folder.path} has learned is in units of the "
                f"first. Leave {name} out to continue, or start a new run."
            )
    return changed


def check_parts(folder: RunFolder, parts: dict[str, str]) -> None:
    """Refuse other classes of the user's optimizer and policy than the run was trained with."""
    saved = folder.read_config().parts
    before = saved if isinstance(saved, dict) else {}
    for part in ("optimizer", "policy"):
        if before.get(part) != parts.get(part):
            was, now = (found.get(part) or "the usual one" for found in (before, parts))
            raise ValueError(
                f"the {part} is {now}, and the run in {folder.path} was trained with {was}: resume "
                f"it in Python with that {part}, or start a new run."
            )


def what_is_saved(state: Any) -> str:
    """One line: the state of an interrupted run on disk, and how to continue it.

    Args:
        state: `callback.base.TrainState`.
    """
    run_dir, saved = state.run_dir, checkpoints(state.run_dir / FOLDER)
    where = "`resume=True`"
    if state.config.command is not None:
        where = f"`{state.config.command} --resume {shlex.quote(str(run_dir))}`"
    if not saved:
        return f"Nothing is saved in {run_dir}: training had not begun. Begin it with {where}."
    count = f"{saved[0][0]:,} {state.units}"
    return f"The run is saved in {run_dir} after {count}. Continue it with {where}."
