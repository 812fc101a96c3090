"""Train the network that comes with the package, and see how it does on collections it never saw.

`python -m kytolly.search.scripts.pretrain_scorer FOLDER... [--out FILE]` learns from the train
queries of all collections, each in its language. With `--leave-one-out`, each collection is left
out once, and the network that learned from the others reformulates its queries: no judgment of that
collection was used.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from kytolly.search.index.corpus import available_splits
from kytolly.search.index.metrics import paired_bootstrap
from kytolly.search.model.candidate_scorer import CandidateScorer
from kytolly.search.reformulate.choice import UNTESTED, proposals
from kytolly.search.reformulate.device_env import (
    DeviceQueries,
    is_query_term,
    used_proposals,
)
from kytolly.search.reformulate.network import NumpyScorer, copied_scorer, make_scorer
from kytolly.search.reformulate.options import (
    TYPED_SHARE,
    AgentOptions,
    ReformulationOptions,
    RetrievalOptions,
)
from kytolly.search.reformulate.query import SearchRules
from kytolly.search.reformulate.search import SearchContext
from kytolly.search.reformulate.table import QueryTable, concatenation, make_table
from kytolly.search.reformulate.warm_start import fit_listwise
from kytolly.search.text.language import AUTO

MAX_QUERIES = 700  # train queries of a collection
MAX_TEST_QUERIES = 800
FUSIONS = (0.0, 1.0)
EPOCHS, LEARNING_RATE, DROPOUT = 15, 2e-3, 0.1


class Tables(NamedTuple):
    """The queries of one collection: to learn from, and to look at once; and its texts' digest."""

    train: QueryTable
    test: QueryTable
    digest: str


def make_tables(folder: str, rules: SearchRules, seed: int = 0) -> Tables:
    """Tables of a collection's train queries and of those of its test split."""
    splits = available_splits(folder)
    retrieval = RetrievalOptions(language=AUTO)
    options = ReformulationOptions(collection=folder, retrieval=retrieval, seed=seed)
    context = SearchContext.load(options, splits)

    def table(split: str, most: int) -> QueryTable:
        queries = [query for query in context.queries(split, most) if query.has_relevant]
        return make_table(queries, context.index, context.documents, rules)

    train, test = table("train", MAX_QUERIES), table("test", MAX_TEST_QUERIES)
    return Tables(train, test, context.index.digest)


def fit(tables: Sequence[QueryTable], rules: SearchRules, seed: int = 0) -> CandidateScorer:
    """A network that learned from the queries of several collections, each counting as much.

    It sees each query twice: with its own terms among what may change, as where it is trained
    further, and without, as where it is used as it is.
    """
    tables = [*tables, *map(without_own, tables)]
    whole = concatenation(tables)
    network = copied_scorer(make_scorer(whole, AgentOptions()), DROPOUT)
    ends = np.cumsum([len(table.number) for table in tables])
    groups = np.split(np.arange(ends[-1]), ends[:-1])
    queries = DeviceQueries(whole, rules, FUSIONS)
    fit_listwise(network, queries, groups, EPOCHS, LEARNING_RATE, seed)
    return copied_scorer(network, 0.0)


def without_own(table: QueryTable) -> QueryTable:
    """The table of the same queries if none of their own terms may be lowered."""
    addable = ~is_query_term(table.candidate_features)[..., np.newaxis]
    features, columns = table.candidate_features * addable, table.columns * addable
    return table._replace(candidate_features=features, columns=columns)


def leave_one_out(tables: Mapping[str, Tables], rules: SearchRules) -> None:
    """Print the gain on each collection of a network that learned from the others."""
    print(f"{'collection':<14} {'cosines':>7} {'BM25':>7} {'base':>7} {'gain':>8}  95% interval")
    for name, left_out in tables.items():
        network = NumpyScorer(fit([t.train for n, t in tables.items() if n != name], rules))
        test = DeviceQueries(without_own(left_out.test), rules)
        nothing = np.zeros((test.num_queries, test.candidates), np.float32)
        plain = test.values(0.0, nothing)
        for fusion in FUSIONS:
            base = test.values(fusion, nothing)
            weights = proposals(network, test, fusion)[0] * np.float32(UNTESTED)
            table = test.table
            features = table.candidate_features
            used = used_proposals(weights, features, table.state_features, rules, fusion)
            after = test.values(fusion, used)
            gain, low, high = paired_bootstrap(after.tolist(), base.tolist())
            print(
                f"{name:<14} {fusion:>7g} {plain.mean():>7.4f} {base.mean():>7.4f} {gain:>+8.4f}  "
                f"{low:+.4f} to {high:+.4f}",
                flush=True,
            )


def main(argv: Sequence[str]) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", nargs="+")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--leave-one-out", action="store_true")
    args = parser.parse_args(argv)
    tf.keras.utils.set_random_seed(0)
    retrieval = ReformulationOptions().retrieval
    rules = SearchRules(
        retrieval.metric,
        retrieval.max_terms,
        retrieval.width,
        typed_shares=(TYPED_SHARE, TYPED_SHARE),
    )
    tables = {}
    for folder in args.folders:
        tables[Path(folder).name] = make_tables(folder, rules)
        print(f"{folder}: {len(tables[Path(folder).name].train.number)} queries", file=sys.stderr)
    if args.leave_one_out:
        leave_one_out(tables, rules)
    if args.out:
        fit([one.train for one in tables.values()], rules).save(args.out)
        digests = {name: one.digest for name, one in tables.items()}
        args.out.with_suffix(".json").write_text(json.dumps(digests, indent=1) + "\n", "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
