from kytolly.callback.base import Callback as Callback
from kytolly.callback.base import TrainState as TrainState
from kytolly.command.search import table_lines as search_lines
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
from kytolly.reformulation.train import train as train_reformulation
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

__all__ = [
    "BUILTIN",
    "BM25Index",
    "CalibrationBins",
    "Callback",
    "ClassifierConfig",
    "Collection",
    "DQNConfig",
    "EnvSpec",
    "LoadedAgent",
    "PPOConfig",
    "Ranker",
    "RankerConfig",
    "ReformulationOptions",
    "Reformulator",
    "RetrievalOptions",
    "Rewriter",
    "RewriterConfig",
    "SearchChain",
    "TensorEnvironment",
    "TextClassifier",
    "TrainState",
    "Trainer",
    "TrainingOptions",
    "configure_gpu_optimization",
    "export",
    "identify_language",
    "load",
    "load_collection",
    "main_language",
    "make_tokenizer",
    "paired_bootstrap",
    "per_query",
    "plot_calibration",
    "plot_learning_curve",
    "plot_over_states",
    "plot_q_values",
    "search_lines",
    "test_lines",
    "train_classifier",
    "train_ranker",
    "train_ranker_of_chain",
    "train_reformulation",
    "train_rewriter",
    "tuned_settings",
]
