import shlex
import types

import pytest

from kytolly.command import entry
from kytolly.config.presets import PRESETS
from kytolly.record.resume import what_is_saved
from kytolly.search.config.classifier import ClassifierConfig
from kytolly.search.config.presets import text_preset
from kytolly.search.config.ranker import RankerConfig
from kytolly.search.config.rewriter import RewriterConfig
from kytolly.search.config.rewriting_ppo import RewritingPPOConfig


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_for_texts_makes_updates_of_the_rows_that_it_says(name):
    cfg = ClassifierConfig(**text_preset(name))
    assert cfg.rows_per_update == {"safe": 12, "optimal": 12, "aggressive": 8}[name]


@pytest.mark.parametrize(
    "cfg, source",
    [
        (ClassifierConfig(), "data"),
        (RankerConfig(), "collection"),
        (RewriterConfig(), "collection"),
        (RewritingPPOConfig(fine_tune="a run"), "collection"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_an_interrupted_run_names_a_command_that_takes_it(cfg, source, tmp_path):
    said = what_is_saved(types.SimpleNamespace(config=cfg, run_dir=tmp_path / "b run"))
    program, *words = shlex.split(said.split("`")[1])
    args = entry.parse(words)
    assert program == "kytolly" and args.resume == str(tmp_path / "b run")
    assert getattr(args, source)
    assert getattr(args, "fine_tune", None) == getattr(cfg, "fine_tune", None)
