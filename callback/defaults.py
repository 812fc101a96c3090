"""The callbacks of every run."""

from __future__ import annotations

from kytolly.callback.base import Callback
from kytolly.callback.checkpoint import CheckpointSaver
from kytolly.callback.csv_log import CSVLog
from kytolly.callback.early_stop import EarlyStop, RewardThreshold, StopOnNonFinite, TimeBudget
from kytolly.callback.progress import ProgressBar
from kytolly.callback.tensorboard import TensorBoardLog
from kytolly.config.run import RunConfig


def run_callbacks(cfg: RunConfig, progress: bool) -> list[Callback]:
    """What watches every run: files, TensorBoard, reasons to stop, and the progress bar."""
    callbacks: list[Callback] = [
        StopOnNonFinite(),
        CheckpointSaver(cfg.interval("checkpoint_interval_env_steps", 5)),
        CSVLog(),
        TensorBoardLog(),
    ]
    if cfg.reward_threshold is not None:
        callbacks.append(RewardThreshold(cfg.reward_threshold))
    if cfg.early_stop_patience is not None:
        callbacks.append(EarlyStop(cfg.early_stop_patience, cfg.early_stop_min_improvement))
    if cfg.max_wall_seconds is not None:
        callbacks.append(TimeBudget(cfg.max_wall_seconds))
    return [*callbacks, ProgressBar()] if progress else callbacks
