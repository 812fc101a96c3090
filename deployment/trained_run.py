"""Finds the run of an agent, and refuses folders that hold none. Nothing here loads TensorFlow."""

from __future__ import annotations

import os
import pkgutil
from collections.abc import Mapping
from typing import Any, NamedTuple

from kytolly.agent.algorithms import TEXT_MODELS, make_config
from kytolly.config.fields import from_mapping
from kytolly.config.run import RunConfig
from kytolly.config.words import path_text
from kytolly.deployment.zoo import run_path
from kytolly.record.saved_run import SavedConfig, SavedRun


class TrainedRun(NamedTuple):
    """The run of an agent."""

    folder: SavedRun
    saved: SavedConfig  # what its config.yaml says
    cfg: RunConfig  # its config

    def environment(self, trust: bool = False) -> Any:
        """The maker of the run's environment, with its arguments and wrappers.

        Args:
            trust: Import the modules that the run names.

        Raises:
            ValueError: A module that nobody trusts makes it, or wraps it.
        """
        from kytolly.environment.gym.wrapped import wrapped_source

        name = self.folder.trusted_environment(self.saved, trust=trust)
        wrappers = self.folder.trusted_wrappers(self.saved, trust=trust)
        return wrapped_source(name, self.cfg.env_kwargs, wrappers)


def read_run(run: str | os.PathLike[str]) -> TrainedRun:
    """The run in a folder; ValueError where there is none, or not that of an agent."""
    folder = SavedRun.existing(run_path(run))
    saved = folder.read_config()
    refuse_text_model(saved.settings, path_text(run))
    return TrainedRun(folder, saved, make_config(saved.settings))


def refuse_text_model(settings: Mapping[str, object], run_dir: str) -> None:
    """ValueError for the run of a model of texts, with the command that measures it."""
    name = "fine-tuning" if "fine_tune" in settings else settings["algorithm"]
    if not isinstance(name, str) or name not in TEXT_MODELS:
        return
    config, model = TEXT_MODELS[name]
    command = from_mapping(pkgutil.resolve_name(config), settings).command
    raise ValueError(
        f"{run_dir} is a run that trained {model}, expected one of an agent, which plays episodes. "
        f"Its metrics are in its result.json; `{command} --resume {run_dir}` measures it again."
    )
