"""Files and flags from strangers, made by hypothesis: each is used, or refused in one line."""

import json
import warnings

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kytolly.command import entry as cli
from kytolly.search.index.bm25 import BM25Index
from kytolly.search.index.collection import SPLITS
from kytolly.search.index.corpus import load_collection, read_queries
from kytolly.search.reformulate.choice import read_choices

QUIET = [HealthCheck.too_slow, HealthCheck.data_too_large]


def check_all(examples, strategy, check):
    """Check the same examples in every run, without a limit of time for one of them."""
    settings(
        max_examples=examples,
        derandomize=True,
        deadline=None,
        database=None,
        suppress_health_check=QUIET,
    )(given(strategy)(check))()


SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
JSON = st.recursive(SCALARS, lambda parts: st.lists(parts, max_size=3), max_leaves=4)
IDS = st.sampled_from(["d1", "d2", "q1", "q2", "", " ", "a\tb", "a\0", "\ud800", "\u0661"]) | JSON
RECORDS = st.fixed_dictionaries({"_id": IDS, "text": st.text(max_size=30) | JSON}) | JSON
RECORD_LINES = RECORDS.map(lambda record: json.dumps(record).encode()) | st.binary(max_size=20)
GOOD_LINES = st.sampled_from([b"q1\td1\t1", b"q2\td2\t0", b"q1\td2\t-1", b"q2\td9\t2"])
JUDGED = st.tuples(*[st.text(max_size=6).map(lambda text: text.encode("utf-8", "replace"))] * 3)
JUDGMENT_LINES = GOOD_LINES | JUDGED.map(b"\t".join) | st.binary(max_size=20)
ENDS = st.sampled_from([b"\n", b"\r\n", b"\n\n", b"\r", b"\xff\n"])
BEGINS = st.sampled_from([b"", b"\xef\xbb\xbf", b"\xff\xfe"])


def content(lines, head=()):
    """Bytes of a file: good lines, strange lines, a strange line end, and a byte order mark."""
    return st.tuples(BEGINS, st.lists(lines, max_size=5), ENDS).map(
        lambda drawn: drawn[0] + drawn[2].join([*head, *drawn[1], b""])
    )


GOOD = [json.dumps({"_id": key, "text": f"some words {key}"}).encode() for key in ("x1", "x2")]
FILES = {
    "corpus.jsonl": content(RECORD_LINES, GOOD),
    "queries.jsonl": content(RECORD_LINES, GOOD),
    **{
        f"qrels/{name}.tsv": content(JUDGMENT_LINES, [b"query-id\tcorpus-id\tscore", b"x1\tx2\t1"])
        for name in SPLITS
    },
}


