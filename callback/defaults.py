"""The callbacks of every run."""

from __future__ import annotations

from kytolly.callback.base import Callback, TrainState
from kytolly.callback.checkpoint import CheckpointSaver
from kytolly.callback.csv_log import CSVLog
from kytolly.callback.non_finite import StopOnNonFinite
from kytolly.callback.progress import ProgressBar
from kytolly.callback.tensorboard import TensorBoardLog
from kytolly.callback.training_warnings import TrainingWarnings


def run_callbacks(state: TrainState, progress: bool) -> list[Callback]:
    """What watches every run: files, TensorBoard, reasons to stop, and the progress bar."""
    cfg = state.config
    callbacks: list[Callback] = [
        StopOnNonFinite(),
        CheckpointSaver(state.interval("checkpoint", 5)),
        CSVLog(),
        TensorBoardLog(),
        TrainingWarnings(),
    ]
    threshold = getattr(cfg, "reward_threshold", None)  # of agents only
    ends = (threshold, cfg.early_stop_patience, cfg.max_wall_seconds)
    if any(end is not None for end in ends):
        from kytolly.callback.early_stop import end_callbacks

        callbacks += end_callbacks(cfg)
    return [*callbacks, ProgressBar()] if progress else callbacks
