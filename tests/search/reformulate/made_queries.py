"""Queries and an index made of random numbers, for tables and environments."""

import numpy as np

from kytolly.search.index.fusion import DocumentVectors
from kytolly.search.reformulate.query import CANDIDATE_FEATURES, IN_QUERY, Query, SearchRules
from kytolly.search.reformulate.table import make_table

RULES = SearchRules("ndcg@10", 3, 6, 320)  # pools that hold all of 300 documents


class Scores:
    """An index whose columns are given: term -> [D] what it adds; coarse numbers, many tie."""

    def __init__(self, documents, terms, seed=0):
        rng = np.random.default_rng(seed)
        self.columns = {}
        for term in range(terms):
            column = rng.integers(1, 5, documents) * 0.5
            column[rng.random(documents) < 0.6] = 0.0
            self.columns[f"t{term}"] = column.astype(np.float32)

    def postings(self, term):
        column = self.columns[term]
        docs = np.flatnonzero(column)
        return docs, column[docs]

    def scores(self, weights):
        total = np.zeros(len(next(iter(self.columns.values()))), np.float32)
        for term, weight in weights.items():
            total += np.float32(weight) * self.columns[term]
        return total


def unit_rows(rows):
    return rows / np.linalg.norm(rows, axis=-1, keepdims=True)


def make_documents(count, seed=0):
    return DocumentVectors(unit_rows(np.random.default_rng(seed).normal(size=(count, 5))))


def with_flag(features, own=0):
    """Features [n, F], as wide as real ones; the last `own` rows are terms of the query."""
    wide = np.zeros((len(features), len(CANDIDATE_FEATURES)), np.float32)
    wide[:, : features.shape[1]] = features
    wide[len(features) - own :, IN_QUERY] = 1.0
    return wide


def make_query(number, index, candidates=6, relevant=3, seed=0, excluded=-1, own=0):
    rng = np.random.default_rng((seed, number))
    terms = rng.permutation(list(index.columns)).tolist()
    documents = len(index.columns[terms[0]])
    typed = terms[candidates : candidates + 2]
    return Query(
        number=number,
        weights=dict(zip(typed, (1.0, 2.0), strict=True)),
        candidates=terms[:candidates],
        candidate_features=with_flag(rng.normal(size=(candidates + own, 4)), own),
        state_features=rng.normal(size=3).astype(np.float32),
        vector=unit_rows(rng.normal(size=5)).astype(np.float32),
        relevant=np.sort(rng.choice(documents, relevant, replace=False)),
        excluded=excluded,
        surfaces=(*terms[:candidates], *typed[:own]),
        lowerable=tuple(typed[:own]),
    )


def few_queries(index):
    """Five queries with many and few terms and relevant documents; one excludes a document."""
    sizes = [(4, 2, 3), (1, 1, 1), (4, 0, 0), (6, 0, 20), (3, 2, 2)]
    return [
        make_query(n, index, candidates, relevant, excluded=7 if n == 4 else -1, own=own)
        for n, (candidates, own, relevant) in enumerate(sizes)
    ]


def helpful_table(count, seed=0):
    """Queries with one candidate, of four, that stands in the relevant documents.

    Its first feature is about 1, that of the others about 0. Nothing else says which it is.
    """
    rng = np.random.default_rng(seed)
    index, queries = Scores(documents=80, terms=3, seed=seed), []
    documents = make_documents(80, seed)
    for number in range(count):
        relevant = np.sort(rng.choice(80, 3, replace=False))
        good = int(rng.integers(4))
        names = [f"q{number}.{place}" for place in range(4)]
        for place, name in enumerate(names):
            where = relevant if place == good else rng.choice(80, 3, replace=False)
            index.columns[name] = np.zeros(80, np.float32)
            index.columns[name][where] = 3.0
        features = with_flag(rng.normal(scale=0.1, size=(4, 3)))
        features[good, 0] += 1.0
        query = make_query(number, Scores(80, 9), 4)
        weights = {"t0": 1.0, "t1": 1.0}
        queries.append(
            query._replace(
                weights=weights,
                candidates=names,
                candidate_features=features,
                relevant=relevant,
                surfaces=tuple(names),
            )
        )
    return make_table(queries, index, documents, SearchRules("ndcg@10", 2, 4, 64))
