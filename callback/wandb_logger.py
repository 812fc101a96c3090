"""Logs runs to Weights & Biases."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kytolly.callback.base import TrainState
from kytolly.callback.tracking import Tracking, tracker


class WandbLogger(Tracking):
    """Logs settings, metrics, evaluations and the run's files to Weights & Biases.

    The horizontal axis is `env_steps`, or `updates` of supervised training.

    Args:
        project: Name of the project.
        mode: "online", "offline" (`wandb sync` uploads the run later) or "disabled"; None leaves
            it to wandb, and so to the variable WANDB_MODE.
        options: Further arguments of `wandb.init`, such as `name`, `entity` or `tags`.

    Raises:
        ValueError: wandb is not installed, or nobody has logged in, when training begins.
    """

    writes = "Weights & Biases"

    def __init__(self, project: str = "kytolly", mode: Any = None, **options: Any):
        super().__init__()
        self.project, self.mode, self.options = project, mode, options

    def open(self, state: TrainState, settings: dict[str, Any], run_id: str | None) -> Any:
        """A run of wandb; its files lie in the run's own folder before they are uploaded."""
        wandb = tracker("wandb")
        own = {"name": state.run_dir.name, "dir": str(state.run_dir), "reinit": "create_new"}
        own |= {"settings": wandb.Settings(console="off", silent=True)}
        how = {"id": run_id, "resume": "allow"} if run_id else {}
        try:
            run = wandb.init(
                project=self.project,
                mode=self.mode,
                config=settings,
                **{**own, **how, **self.options},
            )
        except wandb.errors.UsageError as error:
            raise ValueError(
                f"wandb cannot begin a run ({' '.join(str(error).split()):.200}). Log in by `wandb "
                'login`, or give WandbLogger(mode="offline").'
            ) from None
        run.define_metric("*", step_metric=state.unit)
        self._id = run.id
        return run

    def log(self, metrics: dict[str, float], state: TrainState) -> None:
        """Log numbers."""
        self._run.log({**metrics, state.unit: state.progress})

    def log_result(self, numbers: dict[str, float], stopped_by: str, paths: list[Path]) -> None:
        """The numbers are the run's summary."""
        self._run.summary.update({**numbers, "stopped_by": stopped_by})
        for path in paths:
            self._run.save(str(path), base_path=str(path.parent), policy="now")

    def close(self, failed: bool) -> None:
        """Finish the run: what is left is uploaded."""
        self._run.finish(exit_code=1 if failed else 0)
