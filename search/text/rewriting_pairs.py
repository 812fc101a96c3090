"""Training data of a rewriter: queries, and terms or texts of their documents."""

from __future__ import annotations

from collections.abc import Collection as Group
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from kytolly.search.index.bm25 import BM25Index
from kytolly.search.index.collection import Collection

MIN_DOCUMENTS = 2  # a term of fewer is a name, or a typing error: nobody could guess it
OPENING = 8  # words of a document that stand for a query, about as many as questions have
FEEDBACK = 10  # documents of the first search that terms are mined from


class JudgedQuery(NamedTuple):
    """A query with the documents that it should find.

    Attributes:
        text: Of the query.
        relevant: Indices of its relevant documents, without the query itself.
        own: Index of the document that is the query; None: none is.
        best: The best terms of the relevant documents that the query lacks, best first.
    """

    text: str
    relevant: list[int]
    own: int | None
    best: list[str]


def judged_queries(
    collection: Collection, index: BM25Index, split: str, count: int
) -> list[JudgedQuery]:
    """The queries of a split whose relevant documents have terms that the query lacks.

    Args:
        collection: With judgments of the split.
        index: Of the collection's documents.
        split: Its name.
        count: Most terms of a query.
    """
    queries = []
    for number in collection.split(split):
        text, itself = collection.queries[number], collection.own_document(number)
        relevant = collection.relevant_others(number, split)
        best = best_terms(index, relevant, index.tokenizer(text), count)
        if best:
            queries.append(JudgedQuery(text, relevant, itself, best))
    return queries


def best_terms(index: BM25Index, docs: Iterable[int], without: Group[str], count: int) -> list[str]:
    """The terms that say most about some documents, best first.

    A term's weight is the sum of idf * log(1 + count) over the documents.

    Args:
        index: Of the collection's documents.
        docs: Their indices.
        without: Terms that are left out.
        count: Most terms.
    """
    weights = np.zeros(len(index.terms))
    for doc in docs:
        terms, counts = index.document_terms(doc)
        weights[terms] += index.idf[terms] * np.log1p(counts)
    weights[index.document_frequency < MIN_DOCUMENTS] = 0.0
    weights[[index.term_ids[term] for term in without if term in index.term_ids]] = 0.0
    order = np.argsort(-weights, kind="stable")[:count]
    return [index.terms[term] for term in order if weights[term] > 0]


def document_queries(
    collection: Collection, index: BM25Index, most: int, count: int, seed: int
) -> list[tuple[JudgedQuery, str]]:
    """Documents as if their first words were queries for the rest of their words.

    No judgment is read.

    Args:
        collection: The documents.
        index: Of the collection's documents.
        most: Documents, drawn by the seed.
        count: Most terms of each.
        seed: Of the draw.

    Returns:
        The queries and the rest of each document's text.
    """
    drawn = np.random.default_rng(seed).permutation(len(collection.texts))[:most]
    queries = []
    for doc in map(int, np.sort(drawn)):
        opening, rest = first_words(collection.texts[doc])
        best = best_terms(index, [doc], index.tokenizer(opening), count)
        if opening and best:
            queries.append((JudgedQuery(opening, [doc], None, best), rest))
    return queries


def first_words(text: str) -> tuple[str, str]:
    """A text's first sentence, of at most eight words and half of all words, and the rest."""
    words = text.split()
    most = min(OPENING, len(words) // 2)
    ends = (place for place, word in enumerate(words[:most], 1) if word[-1] in ".?!")
    end = next((place for place in ends if place > 1), most)
    return " ".join(words[:end]), " ".join(words[end:])


def mined_terms(index: BM25Index, query: JudgedQuery, count: int) -> list[str]:
    """The best terms of the documents that the query finds: what needs no learning."""
    docs, _ = index.search(index.query_weights(query.text), FEEDBACK + 1)
    others = [int(doc) for doc in docs if doc != query.own][:FEEDBACK]
    return best_terms(index, others, index.tokenizer(query.text), count)


def frequent_terms(
    queries: Sequence[JudgedQuery], index: BM25Index, learned: Sequence[JudgedQuery], count: int
) -> list[list[str]]:
    """For each query the terms that most queries of training should get: no look at the query."""
    terms, times = np.unique([term for one in learned for term in one.best], return_counts=True)
    ordered = [str(term) for term in terms[np.argsort(-times, kind="stable")]]
    chosen = []
    for query in queries:
        typed = set(index.tokenizer(query.text))
        chosen.append([term for term in ordered[: count + len(typed)] if term not in typed][:count])
    return chosen


def share_of_best(queries: Sequence[JudgedQuery], terms: Sequence[Sequence[str]]) -> float:
    """Mean over queries of the share of their best terms that are among the given ones."""
    shares = [
        len(set(query.best) & set(given)) / len(query.best)
        for query, given in zip(queries, terms, strict=True)
    ]
    return float(np.mean(shares))
