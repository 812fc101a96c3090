"""Queries that several splits have: who learns from some and is measured by others says so."""

import shutil
import warnings

import pytest

from kytolly.search import ranker_training
from kytolly.search.config.ranker import RankerConfig
from kytolly.search.config.rewriter import RewriterConfig
from kytolly.search.index.collection import Collection, warn_of_shared_queries
from kytolly.search.reformulate import train as reformulation
from kytolly.search.text import train_rewriter as rewriter
from tests.search.reformulate.tiny_collection import make_options, write_collection


def judged(**splits):
    """A collection in which queries q0 to q5 have the texts a, b, c, A, "" and d."""
    return Collection(
        name="made",
        doc_ids=["d"],
        texts=["text"],
        query_ids=[f"q{n}" for n in range(6)],
        queries=["a", "b", "c", " A", "", "d"],
        judgments={name: {key: {"d": 1} for key in part.split()} for name, part in splits.items()},
    )


def test_the_warning_counts_ids_and_texts_of_earlier_splits():
    # dev: q1 is a train query, and q3 has the text of q0; test: q2 is a dev query, q5 is new.
    collection = judged(train="q0 q1", dev="q1 q2 q3", test="q2 q5")
    message = "made: 2 of 3 dev queries are also in train, and 1 of 2 test queries are also in"
    with pytest.warns(UserWarning, match=message):
        warn_of_shared_queries(collection)


@pytest.mark.parametrize(
    "splits", [{"train": "q0 q1", "dev": "q2", "test": "q4 q5"}, {"train": "q0 q3"}, {}]
)
def test_splits_that_share_nothing_get_no_warning(splits):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_of_shared_queries(judged(**splits))


class Stop(Exception):
    """The collection was read."""


@pytest.mark.parametrize("kind", ["reformulation", "ranker", "rewriter"])
def test_training_warns_of_shared_queries(kind, tmp_path, monkeypatch):
    pytest.importorskip("wordllama")
    folder = write_collection(tmp_path / "tiny")
    shutil.copy(folder / "qrels" / "train.tsv", folder / "qrels" / "test.tsv")

    def stop(*_):
        raise Stop

    monkeypatch.setattr(reformulation, "_split_table", stop)
    monkeypatch.setattr(ranker_training, "RankingTask", stop)
    monkeypatch.setattr(rewriter, "RewriterTask", stop)
    train = {
        "reformulation": lambda: reformulation.train(
            make_options(folder), log_dir=tmp_path / "run", test=True
        ),
        "ranker": lambda: ranker_training.train_ranker(RankerConfig(), folder, tmp_path / "run"),
        "rewriter": lambda: rewriter.train_rewriter(RewriterConfig(), folder, tmp_path / "run"),
    }
    message = "tiny: 25 of 25 test queries are also in train or dev, with the same id"
    with pytest.warns(UserWarning, match=message), pytest.raises(Stop):
        train[kind]()
