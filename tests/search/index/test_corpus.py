"""Collections from folders: what is read, what is not, and what is said about bad files."""

from __future__ import annotations

import io
import json
import os
import warnings
import zipfile

import numpy as np
import pytest

from kytolly.search.index import files
from kytolly.search.index.collection import text_digest
from kytolly.search.index.corpus import available_splits, load_collection, read_queries

DOCS = [
    {"_id": "d1", "title": "Cats", "text": "purr"},
    {"_id": "d2", "title": "", "text": "Dogs bark"},
    {"_id": "q3", "text": "Birds sing"},
]
QUERIES = [{"_id": "q1", "text": "purr"}, {"_id": "q2", "text": "bark"}]
QUERIES += [{"_id": "q3", "text": "Birds sing"}, {"_id": "d1", "text": "something else"}]
HEADER = "query-id\tcorpus-id\tscore\n"
QRELS = {"train": "q2\td1\t0\nq2\td2\t2\nq1\tq3\t1\nq1\td1\t1\n", "dev": "q3\td2\t1\n"}
QRELS["test"] = "d1\td2\t1\n"


def lines(records):
    return "".join(json.dumps(record) + "\n" for record in records)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "corpus.jsonl").write_text(lines(DOCS), encoding="utf-8")
    (tmp_path / "queries.jsonl").write_text(lines(QUERIES), encoding="utf-8")
    (tmp_path / "qrels").mkdir()
    for name, text in QRELS.items():
        (tmp_path / "qrels" / f"{name}.tsv").write_text(HEADER + text, encoding="utf-8")
    return tmp_path


def refusal(folder, **settings):
    """The message, which must be one line and end with what to do."""
    with pytest.raises(ValueError) as caught:
        load_collection(folder, **settings)
    message = str(caught.value)
    assert "\n" not in message and ": " in message
    return message


def test_documents_queries_and_judgments_are_read_in_file_order(folder):
    collection = load_collection(folder)
    assert collection.name == folder.name
    assert list(collection.texts) == ["Cats purr", "Dogs bark", "Birds sing"]
    assert collection.split("train") == [0, 1]  # q2 is judged first, but q1 is the first query
    assert collection.relevant(0, "train") == [0, 2]
    assert collection.relevant(1, "train") == [1]  # the grade 0 of d1 is not relevance
    assert collection.relevant(1, "dev") == []
    assert collection.judgments["train"]["q2"] == {"d1": 0, "d2": 2}


def test_a_document_is_the_query_only_with_the_same_id_and_text(folder):
    collection = load_collection(folder)
    assert [collection.own_document(query) for query in range(4)] == [None, None, 2, None]


def test_files_of_other_splits_are_not_opened(folder):
    (folder / "qrels" / "test.tsv").write_text("rubbish", encoding="utf-8")
    collection = load_collection(folder, splits=("train", "dev"))
    assert list(collection.judgments) == ["train", "dev"]
    with pytest.raises(ValueError, match="No split 'test'"):
        collection.split("test")
    (folder / "qrels" / "test.tsv").unlink()
    assert load_collection(folder, splits=("train", "dev")) == collection
    assert available_splits(folder) == ["train", "dev"]


def test_an_unknown_split_is_named_with_its_nearest(folder):
    assert "Did you mean 'train'" in refusal(folder, splits=("trian",))
    with pytest.raises(ValueError, match="there are: train, dev, test"):
        load_collection(folder).relevant(0, "validation")


def test_judgments_of_unknown_documents_are_counted_and_left_out(folder):
    path = folder / "qrels" / "dev.tsv"
    path.write_text(HEADER + "q3\td9\t1\nq3\td2\t1\nq2\td8\t1\n", encoding="utf-8")
    with pytest.warns(UserWarning, match=r"left out 2 judgments .*'d9' at .*dev.tsv:2"):
        collection = load_collection(folder)
    assert collection.judgments["dev"] == {"q3": {"d2": 1}}


