"""Queries to learn from: judged ones in parts that are held out, and ones made of documents.

Who learns from train queries knows them by heart. To see how good it is with others, the queries
are cut into parts, and for each part one more learns from the rest. Where nobody has judged
anything, a part of a document becomes a query, and the document without that part is its answer:
so the answer is not given away.

Sources: Wolpert 1992, "Stacked Generalization"; Azzopardi, de Rijke & Balog 2007, "Building
Simulated Queries for Known-Item Topics"; Lee, Chang & Toutanova 2019, "Latent Retrieval for Weakly
Supervised Open Domain Question Answering", arXiv:1906.00300 (the inverse cloze task: the sentence
is removed).
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from kytolly.search.index.collection import Collection

SENTENCE_END = re.compile(r"(?<=[.!?;:\n])\s+")
QUERY_WORDS = (3, 12)  # fewest and most words of a query
REST_WORDS = 10  # fewest words that must remain of a document
OPENING_SHARE = 0.3  # of the queries are the beginning of their document, as a title is


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
    part_of_group = np.zeros(len(sizes), np.int64)
    for group in np.random.default_rng(seed).permutation(len(sizes)):
        part_of_group[group] = part = int(np.argmin(filled))  # the smallest one
        filled[part] += sizes[group]
    return part_of_group[groups]


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


def synthetic_collection(collection: Collection, count: int, seed: int = 0) -> Collection:
    """A collection whose train queries are parts of its documents, which those documents lack.

    Args:
        collection: The documents.
        count: Most queries. Documents that are too short give none, others at most one.
        seed: Seed of the draws.
    """
    rng = np.random.default_rng(seed)
    texts, queries, grades = list(collection.texts), {}, {}
    for doc in rng.permutation(len(texts)):
        if len(queries) == count:
            break
        parts = _query_and_rest(texts[doc], rng)
        if parts is not None:
            name = f"synthetic-{len(queries)}"
            queries[name], texts[doc] = parts
            grades[name] = {collection.doc_ids[doc]: 1}
    return dataclasses.replace(
        collection,
        name=f"{collection.name}, synthetic",
        texts=tuple(texts),
        query_ids=tuple(queries),
        queries=tuple(queries.values()),
        judgments={"train": grades},
    )


def _query_and_rest(text: str, rng: np.random.Generator) -> tuple[str, str] | None:
    """A part of a text and the text without it; None where it is too short."""
    fewest, most = QUERY_WORDS
    if rng.random() < OPENING_SHARE:
        words = text.split()
        size = int(rng.integers(fewest, most + 1))
        query, rest = words[:size], words[size:]
    else:
        sentences = [sentence.split() for sentence in SENTENCE_END.split(text)]
        fitting = [number for number, words in enumerate(sentences) if len(words) >= fewest]
        if not fitting:
            return None
        chosen = int(rng.choice(fitting))
        sentence = sentences[chosen]
        first = int(rng.integers(0, max(1, len(sentence) - most + 1)))
        query = sentence[first : first + most]
        sentences[chosen] = []
        rest = [word for words in sentences for word in words]
    if len(query) < fewest or len(rest) < REST_WORDS:
        return None
    return " ".join(query), " ".join(rest)
