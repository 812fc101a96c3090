"""Search engines on disk: rankings by hand, rankings equal to our index's, and refusals."""

import json
import math
import sqlite3
import subprocess
import sys
import warnings
from pathlib import Path

import bm25s
import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st

from kytolly.search.index import fts5_engine
from kytolly.search.index.bm25 import BM25Index
from kytolly.search.index.bm25s_engine import BM25SEngine
from kytolly.search.index.engines import IndexEngine, open_engine
from kytolly.search.index.fts5_engine import FTS5Engine
from tests.search.index.words import Words

RNG = np.random.default_rng(0)
WORDS = [f"w{n}" for n in range(60)]
TEXTS = [" ".join(RNG.choice(WORDS, RNG.integers(3, 12))) for _ in range(50)]
IDS = [f"d{n}" for n in range(50)]
QUERY = {"w1": 1.0, "w2": 0.3, "w3": 2.0, "w7": 0.5, "unknown": 9.0}


def make_table(path, rows, sql="CREATE VIRTUAL TABLE docs USING fts5(id UNINDEXED, text)"):
    database = sqlite3.connect(path)
    database.execute(sql)
    database.executemany(f"INSERT INTO docs VALUES ({','.join('?' * len(rows[0]))})", rows)
    database.commit()
    database.close()
    return f"sqlite:{path}"


def save_bm25s(folder, corpus=None, **settings):
    index = bm25s.BM25(k1=1.2, b=0.75, **settings)
    index.index([text.split() for text in TEXTS], show_progress=False)
    index.save(folder, corpus=corpus, show_progress=False)
    return index


def refusal(address, **options):
    with pytest.raises(ValueError) as caught:
        open_engine(str(address), **options)
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_fts5_by_hand(tmp_path):
    rows = [("a", "ice cave"), ("b", "ice ice sea wind"), ("c", "sand dune"), ("d", "wind")]
    address = make_table(tmp_path / "a db?#.db", rows)
    engine = open_engine(address, table="docs", text_column="text", doc_ids=list("dcba"))

    # cave is in 1 of 4 documents of 2.25 words on average: idf ln(3.5 / 1.5); k1 1.2, b 0.75.
    def score(idf, tf, length):
        return idf * tf * 2.2 / (tf + 1.2 * (0.25 + 0.75 * length / 2.25))

    rare, half = math.log(3.5 / 1.5), 1e-6  # in half of the documents or more: 1e-6
    ids, scores = engine.search({"cave": 0.5, "sea": 1.0}, 10)
    assert ids == ["b", "a"]
    np.testing.assert_allclose(scores, [score(rare, 1, 4), 0.5 * score(rare, 1, 2)])
    assert engine.search({"cave": 2.0, "sea": 1.0}, 10)[0] == ["a", "b"]  # weights decide
    ids, scores = engine.word_scores("ice")
    assert ids == ["a", "b"]
    np.testing.assert_allclose(scores, [score(half, 1, 2), score(half, 2, 4)])
    assert engine.search({"sand": 1.0, "dune": 1.0, "cave": 1.0}, 1)[0] == ["c"]
    assert engine.search({"nothing": 1.0, "!": 1.0, "": 1.0}, 3)[0] == []
    assert engine.search({}, 3)[0] == []
    assert engine.search({"sand": 1.0, "sea": -1.0}, 3)[0] == ["c", "b"]


def test_fts5_ranks_as_our_index_where_the_formulas_are_equal(tmp_path):
    address = make_table(tmp_path / "docs.db", list(zip(IDS, TEXTS, strict=True)))
    ours = IndexEngine(BM25Index(TEXTS, Words(), k1=1.2), IDS)
    engines = [open_engine(address, table="docs", text_column=c) for c in ("text", None)]
    # FTS5's idf has no mean: equal where no word is in half of the documents.
    assert ours.index.document_frequency.max() < 25
    expected, scores = ours.search(QUERY, 20)
    assert len(expected) == 20
    for engine in engines:
        found, values = engine.search(QUERY, 20)
        np.testing.assert_allclose(values, scores, rtol=1e-5)
        assert found == expected
        assert sorted(engine.word_scores("w3")[0]) == sorted(ours.word_scores("w3")[0])


