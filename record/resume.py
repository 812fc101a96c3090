"""Brings a run back to its newest checkpoint, and says what an interrupted one has on disk."""

from __future__ import annotations

import math
import shlex
from typing import Any

from kytolly.record.best import restored_best
from kytolly.record.checkpoint import FOLDER, checkpoints, restore
from kytolly.record.run_folder import RunFolder


def restored_state(folder: RunFolder, state: Any) -> tuple[dict[str, Any], list[Any] | None]:
    """Bring a run to its newest checkpoint; returns the host state and the best weights so far.

    A run that was killed before its first checkpoint begins anew: the host state is empty.

    Args:
        folder: The run's folder.
        state: `callback.base.TrainState`; its trackables get the values of the checkpoint.
    """
    parts = dict(getattr(state.trackables.get("agent"), "part_names", ()))
    changed = folder.changed_settings(state.config, state.env_name, state.loop, parts)
    if folder.is_before_first_checkpoint():
        return {}, None
    restored = restore(folder.path, state.trackables, changed)
    best = restored_best(folder.path, restored)
    if best is None:
        return {**restored.host_state, "best_return": -math.inf, "last_evaluation": -1}, None
    from kytolly.record.network_file import weights_in

    return restored.host_state, weights_in(state.network, best)


def what_is_saved(state: Any) -> str:
    """What an interrupted run has on disk, and how to continue it, in one line.

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
