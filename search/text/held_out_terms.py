"""Proposals for the queries that a rewriter learned from, by others that did not.

A rewriter knows the terms of its training queries by heart. Who learns how far to trust it has to
see what it proposes for queries that are new to it. So the training queries are cut into parts
(`search.index.training_queries`), and the terms of each part are those of one more rewriter, which
learned from the others.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import msgspec

from kytolly.config.files import read_json
from kytolly.record.files import write_text
from kytolly.search.text.rewriting_words import Term

HELD_OUT_FILE = "held_out_terms.json"
Probability = Annotated[float, msgspec.Meta(le=0.0)]


def write_held_out(path: Path, terms: Mapping[str, Sequence[Term]], updates: int) -> None:
    """Write the terms of queries, by the queries' texts, and after how many updates of the run."""
    write_text(path, json.dumps({"updates": updates, "terms": terms}, ensure_ascii=False) + "\n")


def read_held_out(path: Path, updates: int | None = None) -> dict[str, list[Term]] | None:
    """The terms that `write_held_out` wrote; None if there is no file, or one of other `updates`.

    Raises:
        ValueError: The file holds something else.
    """
    if not path.is_file():
        return None
    advice = "expected what `kytolly train rewriter` writes: train it again"
    saved = read_json(path, _HeldOutFile, advice)
    if updates not in (None, saved.updates):
        return None
    return {text: [Term(*one) for one in row] for text, row in saved.terms.items()}


class _HeldOutFile(msgspec.Struct, forbid_unknown_fields=True):
    updates: int
    terms: dict[str, list[tuple[str, Probability]]]
