"""Reinforcement learning for TensorFlow and Keras 3 in which training is one XLA program.

The public names are loaded when they are used, so that `import kytolly` takes no time.
"""

from __future__ import annotations

import importlib
from typing import Any

from kytolly.keras_classes import register_with_keras

# Public name -> its module here, and what it is called there if that is something else.
_HOMES = {
    "BM25Index": "retrieval.bm25",
    "BUILTIN": "retrieval.collection",
    "CalibrationBins": "reformulation.calibration",
    "Callback": "callback.base",
    "ClassifierConfig": "config.classifier",
    "Collection": "retrieval.collection",
    "configure_gpu_optimization": "machine.configure",
    "DQNConfig": "config.dqn",
    "EnvSpec": "environment.spec",
    "export": "deployment.export",
    "identify_language": "text.language",
    "load": "deployment.loaded_agent",
    "load_collection": "retrieval.corpus",
    "LoadedAgent": "deployment.loaded_agent",
    "main_language": "text.language",
    "make_tokenizer": "retrieval.tokens",
    "paired_bootstrap": "retrieval.metrics",
    "per_query": "retrieval.metrics",
    "plot_calibration": "reformulation.calibration",
    "plot_learning_curve": "record.learning_curve",
    "plot_over_states": "record.pictures",
    "plot_q_values": "record.pictures",
    "PPOConfig": "config.ppo",
    "Ranker": "text.ranker",
    "RankerConfig": "config.ranker",
    "ReformulationOptions": "reformulation.options",
    "Reformulator": "reformulation.reformulator",
    "RetrievalOptions": "reformulation.options",
    "Rewriter": "text.rewriter",
    "RewriterConfig": "config.rewriter",
    "search_lines": "command.search:table_lines",
    "SearchChain": "reformulation.search_chain",
    "TensorEnvironment": "environment.spec",
    "test_lines": "reformulation.report",
    "TextClassifier": "text.classifier",
    "train_classifier": "text.train_classifier",
    "train_ranker": "text.train_ranker",
    "train_ranker_of_chain": "reformulation.search_chain",
    "train_reformulation": "reformulation.train:train",
    "train_rewriter": "text.train_rewriter",
    "Trainer": "trainer",
    "TrainingOptions": "reformulation.options",
    "TrainState": "callback.base",
    "tuned_settings": "config.tuned",
    "__version__": "record.version",
}
__all__ = [name for name in _HOMES if not name.startswith("_")]  # pyright: ignore


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, _, attribute = _HOMES[name].partition(":")
    return getattr(importlib.import_module(f"kytolly.{module}"), attribute or name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


register_with_keras()
