"""The callbacks of every run."""

from __future__ import annotations

from kytolly.callback.base import Callback, TrainState
from kytolly.callback.checkpoint import CheckpointSaver
from kytolly.callback.csv_log import CSVLog
from kytolly.callback.early_stop import EarlyStop, RewardThreshold, StopOnNonFinite, TimeBudget
from kytolly.callback.progress import ProgressBar
from kytolly.callback.tensorboard import TensorBoardLog


def run_callbacks(state: TrainState, progress: bool) -> list[Callback]:
    """What watches every run: files, TensorBoard, reasons to stop, and the progress bar."""
    cfg, threshold = state.config, getattr(state.config, "reward_threshold", None)
    callbacks: list[Callback] = [
        StopOnNonFinite(),
        CheckpointSaver(state.interval("checkpoint", 5)),
        CSVLog(),
        TensorBoardLog(),
    ]
    if threshold is not None:
        callbacks.append(RewardThreshold(threshold))
    if cfg.early_stop_patience is not None:
        callbacks.append(EarlyStop(cfg.early_stop_patience, cfg.early_stop_min_improvement))
    if cfg.max_wall_seconds is not None:
        callbacks.append(TimeBudget(cfg.max_wall_seconds))
    return [*callbacks, ProgressBar()] if progress else callbacks
