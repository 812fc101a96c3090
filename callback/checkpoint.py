"""Saves checkpoints of a run while it trains, and its best network."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import tensorflow as tf

from kytolly.callback.base import Callback, JsonObject, TrainState, warn
from kytolly.record.checkpoint import (
    FILE_NAME,
    FOLDER,
    checkpoints,
    complete_checkpoint,
    is_finite,
    place_best,
    prune,
    save_network,
    write_checkpoint,
)


class CheckpointSaver(Callback):
    """Saves the run at intervals and at its end, and its best network.

    `checkpoints/ckpt-N` holds the state after N env steps, or N updates of supervised training:
    everything in `state.trackables`, in the format of `tf.train.Checkpoint`, and in `ckpt-N.json`
    `state.session_state()` with checksums. A checkpoint is complete before an older one is removed.
    A state whose network is not finite is not saved: training could not continue from it.

    The best network after N of them is `checkpoints/best-N.keras`, which each checkpoint names,
    and `best.keras` is a copy of the newest.

    Args:
        interval: Env steps, or updates, between two checkpoints.
        keep: Checkpoints that stay on disk.
        may_save: Says at the end of an interval whether others may wait for the writing, as in a
            population; then the best network too is written with a checkpoint, and not when it was
            evaluated. None: always.
    """

    writes = "checkpoints/ and best.keras"

    def __init__(self, interval: int, keep: int = 2, may_save: Callable[[], bool] | None = None):
        if interval < 1 or keep < 1:
            raise ValueError(
                f"CheckpointSaver got interval {interval} and keep {keep}, "
                "expected at least 1 of each. Raise them."
            )
        self.interval, self.keep, self.may_save = interval, keep, may_save
        self._unsaved: tuple[int, list[np.ndarray]] | None = None  # best network, and when
        self._checkpoint: tf.train.Checkpoint | None = None
        self._best: str | None = None
        self._last_saved = 0
        self._saved_any = self._evaluated = False

    def on_train_begin(self, state: TrainState) -> None:
        """Start to count; the state of a resumed run is on disk already."""
        self._checkpoint = complete_checkpoint(state.trackables)
        self._last_saved = state.progress
        self._saved_any = state.progress > 0
        self._best, self._evaluated = None, False
        goes_on = state.config.on_oom == "shrink" or state.config.on_nan == "restart"
        if goes_on and not self._saved_any:  # a fault before the first checkpoint needs one
            self._save(state)

    def on_interval_end(self, state: TrainState) -> None:
        """Save, if the interval has passed."""
        due = state.progress - self._last_saved >= self.interval
        if due and (self.may_save is None or self.may_save()):
            self._save(state)

    def on_evaluation(self, state: TrainState) -> None:
        """Keep the network, if it is the best one so far."""
        self._evaluated = True
        if state.is_best:
            if self.may_save is None:
                self._save_best(state, state.progress)
            else:
                self._unsaved = state.progress, state.network.get_weights()

    def on_train_end(self, state: TrainState) -> None:
        """Save what has changed since the last checkpoint."""
        if state.progress != self._last_saved or self._evaluated or not self._saved_any:
            self._save(state)

    def get_state(self) -> JsonObject:
        """Name of the file with the best network."""
        return {"best": self._best}

    def set_state(self, state: TrainState, saved: JsonObject) -> None:
        """Take the name, and finish what a kill may have interrupted after the last checkpoint."""
        folder = state.run_dir / FOLDER
        best = saved.get("best")
        known = isinstance(best, str) and FILE_NAME.fullmatch(best) and (folder / best).is_file()
        self._best = best if known else None
        if checkpoints(folder)[0][0] == state.progress:
            prune(folder, state.progress, self.keep)

    def _save_best(self, state: TrainState, progress: int) -> None:
        folder = state.run_dir / FOLDER
        folder.mkdir(exist_ok=True)
        self._best = save_network(state.network, folder, f"best-{progress}").name
        place_best(state.run_dir, self._best)

    def _save_unsaved(self, state: TrainState) -> None:
        """Write the best network with its weights of then."""
        if self._unsaved is None:
            return
        progress, weights = self._unsaved
        present = state.network.get_weights()
        state.network.set_weights(weights)
        try:
            self._save_best(state, progress)
        finally:
            state.network.set_weights(present)
        self._unsaved = None

    def _save(self, state: TrainState) -> None:
        if self._checkpoint is None:  # training never began: there is nothing new to save
            return
        if state.network is not None and not is_finite(state.network):
            warn(
                f"The network is not finite after {state.progress:,} {state.units}: "
                "this state is not saved, the previous checkpoint remains."
            )
            return
        self._save_unsaved(state)
        on_disk = self._saved_any and state.progress == self._last_saved
        write_checkpoint(
            None if on_disk else self._checkpoint,
            state.run_dir,
            state.progress,
            self.keep,
            state.session_state(),
            self._best,
        )
        self._last_saved = state.progress
        self._saved_any = True
        self._evaluated = False