def test_fts5_searches_the_column_that_is_named_with_the_tables_own_tokenizer(tmp_path):
    sql = "CREATE VIRTUAL TABLE docs USING fts5(title, body, key UNINDEXED, tokenize='porter')"
    rows = [("ice", "running waters", 7), ("running", "ice", 8), ("", "sea", 9), ("", "sand", 10)]
    address = make_table(tmp_path / "x.db", rows + [("", "dune", 11)], sql)
    options = {"table": "docs", "id_column": "key"}
    body = open_engine(address, text_column="body", **options)
    assert body.search({"runs": 1.0}, 5)[0] == ["7"]  # stems are the table's affair
    assert sorted(open_engine(address, **options).search({"runs": 1.0}, 5)[0]) == ["7", "8"]
    rows = open_engine(address, table="docs", id_column="rowid").search({"sea": 1.0}, 5)
    assert rows[0] == ["3"]


def test_a_contentless_table_has_row_ids_only(tmp_path):
    sql = "CREATE VIRTUAL TABLE docs USING fts5(id UNINDEXED, text, content='')"
    address = make_table(tmp_path / "x.db", [("a", "ice"), ("b", "sea"), ("c", "sand")], sql)
    assert open_engine(address, table="docs", id_column="rowid").search({"sea": 1.0}, 3)[0] == ["2"]
    with pytest.raises(ValueError, match=r'has no id .*choose id_column="rowid"'):
        open_engine(address, table="docs").search({"sea": 1.0}, 3)


def test_bm25s_ranks_as_our_index_with_its_idf_and_as_bm25s_itself(tmp_path):
    theirs = save_bm25s(tmp_path, [{"id": key, "text": "x"} for key in IDS], method="atire")
    engine = open_engine(f"bm25s:{tmp_path}", doc_ids=IDS)
    index = BM25Index(TEXTS, Words(), k1=1.2)
    # "atire" has the idf ln(D / n), ours ln((D - n + 0.5) / (n + 0.5)); the rest is equal.
    n = {word: int(index.document_frequency[index.term_ids[word]]) for word in list(QUERY)[:4]}
    ratio = {
        word: math.log(50 / n[word]) / math.log((50.5 - n[word]) / (n[word] + 0.5)) for word in n
    }
    weights = {word: weight * ratio.get(word, 1) for word, weight in QUERY.items()}
    expected, scores = IndexEngine(index, IDS).search(weights, 20)
    found, values = engine.search(QUERY, 20)
    assert found == expected
    np.testing.assert_allclose(values, scores, rtol=1e-4)
    whole = theirs.get_scores(["w1", "w2", "w2"])
    found, values = engine.search({"w1": 1.0, "w2": 2.0}, 50)
    np.testing.assert_allclose(values, [whole[IDS.index(key)] for key in found], rtol=1e-5)
    assert len(found) == np.count_nonzero(whole)


def test_bm25l_scores_documents_that_lack_a_word(tmp_path):
    theirs = save_bm25s(tmp_path, method="bm25l")
    found, values = open_engine(f"bm25s:{tmp_path}", doc_ids=IDS).search({"w1": 1, "w2": 1}, 9)
    whole = theirs.get_scores(["w1", "w2"])
    np.testing.assert_allclose(values, [whole[IDS.index(key)] for key in found], rtol=1e-5)
    np.testing.assert_allclose(values, np.sort(whole)[::-1][:9], rtol=1e-5)


def test_bm25s_makes_tokens_as_its_index_did(tmp_path):
    index = bm25s.BM25()
    tokens = bm25s.tokenize(
        ["Ice caves", "Sea winds", "a sand"], show_progress=False, stemmer=stems
    )
    index.index(tokens, show_progress=False)
    index.save(tmp_path, corpus=["Ice caves", "Sea winds", "a sand"], show_progress=False)
    plain = open_engine(f"bm25s:{tmp_path}")
    assert plain.search({"SEA": 1.0}, 3)[0] == ["1"]  # bm25s numbers texts that have no ids
    assert plain.search({"caves": 1.0, "": 1.0}, 3)[0] == []
    stemming = open_engine(f"bm25s:{tmp_path}", doc_ids=["a", "b", "c"], tokenizer=rules)
    assert stemming.search({"Caves": 1.0}, 3)[0] == ["a"]


