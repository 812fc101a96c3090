"""A choice made in pools of documents is confirmed, or not, by searches of all of them."""

import json

import numpy as np
import pytest

from kytolly.search.reformulate.choice import Choice, HeldOut
from kytolly.search.reformulate.device_env import DeviceQueries
from kytolly.search.reformulate.options import ReformulationOptions, RetrievalOptions
from kytolly.search.reformulate.search import SearchContext
from kytolly.search.reformulate.selection import (
    SHARES,
    Sample,
    confirm_choice,
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
    numbers = np.array([query.number for query in context.queries("dev")])
    return Sample("dev", numbers, [network], np.zeros(len(numbers), np.int64))


def test_gains_are_those_of_searches_of_all_documents(context):
    gains = whole_gains(context, dev_sample(context, Adds(context, "link")), Choice(0.0, 1.0))
    # nothing relevant is found before; after, behind the found document or, at a weight of 1,
    # before it: it holds the term twice
    assert gains.shape == (len(SHARES), TOPICS)
    assert (gains > 0.5).all()
    nothing = whole_gains(context, dev_sample(context, Adds(context, "none")), Choice(0.0, 1.0))
    np.testing.assert_array_equal(nothing, 0.0)


def test_what_helps_is_confirmed_and_what_harms_is_not(context):
    numbers = dev_sample(context, None).numbers
    helps = confirm_choice(context, Choice(0.0, 0.5), Adds(context, "link"), numbers, None, 0)
    assert helps.choice.scale in [0.5 * share for share in SHARES]
    assert helps.queries == TOPICS and helps.gain > 0.5 and helps.chance < 0.1
    harmful = Adds(context, "far", weight=8.0)
    found = confirm_choice(context, Choice(0.0, 1.0), harmful, numbers, None, 0)
    assert found.choice == Choice(0.0, 0.0) and found.gain <= 0.0


def test_each_held_out_query_counts_with_its_own_network(context):
    queries = context.queries("dev")
    table = DeviceQueries(
        make_table(queries, context.index, context.documents, context.rules), context.rules
    )
    fold = np.arange(len(queries)) % 2
    networks = [Adds(context, "none"), Adds(context, "link")]
    numbers = np.array([query.number for query in queries])
    gains = whole_gains(context, Sample("dev", numbers, networks, fold), Choice(0.0, 1.0))
    assert (gains > 0.5).sum(axis=1).tolist() == [TOPICS // 2] * len(SHARES)
    held_out = HeldOut(table, networks, fold)
    assert confirm_choice(context, Choice(0.0, 0.0), networks[1], None, held_out, 0) is None
    assert confirm_choice(context, Choice(0.0, 1.0), networks[1], None, None, 0) is None
