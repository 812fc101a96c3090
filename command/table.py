"""The table of commands: which there are, and the module of each.

A module has `add_options(parser, words)` and `run(args)`, and is imported when its command is
called. Of the library, only this table and those of the benchmarks, of the algorithms and of
Keras's classes name the room `search`. Where it is not installed, its commands do not exist.
"""

from __future__ import annotations

import importlib
import importlib.util
from types import ModuleType

HAS_SEARCH = importlib.util.find_spec("kytolly.search") is not None
SEARCH_COMMANDS = {
    "reformulate": "add terms to search queries with a run of train_optimized.py",
    "search": "show what BM25, the new query and a re-ranker find, one beside the other",
    "classify": "name the classes of texts with a trained classifier",
}
COMMANDS = {
    "train": "train an agent, a text classifier, a re-ranker or a query rewriter",
    "evaluate": "play a run's best weights greedily",
    "export": "write a run's act function as SavedModel, LiteRT or ONNX",
    "record": "write a video of a run's best weights",
    "watch": "show a run's best weights in a window",
    "sweep": "train all combinations of given settings, with several seeds each, and compare them",
    "tune": "search the settings of an algorithm",
    "plot": "draw the curves of several runs in one picture, and compare them in numbers",
    "check-env": "compare an environment with what it promises",
    "benchmark": "print throughput tables",
    **(SEARCH_COMMANDS if HAS_SEARCH else {}),
    "completion": "print what completes these commands in a shell",
    "doctor": "show what works on this machine, what does not, and what to do",
}

# What `kytolly train` trains beside the algorithms, and the module of each in `search.command`.
_TEXT_MODELS = {
    "classifier": "train_classifier",
    "ranker": "train_ranker",
    "reformulation": "train_optimized",
    "rewriter": "train_rewriter",
}
TEXT_MODELS = _TEXT_MODELS if HAS_SEARCH else {}

# What `kytolly doctor` checks for it.
_SEARCH_CHECKS = {"text preset": "kytolly.search.command.preset:check_text_preset"}
SEARCH_CHECKS = _SEARCH_CHECKS if HAS_SEARCH else {}


def command_module(name: str) -> ModuleType:
    """The module of a command."""
    room = "search.command" if name in SEARCH_COMMANDS else "command"
    return importlib.import_module(f"kytolly.{room}.{name.replace('-', '_')}")


def text_model_module(name: str) -> ModuleType:
    """The module of `kytolly train` that trains a model of texts."""
    return importlib.import_module(f"kytolly.search.command.{TEXT_MODELS[name]}")