def stems(words):
    return [word.rstrip("s") for word in words]


def rules(text):
    return stems(text.lower().split())


def test_our_own_index_is_opened_with_ids(tmp_path):
    BM25Index(["running ice", "sea", "sand"]).save(tmp_path / "index.npz")
    engine = open_engine(f"index:{tmp_path / 'index.npz'}", doc_ids=["a", "b", "c"])
    ids, scores = engine.search({"runs": 1.0, "the": 5.0}, 3)
    assert ids == ["a"] and scores == pytest.approx(engine.index.scores({"run": 1.0})[:1])
    assert engine.word_scores("sea")[0] == ["b"]
    with pytest.raises(ValueError, match="the weight nan; expected a finite number"):
        engine.search({"ice": math.nan}, 3)
    assert "2 ids were given for an index of 3" in refusal(
        f"index:{tmp_path / 'index.npz'}", doc_ids=["a", "b"]
    )
    assert "holds no ids" in refusal(f"index:{tmp_path / 'index.npz'}")
    assert "is no file" in refusal(f"index:{tmp_path}", doc_ids=[])


def test_addresses_that_are_none(tmp_path):
    for address in ("docs.db", "sqlite:", "", "elastic:http://x"):
        assert "expected index:PATH, bm25s:PATH, sqlite:PATH" in refusal(address)
    assert "Did you mean 'sqlite'?" in refusal("sqlit:x.db", table="docs")
    assert "give table=" in refusal("sqlite:x.db")


def test_databases_that_cannot_be_searched(tmp_path):
    path = tmp_path / "docs.db"
    address = make_table(path, [("a", "ice"), ("b", "sea")])
    database = sqlite3.connect(path)
    database.execute("CREATE TABLE plain (id, text)")
    database.execute("CREATE TABLE using_fts5 (id, text)")
    database.commit()
    database.close()
    assert "does not exist" in refusal(f"sqlite:{tmp_path}/no.db", table="docs")
    assert not (tmp_path / "no.db").exists()
    assert "no regular file" in refusal(f"sqlite:{tmp_path}", table="docs")
    (tmp_path / "text.db").write_text("not a database, but long enough to be one" * 9)
    assert "SQLite says: file is not a database" in refusal(
        f"sqlite:{tmp_path}/text.db", table="docs"
    )
    said = refusal(address, table="doc")
    assert "has no table 'doc'; its FTS5 tables are: docs. Did you mean 'docs'?" in said
    for name in ("plain", "using_fts5"):
        assert f"the table '{name}' in {path} is no FTS5 table" in refusal(address, table=name)
    said = refusal(address, table="docs", id_column="ids")
    assert "id_column 'ids' is no column of docs" in said and "Did you mean 'id'?" in said
    assert "'txt' is no column" in refusal(address, table="docs", text_column="txt")
    assert "text_column 'id' is not indexed" in refusal(address, table="docs", text_column="id")
    said = refusal(address, table="docs", doc_ids=["a", "c", "d"])
    assert "has 2 ids, and the collection has 3; 3 are in one of them only (the first: 'b')" in said
    path.write_bytes(path.read_bytes()[:5_000])
    assert "SQLite says: " in refusal(address, table="docs", doc_ids=["a", "b"])


@hypothesis.settings(max_examples=60, deadline=None)
@hypothesis.given(st.dictionaries(st.text(max_size=12), st.floats(-9, 9), max_size=4))
def test_any_words_are_only_words(shared_engine, weights):
    ids, scores = shared_engine.search({**weights, "ice": 0.1}, 3)
    assert set(ids) <= {"a", "b", "c"} and np.isfinite(scores).all()


@pytest.fixture(scope="module")
def shared_engine(tmp_path_factory):
    rows = [("a", "ice AND cave"), ("b", "sea* OR (wind)"), ("c", 'a "b" NEAR c')]
    address = make_table(tmp_path_factory.mktemp("sqlite") / "x.db", rows)
    engine = open_engine(address, table="docs", text_column="text")
    yield engine
    engine.close()


