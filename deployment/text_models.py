"""Runs that trained a model of texts: they hold no agent that acts."""

from __future__ import annotations

import pkgutil
from collections.abc import Mapping
from typing import Any

from kytolly.config.fields import from_mapping

# Config of each kind of run that plays no episodes, and what it trains.
TEXT_MODELS = {
    "classifier": ("kytolly.config.classifier:ClassifierConfig", "a text classifier"),
    "ranker": ("kytolly.config.ranker:RankerConfig", "a re-ranker"),
    "rewriter": ("kytolly.config.rewriter:RewriterConfig", "a query rewriter"),
    "fine-tuning": ("kytolly.config.rewriting_ppo:RewritingPPOConfig", "a query rewriter, by PPO"),
}


def refuse_text_model(settings: Mapping[str, Any], run_dir: str) -> None:
    """ValueError for the run of a model of texts, with the command that measures it."""
    name = "fine-tuning" if "fine_tune" in settings else settings["algorithm"]
    if name not in TEXT_MODELS:
        return
    config, model = TEXT_MODELS[name]
    command = from_mapping(pkgutil.resolve_name(config), settings).command
    raise ValueError(
        f"{run_dir} is a run that trained {model}, expected one of an agent, which plays episodes. "
        f"Its metrics are in its result.json; `{command} --resume {run_dir}` measures it again."
    )