def refused(call, *args):
    """Whether a call refuses its input, which must be in one line."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            call(*args)
    except ValueError as error:
        assert "\n" not in str(error) and not isinstance(error, UnicodeError), error
        return True
    return False


def read_folder(folder):
    collection = load_collection(folder)
    index = BM25Index(collection.texts)
    for text in collection.queries:
        assert np.isfinite(index.scores(index.query_weights(text))).all()
    for split in SPLITS:
        for query in collection.split(split):
            assert all(doc < index.documents for doc in collection.relevant(query, split))


def check_folder(folder, files):
    (folder / "qrels").mkdir(exist_ok=True)
    for name, data in files.items():
        (folder / name).write_bytes(data)
    refused(read_queries, folder / "queries.jsonl")
    refused(read_folder, folder)


@pytest.mark.parametrize("examples", [25, pytest.param(500, marks=pytest.mark.learning)])
def test_a_collection_is_read_or_refused(tmp_path, examples):
    check_all(examples, st.fixed_dictionaries(FILES), lambda files: check_folder(tmp_path, files))


PLACES = st.integers(0, 2**16)
VALUES = st.integers(-(2**63), 2**63 - 1) | st.integers(-2, 40)
CHANGES = st.lists(
    st.tuples(st.sampled_from(["starts", "terms", "counts", "header", "bytes"]), PLACES, VALUES),
    min_size=1,
    max_size=4,
)
TEXTS = ["wide river", "a river bank", "the bank of a lake", "deep deep lake water", ""]


def check_index(path, changes):
    """Change numbers of a saved index, or bytes of its file, then load and search it."""
    BM25Index(TEXTS).save(path)
    with np.load(path) as data:
        parts = {name: part.copy() for name, part in data.items()}
    for name, place, value in changes:
        if name != "bytes":
            kind = np.uint8 if name == "header" else np.int64
            parts[name] = parts[name].astype(kind)
            parts[name][place % len(parts[name])] = np.int64(value).astype(kind)
    with path.open("wb") as file:
        np.savez(file, **parts)
    whole = bytearray(path.read_bytes())
    for name, place, value in changes:
        if name == "bytes":
            whole[place % len(whole)] = value % 256
    path.write_bytes(whole)

    def load_and_search():
        index = BM25Index.load(path, TEXTS)
        docs, scores = index.search({"river": 1.0, "lake": 2.0}, 3)
        assert np.isfinite(scores).all() and (docs < len(TEXTS)).all()

    refused(load_and_search)


@pytest.mark.parametrize("examples", [60, pytest.param(2_000, marks=pytest.mark.learning)])
def test_an_index_is_read_or_refused(tmp_path, examples):
    check_all(examples, CHANGES, lambda changes: check_index(tmp_path / "index.npz", changes))


NUMBERS = st.floats() | st.integers() | JSON
ROWS = st.fixed_dictionaries({"fusion": NUMBERS, "scale": NUMBERS, "margin": NUMBERS}) | JSON
CHOICES = st.fixed_dictionaries({"fusion": NUMBERS, "choices": st.lists(ROWS, max_size=10)}) | JSON


def check_choices(folder, data):
    (folder / "choice.json").write_bytes(data)

    def read():
        choices = read_choices(folder)
        for choice in (choices.at(choices.fusion), *choices.by_fusion.values()):
            assert 0 <= choice.fusion <= 1_000 and 0 <= choice.scale <= 1
            assert -1 <= choice.margin <= 1

    refused(read)


def test_choices_are_read_or_refused(tmp_path):
    files = CHOICES.map(lambda content: json.dumps(content).encode()) | st.binary(max_size=20)
    check_all(60, files, lambda data: check_choices(tmp_path, data))


LONG = "p" * 5_000
WORDS = st.sampled_from(
    ["", " ", LONG, "a\0b", "nowhere", "/dev/null", "\u0661\u0662", "-1", "0", "3", "1e3", "NaN"]
    + ["9" * 20, "9" * 5_000, "key12 noise1", "RUN", "QUERIES", "builtin/.."]
)
FLAGS = st.sampled_from(["--top", "--collection", "--queries", "--run-file", "--json", "--epochs"])
ARGUMENTS = st.tuples(WORDS, st.lists(WORDS | FLAGS, max_size=5)) | st.tuples(
    st.just("RUN"), st.lists(WORDS | FLAGS, max_size=5)
)


def check_flags(run, folder, capsys, arguments):
    """The command ends with 0, or with 2 and one line; no input changes."""
    queries = folder / "queries.jsonl"
    queries.write_text('{"_id": "q", "text": "key12 noise1"}\n')
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    names = {"RUN": str(run), "QUERIES": str(queries)}
    first, others = arguments
    status = cli.main(["reformulate", *(names.get(word, word) for word in [first, *others])])
    captured = capsys.readouterr()
    assert status in (0, 2), captured.err
    if status == 2:
        assert captured.out == "" and len(captured.err.strip().splitlines()) == 1, captured
    assert queries.read_text() == '{"_id": "q", "text": "key12 noise1"}\n'
    assert before == {path: path.read_bytes() for path in before}


@pytest.mark.parametrize("examples", [12, pytest.param(500, marks=pytest.mark.learning)])
def test_flags_are_used_or_refused(run, tmp_path, capsys, monkeypatch, examples):
    monkeypatch.chdir(tmp_path)
    check_all(examples, ARGUMENTS, lambda given: check_flags(run[0], tmp_path, capsys, given))
