"""The site of docs/: its pages are reached, its links lead somewhere, its commands are true."""

import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from kytolly.command.entry import parse
from kytolly.command.table import HAS_SEARCH

ROOT = Path(__file__).parents[2]


def test_the_site_is_built_without_a_warning(tmp_path):
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", tmp_path / "site"]
    quiet = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=quiet)
    assert done.returncode == 0, done.stderr[-2_000:]
    assert (tmp_path / "site" / "commands" / "train_dqn" / "index.html").is_file()


@pytest.mark.skipif(not HAS_SEARCH, reason="they name what search has, too")
def test_the_pages_of_the_commands_are_made_from_their_help():
    made = runpy.run_path(str(ROOT / "scripts" / "make_command_pages.py"))["pages"]()
    folder = ROOT / "docs" / "commands"
    assert {path.name for path in folder.iterdir()} == set(made)
    for name, text in made.items():
        page = (folder / name).read_text(encoding="utf-8")
        assert page == text, f"{name} is old, run: python scripts/make_command_pages.py"
    listed = re.findall(r"commands/([\w-]+\.md)", (ROOT / "mkdocs.yml").read_text("utf-8"))
    assert sorted(listed) == sorted(made)


def test_every_picture_has_a_command_that_makes_it():
    made = runpy.run_path(str(ROOT / "scripts" / "make_pictures.py"))
    assert set(made["PICTURES"]) == {path.name for path in (ROOT / "docs" / "images").iterdir()}
    for picture in made["PICTURES"]:
        *_, last = map(parse, made["command_lines"](picture))
        assert picture in str(getattr(last, "figure", None) or last.out)