def test_blank_lines_byte_order_marks_carriage_returns_and_repeats_are_fine(folder):
    whole = load_collection(folder)
    for path in folder.rglob("*.*l*"):
        path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes().replace(b"\n", b"\r\n") + b"\r\n")
    path = folder / "qrels" / "dev.tsv"
    path.write_bytes(path.read_bytes().replace(b"q3\td2\t1", b"q3\td2\t1\r\nq3\td2\t1"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert load_collection(folder) == whole


@pytest.mark.parametrize(
    "file, text, said",
    [
        ("corpus.jsonl", '{"_id": "d1", "text": "a"}\n{"_id": ', "corpus.jsonl:2: not JSON"),
        ("corpus.jsonl", "[1]\n", "corpus.jsonl:1: found '[1]'"),
        ("corpus.jsonl", '{"text": "a"}\n', 'corpus.jsonl:1: the "_id" of this document is None'),
        ("corpus.jsonl", '{"_id": "a b", "text": "a"}\n', "without spaces"),
        ("corpus.jsonl", '{"_id": "d1", "text": 3}\n', "'d1' has the \"text\" 3"),
        ("corpus.jsonl", '{"_id": "d1"}\n', 'has the "text" None'),
        ("corpus.jsonl", '{"_id": "d1", "title": 5, "text": "a"}\n', 'has the "title" 5'),
        ("corpus.jsonl", lines(DOCS + DOCS[:1]), "corpus.jsonl:4: the document id 'd1' is also in"),
        ("corpus.jsonl", '{"_id": "a\\u0000b", "text": "a"}\n', "without spaces"),
        ("corpus.jsonl", '{"_id": "a\\u001b[2J", "text": "a"}\n', "control characters"),
        ("corpus.jsonl", '{"_id": "a\\tb", "text": "a"}\n', "without spaces"),
        ("corpus.jsonl", '{"_id": "\\ud800", "text": "a"}\n', "without spaces"),
        ("corpus.jsonl", '{"_id": "d1", "text": "\\udfff"}\n', "half a character"),
        ("corpus.jsonl", '{"_id": "d1", "text": "a\0b"}\n', "corpus.jsonl:1: not JSON"),
        ("corpus.jsonl", "[" * 100_000 + "\n", "corpus.jsonl:1: not JSON (maximum recursion"),
        ("corpus.jsonl", '{"_id": ' + "[" * 400 + "]" * 400 + "}\n", "is [[[[[[[...]]]]]]]"),
        ("corpus.jsonl", '{"_id": NaN, "text": "a"}\n', "is nan"),
        ("corpus.jsonl", '{"_id": ' + "9" * 5_000 + "}\n", "corpus.jsonl:1: not JSON"),
        ("corpus.jsonl", "\n\n", "has no document"),
        (
            "queries.jsonl",
            lines(QUERIES * 2),
            "queries.jsonl:5: the query id 'q1' is also in line 1",
        ),
        ("queries.jsonl", "", "has no query"),
        ("qrels/train.tsv", "q1\td1\t1\n", "train.tsv:1: the first line is 'q1\\td1\\t1'"),
        ("qrels/train.tsv", HEADER, "judges no document"),
        ("qrels/train.tsv", "", "judges no document"),
        ("qrels/train.tsv", HEADER + "q1\td7\t1\n", "(1 judgments of others)"),
        ("qrels/train.tsv", HEADER + "q1 d1 1\n", "train.tsv:2: 1 columns"),
        ("qrels/train.tsv", HEADER + "q1\t0\td1\t1\n", "train.tsv:2: 4 columns"),
        ("qrels/train.tsv", HEADER + "q1\td1\thigh\n", "train.tsv:2: the score is 'high'"),
        ("qrels/train.tsv", HEADER + "q1\td1\t\u0661\n", "the score is '\u0661'"),
        ("qrels/train.tsv", HEADER + "q1\td1\t1_0\n", "the score is '1_0'"),
        ("qrels/train.tsv", HEADER + "q1\td1\tnan\n", "the score is 'nan'"),
        ("qrels/train.tsv", HEADER + f"q1\td1\t{10**40}\n", "train.tsv:2: the score is"),
        ("qrels/train.tsv", HEADER + "q7\td1\t1\n", "the query 'q7' is not in queries.jsonl"),
        ("qrels/train.tsv", HEADER + "q1\td1\t1\nq1\td1\t0\n", "train.tsv:3: query 'q1' and doc"),
    ],
)
def test_bad_files_are_named_with_line_and_remedy(folder, file, text, said):
    (folder / file).write_text(text, encoding="utf-8")
    assert said in refusal(folder)


def test_bytes_that_are_not_utf8_are_named(folder):
    path = folder / "corpus.jsonl"
    path.write_bytes(path.read_bytes() + b'{"_id": "d4", "text": "caf\xe9"}\n')
    assert "corpus.jsonl:4: not UTF-8" in refusal(folder)


@pytest.mark.parametrize("file", ["corpus.jsonl", "queries.jsonl"])
def test_a_missing_file_is_named(folder, file):
    (folder / file).unlink()
    assert f"{file} does not exist" in refusal(folder)


def test_a_missing_folder_and_a_file_in_its_place_are_told_apart(folder):
    assert "does not exist" in refusal(folder / "nowhere")
    assert "is a file" in refusal(folder / "corpus.jsonl")


def test_digests_are_the_same_in_every_process_and_see_where_texts_end():
    assert text_digest(["ab", "c"]) != text_digest(["a", "bc"]) != text_digest(["bc", "a"])
    assert text_digest(["ab", "é"]) == (
        "c5889beb135c5f145d21a9a076c70c8d27d63538b3f3ee16ac482c62d356d9a3"
    )


def test_negative_grades_are_not_relevant(folder):
    (folder / "qrels" / "train.tsv").write_text(HEADER + "q1\td1\t-1\nq1\td2\t+2\n")
    collection = load_collection(folder, ("train",))
    assert collection.judgments["train"]["q1"] == {"d1": -1, "d2": 2}
    assert collection.relevant(0, "train") == [1]


def test_a_line_without_end_is_not_read_into_memory(folder, monkeypatch):
    monkeypatch.setattr(files, "MAX_LINE_BYTES", 1_000)
    text = json.dumps({"_id": "d1", "text": "a" * 900}) + "\n"
    (folder / "corpus.jsonl").write_text(text + json.dumps({"_id": "d2", "text": "a" * 1_000}))
    assert "corpus.jsonl:2: longer than 1,000 bytes" in refusal(folder)


def test_pipes_devices_and_impossible_paths_are_refused_at_once(folder):
    (folder / "queries.jsonl").unlink()
    os.mkfifo(folder / "queries.jsonl")
    assert "it is no regular file" in refusal(folder)
    for path, said in [("/dev/zero", "no regular file"), ("a\0b", "null (byte|character)")]:
        with pytest.raises(ValueError, match=said):
            read_queries(path)
    for path in ("a" * 5_000, "a\0b"):
        with pytest.raises(ValueError, match=r"cannot be read|does not exist"):
            load_collection(path)


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
