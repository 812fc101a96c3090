"""Drift: documents that a search puts on top although they hold none of the rare typed words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from kytolly.search.index.bm25 import BM25Index

TOP = 10  # documents of a ranking that count


def rare_words(index: BM25Index, weights: Mapping[str, float]) -> list[str]:
    """The rarer half of a query's terms, at least one, among those that documents contain.

    Args:
        index: The documents.
        weights: Terms of the query as it was typed.
    """
    known = [term for term in weights if term in index.term_ids]
    frequency = index.document_frequency[[index.term_ids[term] for term in known]]
    rarest = np.argsort(frequency, kind="stable")[: max(1, len(known) // 2)]
    return [known[place] for place in rarest]


def drifted_documents(
    index: BM25Index, weights: Mapping[str, float], documents: Sequence[int]
) -> int:
    """The number of the best `TOP` documents that hold none of a query's `rare_words`.

    Args:
        index: The documents.
        weights: Terms of the query as it was typed.
        documents: Places of documents, best first.
    """
    holders = [index.postings(term)[0] for term in rare_words(index, weights)]
    if not holders:
        return 0
    return int((~np.isin(documents[:TOP], np.concatenate(holders))).sum())
