"""Parts of train queries that are to the others what new queries are to all of them.

Who learns from train queries knows them by heart. To see how good it is with others, the queries
are cut into parts, and for each part one more learns from the rest.

Source: Wolpert 1992, "Stacked Generalization".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np


class JudgedTexts(NamedTuple):
    """Queries with the documents that each should find.

    Attributes:
        texts: [Q] of the queries.
        relevant: [Q] indices of the relevant documents of each, without the query itself.
    """

    texts: Sequence[str]
    relevant: Sequence[Sequence[int]]


def held_out_parts(train: JudgedTexts, dev: JudgedTexts, parts: int, seed: int) -> np.ndarray:
    """[Q] the part, below `parts`, of each train query.

    A part should be to the rest what dev queries are to all train queries: if few of those share
    a relevant document with a train query, train queries that share one stay in one part, unless
    it would hold most of them, or a part none. Queries of equal text always stay in one part.

    Raises:
        ValueError: There are fewer different queries than parts.
    """
    groups = _group_of([[text] for text in train.texts])
    if groups.max() + 1 < parts:
        raise ValueError(
            f"held_out_folds is {parts}, and only {groups.max() + 1} different train queries can "
            "be learned from. Give fewer parts, or 0 for none."
        )
    if 2.0 * sharing(dev, train) < sharing(train, train):
        pairs = zip(*train, strict=True)
        alike = _group_of([[f"text {text}", *map(str, docs)] for text, docs in pairs])
        if alike.max() + 1 >= parts and 2 * np.bincount(alike).max() <= len(groups):
            groups = alike
    sizes, filled = np.bincount(groups), np.zeros(parts)
    found = np.zeros(len(sizes), np.int64)
    for group in np.random.default_rng(seed).permutation(len(sizes)):
        found[group] = part = int(np.argmin(filled))  # the smallest one
        filled[part] += sizes[group]
    return found[groups]


def sharing(queries: JudgedTexts, learned: JudgedTexts) -> float:
    """The share of queries with a relevant document of another one among the learned."""
    holders: dict[int, set[str]] = {}
    for text, docs in zip(*learned, strict=True):
        for doc in docs:
            holders.setdefault(doc, set()).add(text)
    shared = [
        any(holders.get(doc, set()) - {text} for doc in docs)
        for text, docs in zip(*queries, strict=True)
    ]
    return float(np.mean(shared)) if shared else 0.0


def _group_of(keys: Sequence[Sequence[str]]) -> np.ndarray:
    """[Q] number, from 0, of each one's group; those with a key in common are in one."""
    parent: dict[str, str] = {}

    def root(key: str) -> str:
        while parent.setdefault(key, key) != key:
            parent[key] = key = parent[parent[key]]
        return key

    for first, *others in keys:
        for other in others:
            parent[root(other)] = root(first)
    _, groups = np.unique([root(row[0]) for row in keys], return_inverse=True)
    return groups
