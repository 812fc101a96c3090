"""Reinforcement learning for TensorFlow and Keras 3 in which training is one XLA program.

The public names are loaded when they are used, so that `import kytolly` takes no time.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from kytolly.keras_classes import register_with_keras

if TYPE_CHECKING:
    from kytolly.callback.base import Callback as Callback
    from kytolly.callback.base import TrainState as TrainState
    from kytolly.command.search import table_lines as search_lines  # noqa: F401
    from kytolly.config.classifier import ClassifierConfig as ClassifierConfig
    from kytolly.config.dqn import DQNConfig as DQNConfig
    from kytolly.config.ppo import PPOConfig as PPOConfig
    from kytolly.config.ranker import RankerConfig as RankerConfig
    from kytolly.config.rewriter import RewriterConfig as RewriterConfig
    from kytolly.config.tuned import tuned_settings as tuned_settings
    from kytolly.deployment.export import export as export
    from kytolly.deployment.loaded_agent import LoadedAgent as LoadedAgent
    from kytolly.deployment.loaded_agent import load as load
    from kytolly.environment.spec import EnvSpec as EnvSpec
    from kytolly.environment.spec import TensorEnvironment as TensorEnvironment
    from kytolly.machine.configure import configure_gpu_optimization as configure_gpu_optimization
    from kytolly.record.learning_curve import plot_learning_curve as plot_learning_curve
    from kytolly.record.pictures import plot_over_states as plot_over_states
    from kytolly.record.pictures import plot_q_values as plot_q_values
    from kytolly.record.version import __version__ as __version__
    from kytolly.reformulation.calibration import CalibrationBins as CalibrationBins
    from kytolly.reformulation.calibration import plot_calibration as plot_calibration
    from kytolly.reformulation.options import ReformulationOptions as ReformulationOptions
    from kytolly.reformulation.options import RetrievalOptions as RetrievalOptions
    from kytolly.reformulation.options import TrainingOptions as TrainingOptions
    from kytolly.reformulation.reformulator import Reformulator as Reformulator
    from kytolly.reformulation.report import test_lines as test_lines
    from kytolly.reformulation.search_chain import SearchChain as SearchChain
    from kytolly.reformulation.search_chain import train_ranker_of_chain as train_ranker_of_chain
    from kytolly.reformulation.train import train as train_reformulation  # noqa: F401
    from kytolly.retrieval.bm25 import BM25Index as BM25Index
    from kytolly.retrieval.collection import BUILTIN as BUILTIN
    from kytolly.retrieval.collection import Collection as Collection
    from kytolly.retrieval.corpus import load_collection as load_collection
    from kytolly.retrieval.metrics import paired_bootstrap as paired_bootstrap
    from kytolly.retrieval.metrics import per_query as per_query
    from kytolly.retrieval.tokens import make_tokenizer as make_tokenizer
    from kytolly.text.classifier import TextClassifier as TextClassifier
    from kytolly.text.language import identify_language as identify_language
    from kytolly.text.language import main_language as main_language
    from kytolly.text.ranker import Ranker as Ranker
    from kytolly.text.rewriter import Rewriter as Rewriter
    from kytolly.text.train_classifier import train_classifier as train_classifier
    from kytolly.text.train_ranker import train_ranker as train_ranker
    from kytolly.text.train_rewriter import train_rewriter as train_rewriter
    from kytolly.trainer import Trainer as Trainer

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
