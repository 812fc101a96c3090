"""What a collection has in common with the documents of a run."""

import numpy as np
import pytest

from kytolly.search.index.files import write_arrays
from kytolly.search.index.trained_documents import FILE, Overlap, TrainedDocuments


def test_equal_texts_count_as_often_as_they_are_there(tmp_path):
    TrainedDocuments.of_texts(["a", "b", "b", "c"]).save(tmp_path)
    trained = TrainedDocuments.read(tmp_path)
    assert trained is not None and trained.hashes.dtype == np.uint64
    overlap = trained.overlap(["b", "d", "a", "b", "b"])  # a, b, b are the same; d and a b are new
    assert overlap == Overlap(same=3, new=2, gone=1)
    assert overlap.share == 3 / 5
    assert trained.overlap(["a"]).share == 1 / 4  # a quarter of the run's own documents is there


@pytest.mark.parametrize(
    "hashes", [np.zeros((2, 2), np.uint64), np.zeros(2, np.float32)], ids=["shape", "kind"]
)
def test_hashes_that_are_none_are_as_no_file(tmp_path, hashes):
    assert TrainedDocuments.read(tmp_path) is None
    write_arrays(tmp_path / FILE, {"digest": np.array("d"), "hashes": hashes})
    assert TrainedDocuments.read(tmp_path) is None


def test_the_message_says_how_many_are_new_and_gone():
    assert "2,607 of these 2,608 documents: 1 is new. What" in Overlap(2_607, 1, 0).text("run")
    assert "0 are new, and 3 of its own are gone. What" in Overlap(9, 0, 3).text("run")
