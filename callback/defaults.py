"""The callbacks of every run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from kytolly.callback.base import Callback, TrainState
from kytolly.callback.checkpoint import CheckpointSaver
from kytolly.callback.csv_log import CSVLog
from kytolly.callback.tensorboard import TensorBoardLog
from kytolly.callback.training_warnings import StopOnNonFinite, TrainingWarnings


def run_callbacks(
    state: TrainState,
    progress: bool,
    user_callbacks: Sequence[Callback] = (),
    may_save: Callable[[], bool] | None = None,
) -> list[Callback]:
    """The callbacks of a run: checkpoints, reasons to stop, the user's, and logs of metrics.

    A member of a population has no progress bar, and is saved where `may_save` allows it. The
    user's callbacks come before those that log: metrics that they add are logged too.
    """
    cfg = state.config
    callbacks: list[Callback] = [
        StopOnNonFinite(),
        CheckpointSaver(state.interval("checkpoint", 5), may_save=may_save),
        TrainingWarnings(),
    ]
    threshold = getattr(cfg, "reward_threshold", None)  # of agents only
    ends = (threshold, cfg.early_stop_patience, cfg.max_wall_seconds)
    if any(end is not None for end in ends):
        from kytolly.callback.early_stop import end_callbacks

        callbacks += end_callbacks(cfg)
    added: Mapping[str, float] = {}
    if user_callbacks:
        from kytolly.callback.custom_metrics import between

        user_callbacks, added = between(user_callbacks)
    callbacks += [
        *user_callbacks,
        CSVLog(),
        TensorBoardLog(getattr(cfg, "tensorboard_tags", "kytolly")),
    ]
    if progress and may_save is None:
        from kytolly.callback.progress import ProgressBar

        callbacks.append(ProgressBar(added=added))
    return callbacks
