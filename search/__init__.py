"""Search and texts, built on the library: an application of it, and a guest in its house.

The rooms within have the names of the library's. Whatever they need of it, any user could use; the
library itself imports nothing from here, but for the tables that name a command, a benchmark or a
kind of run. The public names are loaded when they are used.
"""

from __future__ import annotations

import importlib
from typing import Any

# Public name -> its module here, and what it is called there if that is something else.
_HOMES = {
    "BM25Index": "index.bm25",
    "BUILTIN": "index.collection",
    "CalibrationBins": "reformulate.report",
    "ClassifierConfig": "config.classifier",
    "Collection": "index.collection",
    "identify_language": "text.language",
    "load_collection": "index.corpus",
    "main_language": "text.language",
    "make_tokenizer": "index.tokens",
    "paired_bootstrap": "index.metrics",
    "per_query": "index.metrics",
    "plot_calibration": "reformulate.report",
    "Ranker": "text.ranker",
    "RankerConfig": "config.ranker",
    "ReformulationOptions": "reformulate.options",
    "Reformulator": "reformulate.reformulator",
    "RetrievalOptions": "reformulate.options",
    "Rewriter": "text.rewriter",
    "RewriterConfig": "config.rewriter",
    "RewritingPPOConfig": "config.rewriting_ppo",
    "search_lines": "command.search:table_lines",
    "SearchChain": "chain",
    "test_lines": "reformulate.report",
    "TextClassifier": "text.classifier",
    "train_classifier": "text.train_classifier",
    "train_ranker": "ranker_training",
    "train_reformulation": "reformulate.train:train",
    "train_rewriter": "text.train_rewriter",
    "TrainingOptions": "reformulate.options",
}
__all__ = list(_HOMES)  # pyright: ignore


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, _, attribute = _HOMES[name].partition(":")
    return getattr(importlib.import_module(f"{__name__}.{module}"), attribute or name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
