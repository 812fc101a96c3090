"""Queries with known answers, made from the documents themselves.

A part of a document becomes a query, and the document without that part is its answer. So there is
something to learn from where nobody has judged anything, and the answer is not given away.

Sources: Azzopardi, de Rijke & Balog 2007, "Building Simulated Queries for Known-Item Topics";
Lee, Chang & Toutanova 2019, "Latent Retrieval for Weakly Supervised Open Domain Question
Answering", arXiv:1906.00300 (the inverse cloze task: the sentence is removed).
"""

from __future__ import annotations

import dataclasses
import re

import numpy as np

from kytolly.search.index.collection import Collection

SENTENCE_END = re.compile(r"(?<=[.!?;:\n])\s+")
QUERY_WORDS = (3, 12)  # fewest and most words of a query
REST_WORDS = 10  # fewest words that must remain of a document
OPENING_SHARE = 0.3  # of the queries are the beginning of their document, as a title is


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
        sentences = [one.split() for one in SENTENCE_END.split(text)]
        fitting = [place for place, one in enumerate(sentences) if len(one) >= fewest]
        if not fitting:
            return None
        place = int(rng.choice(fitting))
        sentence = sentences[place]
        first = int(rng.integers(0, max(1, len(sentence) - most + 1)))
        query = sentence[first : first + most]
        sentences[place] = []
        rest = [word for one in sentences for word in one]
    if len(query) < fewest or len(rest) < REST_WORDS:
        return None
    return " ".join(query), " ".join(rest)
