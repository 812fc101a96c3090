"""Options are read from their files, and unknown ones refused."""

import pytest

from kytolly.reformulation.options import options_from, read_options, write_options
from tests.reformulation.tiny_collection import make_options


def test_options_come_back_from_their_file(tmp_path):
    options = make_options("somewhere", epochs=3)
    write_options(tmp_path / "o.yaml", options)
    assert read_options(tmp_path / "o.yaml") == options


@pytest.mark.parametrize(
    "values, words",
    [
        ({"trainin": {}}, "'trainin' is no section or setting.*Did you mean 'training'"),
        ({"training": {"epoch": 3}}, "'epoch' is not a setting.*Did you mean 'epochs'"),
        ({"rl_agent": 3}, "rl_agent is 3, expected settings below it"),
        ({"retrieval": {"weight": 0.3}}, "'weight' is not a setting"),
        ({"retrieval": {"fusion": -1}}, "fusion is -1, expected"),
        ({"retrieval": {"fusion": "much"}}, "fusion is 'much', expected"),
        ({"training": {"pool_documents": 8}}, "pool_documents is 8, expected"),
    ],
)
def test_unknown_settings_are_errors(values, words):
    with pytest.raises(ValueError, match=words):
        options_from(values)
