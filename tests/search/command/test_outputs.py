"""No output of a command of search replaces a file of the user."""

import pytest

from kytolly.command import entry
from kytolly.command.table import SEARCH_COMMANDS
from kytolly.search.command import train_optimized
from tests.command.test_outputs import (
    NAMES,
    ODD_NAMES,
    check_odd_output,
    check_output_of_the_user,
    command_parsers,
    paths_in_options,
)
from tests.search.reformulate.tiny_collection import write_collection

# They need a run that was trained: tests/search/reformulate/test_reformulator.py has --run-file,
# and tests/search/command/test_classifier.py --output.
OUTPUTS = {"--run-file", "--output", "--log-dir"}
INPUTS = {"--collection", "--config", "--queries", "--rewriter", "--ranker", "--classifier"}
INPUTS |= {"run_dir", "file", "--against"}
CASES = [
    (train_optimized.main, ["--config", "f.yaml", "--log-dir"]),
    (train_optimized.main, ["--collection", "data", "--log-dir"]),
    (entry.main, ["benchmark", "reformulation-scale", "--collection", "data", "--figure"]),
]


def test_every_option_that_names_a_path_is_an_input_or_an_output():
    parsers = [*command_parsers(SEARCH_COMMANDS), train_optimized.make_parser()]
    assert paths_in_options(parsers) == OUTPUTS | INPUTS


@pytest.mark.parametrize("name", ODD_NAMES)
@pytest.mark.parametrize("main, argv", CASES)
def test_an_output_whose_path_no_file_can_have_is_refused_before_work_begins(
    main, argv, name, capsys, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    collection = str(write_collection(tmp_path / "data"))
    (tmp_path / "f.yaml").write_text(f"collection: {collection}\n")
    words = [collection if word == "data" else word for word in argv]
    end = ".png" if argv[0] == "benchmark" else ""
    check_odd_output(main, [*words, name + end], capsys, tmp_path)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("main, argv", CASES)
def test_an_output_that_names_a_file_of_the_user_is_refused(
    main, argv, name, capsys, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    check_output_of_the_user(main, [*argv, name], capsys, tmp_path)
