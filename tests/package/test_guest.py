"""The room `search` is a guest: without it, and without its tests, everything else works."""

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# The tables that name what search has, by strings, which are imported when they are used.
TABLES = {
    "agent/algorithms.py",
    "benchmarks/tables.py",
    "command/table.py",
    "kytolly/keras_classes.py",
}
PROGRAM = """
import json, pkgutil, importlib, sys
import kytolly

for found in pkgutil.walk_packages(kytolly.__path__, "kytolly."):
    if not found.name.startswith("kytolly.benchmarks.competitors."):
        importlib.import_module(found.name)
for name in kytolly.__all__:
    getattr(kytolly, name)
print(json.dumps([name for name in sys.modules if name.startswith("kytolly.")]))
"""


def python_files():
    """Every Python file but those of search, its tests, its door and its notebooks."""
    done = subprocess.run(["git", "ls-files", "*.py"], cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        pytest.skip("this is no checkout")
    guest = ("search/", "tests/search/", "train_optimized.py")
    guest += ("notebooks/search", "notebooks/query")
    return [name for name in done.stdout.splitlines() if not name.startswith(guest)]


def test_only_tables_name_the_guest():
    named = set()
    for name in python_files():
        source = (ROOT / name).read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Import):
                modules = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                modules = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
            else:
                continue
            bad = [
                one for one in modules if f"{one}.".startswith(("kytolly.search.", "tests.search."))
            ]
            assert not bad, f"{name} imports {bad}"
        if "kytolly.search" in source:
            named.add(name)
    assert named - {"tests/package/test_guest.py", "tests/test_imports.py"} == TABLES


@pytest.fixture
def library(tmp_path):
    """The package without the guest, by links."""
    (package := tmp_path / "kytolly").mkdir()
    for path in (ROOT / "kytolly").iterdir():
        if path.name not in ("search", "__pycache__"):
            (package / path.name).symlink_to(path.resolve())
    return tmp_path


def run_in(library, *command):
    done = subprocess.run(
        [sys.executable, *command],
        cwd=library,
        capture_output=True,
        text=True,
        env={"PYTHONPATH": str(library), "PATH": "", "TF_CPP_MIN_LOG_LEVEL": "3"},
    )
    assert done.returncode == 0, done.stderr[-3_000:]
    return done.stdout


def test_every_module_is_imported_without_it(library):
    loaded = json.loads(run_in(library, "-c", PROGRAM).splitlines()[-1])
    assert "kytolly.trainer" in loaded and "kytolly.benchmarks.tables" in loaded
    assert not [name for name in loaded if name.startswith("kytolly.search")]


def test_the_command_line_has_no_command_of_it(library):
    text = run_in(library, "-m", "kytolly", "--help")
    assert "check-env" in text and "reformulate" not in text
    text = run_in(library, "-m", "kytolly", "train", "--help")
    assert "rainbow" in text and "ranker" not in text
