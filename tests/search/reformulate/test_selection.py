"""A choice made in pools of documents is confirmed, or not, by searches of all of them."""

import json

import numpy as np
import pytest

from kytolly.search.reformulate import selection
from kytolly.search.reformulate.choice import Choice, HeldOut
from kytolly.search.reformulate.device_env import DeviceQueries
from kytolly.search.reformulate.options import ReformulationOptions, RetrievalOptions
from kytolly.search.reformulate.search import SearchContext
from kytolly.search.reformulate.selection import (
    SHARES,
    Sample,
    confirm_choice,
    sample_plans,
    whole_gains,
)
from kytolly.search.reformulate.table import make_table

TOPICS = 24


class Adds:
    """Gives one weight to each candidate whose place is among some."""

    def __init__(self, context, wanted, weight=1.0):
        self.places, self.weight = {}, weight
        for query in context.queries("dev"):
            kept = [one.startswith(wanted) for one in query.candidates]
            self.places[query.candidate_features.tobytes()] = kept

    def __call__(self, candidates, state):
        weights = np.zeros(candidates.shape[:2], np.float32)
        for row, given in enumerate(candidates):
            for key, kept in self.places.items():
                features = np.frombuffer(key, np.float32).reshape(-1, given.shape[1])
                if np.array_equal(features, given[: len(features)]):
                    weights[row, : len(kept)] = np.where(kept, self.weight, 0.0)
        return weights, np.ones(len(candidates), np.float32)


@pytest.fixture(scope="module")
def context(tmp_path_factory):
    """For each topic a document that the query finds, and a relevant one that only `link` leads to.

    Many documents hold nothing but `far`, which the found documents hold as well.
    """
    folder = tmp_path_factory.mktemp("whole")
    docs = [(f"found{k}", f"topic{k} link{k} far") for k in range(TOPICS)]
    docs += [(f"good{k}", f"link{k} link{k}") for k in range(TOPICS)]
    docs += [(f"far{k}", "far far far") for k in range(200)]
    (folder / "qrels").mkdir()
    texts = {"corpus": docs, "queries": [(f"q{k}", f"topic{k} word") for k in range(TOPICS)]}
    for name, rows in texts.items():
        lines = (json.dumps({"_id": key, "text": text}) + "\n" for key, text in rows)
        (folder / f"{name}.jsonl").write_text("".join(lines), "utf-8")
    rows = "".join(f"q{k}\tgood{k}\t1\n" for k in range(TOPICS))
    (folder / "qrels" / "dev.tsv").write_text("query-id\tcorpus-id\tscore\n" + rows, "utf-8")
    retrieval = RetrievalOptions(encoder="hash", dimension=16, fusion=0.0, workers=1)
    return SearchContext.load(
        ReformulationOptions(collection=str(folder), retrieval=retrieval), ["dev"]
    )


def dev_sample(context, network):
    queries = context.queries("dev")
    return Sample("dev", queries, [network], np.zeros(len(queries), np.int64))


def test_gains_are_those_of_searches_of_all_documents(context):
    gains = whole_gains(context, dev_sample(context, Adds(context, "link")), Choice(0.0, 1.0))
    # nothing relevant is found before; after, behind the found document or, at a weight of 1,
    # before it: it holds the term twice
    assert gains.shape == (len(SHARES), TOPICS)
    assert (gains > 0.5).all()
    nothing = whole_gains(context, dev_sample(context, Adds(context, "none")), Choice(0.0, 1.0))
    np.testing.assert_array_equal(nothing, 0.0)


def test_what_helps_is_confirmed_and_what_harms_is_not(context):
    sample = dev_sample(context, Adds(context, "link"))
    helps = confirm_choice(context, Choice(0.0, 0.5), [sample], 0)
    assert helps.choice.scale in [0.5 * share for share in SHARES]
    assert helps.queries == TOPICS and helps.gain > 0.5 and helps.chance < 0.1
    harmful = dev_sample(context, Adds(context, "far", weight=8.0))
    found = confirm_choice(context, Choice(0.0, 1.0), [harmful], 0)
    assert found.choice == Choice(0.0, 0.0) and found.gain <= 0.0
    assert confirm_choice(context, Choice(0.0, 0.0), [sample], 0) is None
    assert confirm_choice(context, Choice(0.0, 1.0), [], 0) is None


def test_each_held_out_query_counts_with_its_own_network(context):
    queries = context.queries("dev")
    fold = np.arange(len(queries)) % 2
    networks = [Adds(context, "none"), Adds(context, "link")]
    sample = Sample("dev", queries, networks, fold)
    gains = whole_gains(context, sample, Choice(0.0, 1.0))
    np.testing.assert_array_equal(gains > 0.5, np.tile(fold == 1, (len(SHARES), 1)))
    plans = sample_plans(context, sample, Choice(0.0, 1.0))
    assert [plan.query for plan in plans] == queries
    assert [bool(plan.changes) for plan in plans] == (fold == 1).tolist()


def test_samples_are_drawn_with_the_network_and_the_part_of_each_query(context, monkeypatch):
    queries, networks = context.queries("dev"), [Adds(context, "none"), Adds(context, "link")]
    table = make_table(queries, context.index, context.documents, context.rules)
    monkeypatch.setattr(selection, "MAX_QUERIES", 10)
    drawn = selection.dev_sample(context, networks[1], table)
    numbers = [query.number for query in drawn.queries]
    assert len(numbers) == 10 and numbers == sorted(numbers) and drawn.networks == [networks[1]]
    assert selection.dev_sample(context, networks[1], None) is None
    context.collection.judgments["train"] = context.collection.judgments["dev"]
    fold, parts = np.arange(TOPICS) % 2, np.arange(TOPICS) % 3
    held_out = HeldOut(DeviceQueries(table, context.rules), networks, fold)
    found = selection.train_sample(context, held_out, parts)
    rows = [table.number.tolist().index(query.number) for query in found.queries]
    assert len(rows) == 10 and found.fold.tolist() == fold[rows].tolist()
    assert found.part.tolist() == parts[rows].tolist() and found.queries[0].has_relevant
    assert selection.train_sample(context, None, None) is None
