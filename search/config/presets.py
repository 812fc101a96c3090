"""Presets of the models of texts, as `config.presets` has them for agents."""

from __future__ import annotations

from typing import Any

# The effective batch is batch_size x gradient_accumulation; lengths are in tokens.
SIZES: dict[str, dict[str, Any]] = {
    "safe": {"batch_size": 4, "gradient_accumulation": 3, "max_length": 256},
    "optimal": {"batch_size": 6, "gradient_accumulation": 2, "max_length": 512},
    "aggressive": {"batch_size": 8, "gradient_accumulation": 1, "max_length": 512},
}
# The rate is for a network that was pretrained on much text. Ours, which was not, keeps its own.
TEXT = {name: {**sizes, "learning_rate": 3e-5} for name, sizes in SIZES.items()}
REWRITER = {
    name: {key.replace("max_length", "max_source_length"): one for key, one in sizes.items()}
    for name, sizes in SIZES.items()
}
KINDS = {"text": TEXT, "classifier": SIZES, "ranker": SIZES, "rewriter": REWRITER}


def text_preset(name: str, kind: str = "text") -> dict[str, Any]:
    """The settings of a preset, one of `config.presets.PRESETS`, for a kind of text model."""
    return dict(KINDS[kind][name])
