"""The groups of tests that `make test` runs."""

from pathlib import Path

from scripts.run_tests import ROOT, TYPES, Result, jobs

FILES = sorted(path.relative_to(ROOT) for path in (ROOT / "tests").rglob("test_*.py"))


def takes(words, path):
    """True where these arguments of pytest mean a file."""
    given = [Path(word) for word in words if word.startswith("tests")]
    ignored = [Path(word.partition("=")[2]) for word in words if word.startswith("--ignore=")]
    return any(map(path.is_relative_to, given)) and not any(map(path.is_relative_to, ignored))


def test_each_file_belongs_to_one_group():
    groups = [words for name, words in jobs(["-x"]).items() if name != TYPES]
    assert len(FILES) > 150
    for path in FILES:
        assert sum(takes(words, path) for words in groups) == 1, path


def test_a_file_of_a_new_folder_belongs_to_the_last_group():
    new = Path("tests/new/test_new.py")
    assert [name for name, words in jobs([]).items() if takes(words, new)] == ["tests"]


def test_a_line_says_what_was_counted():
    output = "..F\nPeak of memory: 1,204 MB\n1 failed, 2 passed in 3.21s\n"
    line = Result("tests/loop", True, 12.3, 20.7, output).line()
    assert line.split("  ")[0] == "FAILED" and line.endswith("1,204 MB  1 failed, 2 passed")
    assert "12 s,   21 s of CPU" in line
