import runpy
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_no_page_of_a_command_is_left_from_before():
    made = runpy.run_path(str(ROOT / "docs" / "make_command_pages.py"))["pages"]()
    assert set(made) == {path.name for path in (ROOT / "docs" / "commands").iterdir()}
