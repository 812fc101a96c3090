from kytolly.search.chain import SearchChain as SearchChain
from kytolly.search.command.search import table_lines as search_lines
from kytolly.search.config.classifier import ClassifierConfig as ClassifierConfig
from kytolly.search.config.ranker import RankerConfig as RankerConfig
from kytolly.search.config.rewriter import RewriterConfig as RewriterConfig
from kytolly.search.config.rewriting_ppo import RewritingPPOConfig as RewritingPPOConfig
from kytolly.search.index.bm25 import BM25Index as BM25Index
from kytolly.search.index.collection import BUILTIN as BUILTIN
from kytolly.search.index.collection import Collection as Collection
from kytolly.search.index.corpus import load_collection as load_collection
from kytolly.search.index.metrics import paired_bootstrap as paired_bootstrap
from kytolly.search.index.metrics import per_query as per_query
from kytolly.search.index.tokens import make_tokenizer as make_tokenizer
from kytolly.search.ranker_training import train_ranker as train_ranker
from kytolly.search.reformulate.options import ReformulationOptions as ReformulationOptions
from kytolly.search.reformulate.options import RetrievalOptions as RetrievalOptions
from kytolly.search.reformulate.options import TrainingOptions as TrainingOptions
from kytolly.search.reformulate.reformulator import Reformulator as Reformulator
from kytolly.search.reformulate.report import CalibrationBins as CalibrationBins
from kytolly.search.reformulate.report import plot_calibration as plot_calibration
from kytolly.search.reformulate.report import test_lines as test_lines
from kytolly.search.reformulate.train import train as train_reformulation
from kytolly.search.text.classifier import TextClassifier as TextClassifier
from kytolly.search.text.language import identify_language as identify_language
from kytolly.search.text.language import main_language as main_language
from kytolly.search.text.ranker import Ranker as Ranker
from kytolly.search.text.rewriter import Rewriter as Rewriter
from kytolly.search.text.train_classifier import train_classifier as train_classifier
from kytolly.search.text.train_rewriter import train_rewriter as train_rewriter

__all__ = [
    "BUILTIN",
    "BM25Index",
    "CalibrationBins",
    "ClassifierConfig",
    "Collection",
    "Ranker",
    "RankerConfig",
    "ReformulationOptions",
    "Reformulator",
    "RetrievalOptions",
    "Rewriter",
    "RewriterConfig",
    "RewritingPPOConfig",
    "SearchChain",
    "TextClassifier",
    "TrainingOptions",
    "identify_language",
    "load_collection",
    "main_language",
    "make_tokenizer",
    "paired_bootstrap",
    "per_query",
    "plot_calibration",
    "search_lines",
    "test_lines",
    "train_classifier",
    "train_ranker",
    "train_reformulation",
    "train_rewriter",
]
