"""Every promised way to call the room `search`, and what a run of it is to the library."""

import pytest

import kytolly
import kytolly.search
from tests.package.test_doors import run_in_checkout


def test_the_program_has_help():
    assert "--json" in run_in_checkout("train_optimized.py", "--help")


def test_every_public_name_loads():
    for name in kytolly.search.__all__:
        found = getattr(kytolly.search, name)
        assert getattr(found, "__name__", name) in (name, "train", "table_lines"), name
    assert set(kytolly.search.__all__) <= set(dir(kytolly.search))


def test_a_run_of_texts_is_no_agent(tmp_path):
    (tmp_path / "config.yaml").write_text("environment: texts\nsettings: {algorithm: classifier}\n")
    with pytest.raises(ValueError, match="is a run that trained a text classifier"):
        kytolly.load(tmp_path)
