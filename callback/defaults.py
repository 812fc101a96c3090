"""The callbacks of every run."""

from __future__ import annotations

from kytolly.callback.base import Callback
from kytolly.callback.checkpoint import CheckpointSaver
from kytolly.callback.csv_log import CSVLog
from kytolly.callback.non_finite import StopOnNonFinite
from kytolly.callback.progress import ProgressBar
from kytolly.callback.tensorboard import TensorBoardLog
from kytolly.callback.training_warnings import TrainingWarnings
from kytolly.config.run import RunConfig


def run_callbacks(cfg: RunConfig, progress: bool) -> list[Callback]:
    """What watches every run: files, TensorBoard, reasons to stop, and the progress bar."""
    callbacks: list[Callback] = [
        StopOnNonFinite(),
        CheckpointSaver(cfg.interval("checkpoint_interval_env_steps", 5)),
        CSVLog(),
        TensorBoardLog(),
        TrainingWarnings(),
    ]
    ends = (cfg.reward_threshold, cfg.early_stop_patience, cfg.max_wall_seconds)
    if any(end is not None for end in ends):
        from kytolly.callback.early_stop import end_callbacks

        callbacks += end_callbacks(cfg)
    return [*callbacks, ProgressBar()] if progress else callbacks
