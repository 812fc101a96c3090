from pathlib import Path

import pytest

from tests.record.test_strangers import check_cases, played

SCRIPT = Path(__file__).with_name("stranger_runs.py")


@pytest.mark.learning
def test_any_run_folder_works_or_is_refused_in_one_line(tmp_path):
    check_cases(played(tmp_path / "cases", "reformulation", "80", SCRIPT), 80)
