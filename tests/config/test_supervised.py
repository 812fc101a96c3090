import dataclasses

import pytest

from kytolly.config.classifier import ClassifierConfig
from kytolly.config.presets import PRESETS, preset
from kytolly.config.supervised import SupervisedConfig


@pytest.mark.parametrize(
    ("setting", "value", "expected"),
    [
        ("batch_size", 0, "at least 1"),
        ("learning_rate", 0.0, "above 0"),
        ("schedule", "linar", "Did you mean 'linear'"),
        ("warmup_ratio", 1.5, "at most 1"),
        ("label_smoothing", -0.1, "at least 0"),
        ("max_grad_norm", 0, "above 0"),
        ("epochs", 0, "passes"),
        ("class_weights", "balanced", "one of auto"),
        ("algorithm", "No Name", "lower-case"),
        ("gradient_accumulation", 0, "at least 1"),
        ("device", "tpu", "auto, cpu, gpu"),
    ],
)
def test_a_bad_value_is_refused_in_one_line(setting, value, expected):
    with pytest.raises(ValueError, match=expected) as error:
        SupervisedConfig(**{setting: value})
    assert setting in str(error.value) and "\n" not in str(error.value)


def test_what_may_be_none_is_none():
    cfg = SupervisedConfig(max_grad_norm=None, total_updates=None, class_weights=None)
    assert cfg.max_grad_norm is None
    assert all(field.metadata["help"] for field in dataclasses.fields(cfg))


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_for_texts_makes_updates_of_the_rows_that_it_says(name):
    cfg = ClassifierConfig(**preset(name, "text"))
    assert cfg.rows_per_update == {"safe": 12, "optimal": 12, "aggressive": 8}[name]
