"""Presets of the models of texts: what they set, and what wins over them."""

import argparse
import types

import pytest

from kytolly.command.exits import BadInput
from kytolly.config.presets import PRESETS
from kytolly.machine import facts
from kytolly.machine.presets import recommend
from kytolly.search.command.preset import check_text_preset, text_needs, with_text_preset
from kytolly.search.command.text_options import add_training_options, given_config
from kytolly.search.config.classifier import ClassifierConfig
from kytolly.search.config.presets import text_preset
from kytolly.search.config.ranker import RankerConfig
from kytolly.search.config.rewriter import RewriterConfig


def test_texts_have_the_batches_and_lengths_of_the_guide():
    found = [
        (p["batch_size"], p["gradient_accumulation"], p["max_length"], p["learning_rate"])
        for p in (text_preset(name) for name in PRESETS)
    ]
    assert found == [(4, 3, 256, 3e-5), (6, 2, 512, 3e-5), (8, 1, 512, 3e-5)]
    text_preset("safe")["batch_size"] = 0
    assert text_preset("safe")["batch_size"] == 4


@pytest.mark.parametrize(
    "kind, config, length",
    [
        ("classifier", ClassifierConfig, "max_length"),
        ("ranker", RankerConfig, "max_length"),
        ("rewriter", RewriterConfig, "max_source_length"),
    ],
)
def test_each_text_model_has_presets_and_its_flags_win(kind, config, length, capsys):
    cfg = config(**text_preset("safe", kind))
    assert (cfg.batch_size, cfg.gradient_accumulation, getattr(cfg, length)) == (4, 3, 256)
    parser = argparse.ArgumentParser()
    add_training_options(parser, config, "", "--data")
    flags = ["--preset", "optimal", "--batch-size", "2", f"--{length.replace('_', '-')}", "512"]
    found = given_config(parser.parse_args([kind, *flags]), config)
    assert (found.batch_size, found.gradient_accumulation, getattr(found, length)) == (2, 2, 512)
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith("your settings win over the preset optimal: batch_size 2 (not 6).")
    with pytest.raises(BadInput, match="--config and --preset out"):
        given_config(parser.parse_args([kind, "--resume", "x", "--preset", "safe"]), config)


def test_auto_takes_what_the_free_memory_allows_for_texts(monkeypatch, capsys):
    needs = text_needs({})
    assert needs["safe"] < needs["optimal"] < needs["aggressive"]
    assert text_needs({"batch_size": 1, "max_length": 8})["aggressive"] < needs["safe"]
    for free, name in ((2 * needs["safe"], "safe"), (10**12, "aggressive")):
        monkeypatch.setattr(facts, "available_memory_bytes", lambda free=free: free)
        assert with_text_preset("auto", {}, "ranker") == text_preset(name, "ranker")
        assert f"preset {name}: " in capsys.readouterr().err


def test_the_doctor_recommends_one():
    tf = types.SimpleNamespace(config=types.SimpleNamespace(list_physical_devices=lambda _: []))
    check = check_text_preset(tf)
    name = recommend(text_needs({}), None).name
    assert check.status == "ok" and check.finding.startswith(f"{name} for a re-ranker")