def test_a_python_without_fts5_is_named(tmp_path, monkeypatch):
    address = make_table(tmp_path / "docs.db", [("a", "ice")])

    class Without(sqlite3.Connection):
        def execute(self, query, *values):
            if "table_info" in query:
                raise sqlite3.OperationalError("no such module: fts5")
            return super().execute(query, *values)

    connect = sqlite3.connect
    monkeypatch.setattr(
        fts5_engine.sqlite3, "connect", lambda *a, **k: connect(*a, factory=Without, **k)
    )
    assert "was built without FTS5: if TensorFlow was imported before" in refusal(
        address, table="docs"
    )


@pytest.mark.learning  # a process that imports TensorFlow first
def test_fts5_is_found_beside_tensorflow_which_has_a_sqlite_without_it():
    code = (
        "import tensorflow; from kytolly.search.index.fts5_engine import sqlite3; "
        "sqlite3.connect(':memory:').execute('CREATE VIRTUAL TABLE docs USING fts5(text)')"
    )
    root = Path(__file__).parents[3]
    run = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr[-500:]


def test_the_database_is_only_read(tmp_path):
    engine = FTS5Engine(
        make_table(tmp_path / "x.db", [("a", "ice")]).removeprefix("sqlite:"), "docs"
    )
    with pytest.raises(ValueError, match="readonly database"):
        engine._rows("DELETE FROM docs")
    engine.close()


def break_parameters(folder):
    (folder / "params.index.json").write_text('{"k1": ')


def break_columns(folder):
    starts = np.load(folder / "indptr.csc.index.npy")
    starts[3] = 10**6
    np.save(folder / "indptr.csc.index.npy", starts)


def break_documents(folder):
    places = np.load(folder / "indices.csc.index.npy")
    places[0] = 50
    np.save(folder / "indices.csc.index.npy", places)


def break_vocabulary(folder):
    words = json.loads((folder / "vocab.index.json").read_text())
    (folder / "vocab.index.json").write_text(json.dumps({**words, "w1": 10**6}))


def remove_scores(folder):
    (folder / "data.csc.index.npy").unlink()


def pickle_scores(folder):
    np.save(folder / "data.csc.index.npy", np.array([{}]), allow_pickle=True)


@pytest.mark.parametrize(
    "change",
    [
        break_parameters,
        break_columns,
        break_documents,
        break_vocabulary,
        remove_scores,
        pickle_scores,
    ],
)
def test_damaged_indexes_of_bm25s_are_refused(tmp_path, change):
    save_bm25s(tmp_path)
    BM25SEngine(tmp_path, IDS)
    change(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert "cannot be read as an index of bm25s" in refusal(f"bm25s:{tmp_path}", doc_ids=IDS)


def test_folders_and_ids_that_do_not_fit_bm25s(tmp_path):
    assert "is no index of bm25s" in refusal(f"bm25s:{tmp_path}")
    assert "is no index of bm25s" in refusal(f"bm25s:{tmp_path}/no")
    save_bm25s(tmp_path)
    assert "has no corpus.jsonl with ids" in refusal(f"bm25s:{tmp_path}")
    assert "2 ids were found for 50 documents" in refusal(f"bm25s:{tmp_path}", doc_ids=["a", "b"])
    save_bm25s(tmp_path, [{"_id": key} for key in IDS])
    assert open_engine(f"bm25s:{tmp_path}").doc_ids == IDS
    said = refusal(f"bm25s:{tmp_path}", doc_ids=["d0", *IDS[2:], "d1"])
    assert "document 1 of" in said and "the id 'd1' there and 'd2' in doc_ids" in said
    (tmp_path / "corpus.jsonl").write_text('{"id": "a"}\n')
    assert "documents of" in refusal(f"bm25s:{tmp_path}", doc_ids=IDS)
    (tmp_path / "corpus.jsonl").write_text("{\n")
    assert "corpus.jsonl:1: not JSON" in refusal(f"bm25s:{tmp_path}", doc_ids=IDS)
