"""A disk that takes no more, while a model of texts trains."""

import pytest

from tests.command.test_full_disk import MANY_LIMITS, check_cases
from tests.search.text.labeled_files import write_labeled

TRAIN = ["train", "classifier", "--data", "texts.csv", "--epochs=1", "--log-dir", "new"]


@pytest.mark.learning
def test_a_classifier_on_a_full_disk(tmp_path):
    (folder := tmp_path / "texts").mkdir()
    write_labeled(folder / "texts.csv")
    check_cases(folder, tmp_path, {"classifier": MANY_LIMITS}, {"classifier": TRAIN})
