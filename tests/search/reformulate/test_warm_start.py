"""Which train queries the networks of the warm start leave out together."""

import numpy as np
import pytest

from kytolly.search.reformulate.prepare import prepare
from kytolly.search.reformulate.warm_start import parts_of
from tests.search.reformulate.tiny_collection import make_options, write_collection


@pytest.fixture(scope="module")
def prepared(collection):
    return prepare(make_options(collection), lambda line: None)


def parts_by_topic(found):
    """[8, 3] the parts of the three queries of each topic, which share relevant documents."""
    parts = parts_of(found.context, found.train, found.dev)
    assert parts is not None and set(parts) == {0, 1, 2}
    return parts.reshape(8, 3)


def test_paraphrases_stay_together_where_dev_queries_are_of_other_documents(prepared):
    parts = parts_by_topic(prepared)
    assert (parts == parts[:, :1]).all()
    assert sorted(np.bincount(parts[:, 0])) == [2, 3, 3]


def test_paraphrases_are_parted_where_dev_queries_have_the_same_documents(tmp_path):
    other = write_collection(tmp_path / "tiny")
    path = other / "qrels" / "dev.tsv"
    rows = [f"q{k}.0\tgood{k - 8}.0\t1" for k in (8, 9, 10)]
    path.write_text("\n".join([path.read_text().splitlines()[0], *rows]) + "\n")
    parts = parts_by_topic(prepare(make_options(other), lambda line: None))
    assert (parts != parts[:, :1]).any()
    assert np.bincount(parts.ravel()).tolist() == [8, 8, 8]


def test_a_query_is_not_its_own_relevant_document(tmp_path):
    other = write_collection(tmp_path / "tiny")
    first = (other / "corpus.jsonl").read_text().splitlines()[0]
    with (other / "queries.jsonl").open("a") as file:
        file.write(first + "\n")
    rows = "query-id\tcorpus-id\tscore\ngood0.0\tgood0.0\t1\ngood0.0\tgood9.0\t1\n"
    (other / "qrels" / "dev.tsv").write_text(rows)
    found = prepare(make_options(other), lambda line: None)
    assert found.dev is not None and len(found.dev.number) == 1
    parts = parts_by_topic(found)
    assert (parts == parts[:, :1]).all()


@pytest.mark.parametrize("folds", [0, 25])
def test_none_are_asked_for_or_there_are_too_few_queries(collection, folds):
    found = prepare(make_options(collection, held_out_folds=folds), lambda line: None)
    assert found.train is not None
    assert parts_of(found.context, found.train, found.dev) is None
