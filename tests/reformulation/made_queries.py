"""Queries and an index made of random numbers, for tables and environments."""

import numpy as np

from kytolly.reformulation.query import Query


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


def make_query(number, index, candidates=6, relevant=3, seed=0, excluded=-1):
    rng = np.random.default_rng((seed, number))
    terms = rng.permutation(list(index.columns)).tolist()
    vectors = rng.normal(size=(candidates + 1, 5))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    documents = len(index.columns[terms[0]])
    return Query(
        number=number,
        weights=dict.fromkeys(terms[candidates : candidates + 2], 1.0),
        candidates=terms[:candidates],
        candidate_features=rng.normal(size=(candidates, 4)).astype(np.float32),
        state_features=rng.normal(size=3).astype(np.float32),
        similarity=(vectors[1:] @ vectors[1:].T).astype(np.float32),
        query_similarity=(vectors[1:] @ vectors[0]).astype(np.float32),
        relevant=np.sort(rng.choice(documents, relevant, replace=False)),
        excluded=excluded,
        surfaces=tuple(terms[:candidates]),
    )


def few_queries(index):
    """Five queries with many and few candidates and relevant documents; one excludes a document."""
    sizes = [(6, 3), (1, 1), (4, 0), (6, 20), (3, 2)]
    return [
        make_query(n, index, candidates, relevant, excluded=7 if n == 4 else -1)
        for n, (candidates, relevant) in enumerate(sizes)
    ]
