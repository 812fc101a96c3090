"""Files of arrays, and memory, as strangers may want them."""

import io
import zipfile

import numpy as np
import pytest

from kytolly.search.index import files


def test_arrays_come_back(tmp_path):
    np.savez(tmp_path / "a.npz", first=np.arange(3), second=np.ones(2))
    second, first = files.read_arrays(tmp_path / "a.npz", ("second", "first"))
    assert first.tolist() == [0, 1, 2] and second.tolist() == [1.0, 1.0]


def test_a_small_file_that_unpacks_to_a_large_one_is_refused(tmp_path):
    np.savez_compressed(tmp_path / "a.npz", first=np.zeros(100_000))
    with pytest.raises(ValueError, match=r"it unpacks to 800,\d+ bytes and has"):
        files.read_arrays(tmp_path / "a.npz", ("first",))


def test_an_array_that_says_it_is_huge_takes_no_memory(tmp_path):
    content = io.BytesIO()
    np.lib.format.write_array(content, np.zeros(8))
    large = content.getvalue().replace(b"(8,), }       ", b"(8" + b"0" * 7 + b",), }")
    assert len(large) == len(content.getvalue())
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("first.npy", large)
    with pytest.raises(ValueError):
        files.read_arrays(tmp_path / "a.npz", ("first",))
