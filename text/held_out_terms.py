"""What a rewriter proposes for queries that it learned from, by others that did not.

A rewriter knows the terms of its training queries by heart. Who learns how far to trust it has to
see what it proposes for queries that are new to it. So the training queries are cut into parts,
and the terms of each part are those of one more rewriter, which learned from the others.

Source: Wolpert 1992, "Stacked Generalization".
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import msgspec
import numpy as np

from kytolly.record.files import write_text
from kytolly.text.rewriting_pairs import JudgedQuery
from kytolly.text.rewriting_words import Term

HELD_OUT_FILE = "held_out_terms.json"
Probability = Annotated[float, msgspec.Meta(le=0.0)]


def held_out_parts(
    train: Sequence[JudgedQuery], dev: Sequence[JudgedQuery], parts: int, seed: int
) -> np.ndarray:
    """[Q] the part, below `parts`, of each training query.

    A part should be to the rest what dev queries are to all training queries: if few of those share
    a relevant document with a training query, queries that do stay in one part, unless that would
    hold most of them. Queries of equal text always stay in one part.

    Raises:
        ValueError: There are fewer different queries than parts.
    """
    groups = _group_of([[query.text] for query in train])
    if groups.max() + 1 < parts:
        raise ValueError(
            f"held_out_folds is {parts}, and only {groups.max() + 1} different train queries can "
            "be learned from. Give fewer parts, or 0 for none."
        )
    if 2.0 * sharing(dev, train) < sharing(train, train):
        alike = _group_of([[f"text {q.text}", *map(str, q.relevant)] for q in train])
        if 2 * np.bincount(alike).max() <= len(train):
            groups = alike
    sizes, filled = np.bincount(groups), np.zeros(parts)
    found = np.zeros(len(sizes), np.int64)
    for group in np.random.default_rng(seed).permutation(len(sizes)):
        found[group] = part = int(np.argmin(filled))  # the smallest one
        filled[part] += sizes[group]
    return found[groups]


def sharing(queries: Sequence[JudgedQuery], learned: Sequence[JudgedQuery]) -> float:
    """The share of queries with a relevant document of another one among the learned."""
    holders: dict[int, set[str]] = {}
    for query in learned:
        for doc in query.relevant:
            holders.setdefault(doc, set()).add(query.text)
    shared = [
        any(holders.get(doc, set()) - {query.text} for doc in query.relevant) for query in queries
    ]
    return float(np.mean(shared)) if shared else 0.0


def write_held_out(path: Path, terms: Mapping[str, Sequence[Term]], updates: int) -> None:
    """Write the terms of queries, by the queries' texts, and after how many updates of the run."""
    write_text(path, json.dumps({"updates": updates, "terms": terms}, ensure_ascii=False) + "\n")


def read_held_out(path: Path, updates: int | None = None) -> dict[str, list[Term]] | None:
    """What `write_held_out` wrote; None if there is no file, or one of other `updates`.

    Raises:
        ValueError: The file holds something else.
    """
    if not path.is_file():
        return None
    try:
        found = msgspec.json.decode(path.read_bytes(), type=_HeldOutFile)
    except (msgspec.MsgspecError, OSError) as error:
        raise ValueError(
            f"{path} cannot be read ({error}); expected what `kytolly train rewriter` writes: "
            "train it again."
        ) from None
    if updates not in (None, found.updates):
        return None
    return {text: [Term(*one) for one in row] for text, row in found.terms.items()}


class _HeldOutFile(msgspec.Struct, forbid_unknown_fields=True):
    updates: int
    terms: dict[str, list[tuple[str, Probability]]]


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
