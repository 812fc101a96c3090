"""A weighted query in the languages of other search engines.

Each function takes word -> weight. The words are words, not stems: the engine's own analyzer makes
its terms of them.

Sources: Lucene's `QueryParser` syntax; Elasticsearch's and OpenSearch's reference of `bool`,
`match` and `term` queries; sqlite.org/fts5.html, section 3.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

SPECIAL_CHARACTERS = re.compile(r'([+\-!(){}\[\]^"~*?:\\/&|<>=\s])')
OPERATORS = ("AND", "OR", "NOT", "TO")


class FTS5Query(NamedTuple):
    """A query for SQLite's FTS5, which cannot weight words.

    Attributes:
        match: The expression behind MATCH: it finds every document with one of the words.
        weights: Word -> weight, for `kytolly.search.index.engines`, or for a sum of your own over
            one MATCH for each word.
    """

    match: str
    weights: dict[str, float]


def lucene_query(weights: Mapping[str, float]) -> str:
    """Weighted words in the syntax of Lucene's classic query parser: `glacier cave^0.3`."""
    parts = []
    for word, weight in weights.items():
        boost = "" if weight == 1.0 else f"^{weight_text(weight)}"
        parts.append(lucene_word(word) + boost)
    return " ".join(parts)


def lucene_word(word: str) -> str:
    """A word with a backslash before every character that has a meaning in Lucene's syntax."""
    if word in OPERATORS:
        return "\\" + word
    return SPECIAL_CHARACTERS.sub(r"\\\1", word)


def weight_text(weight: float) -> str:
    """A weight in plain digits; Lucene reads no exponents."""
    return f"{weight:.6f}".rstrip("0").rstrip(".")


def elasticsearch_query(
    weights: Mapping[str, float], field: str, kind: Literal["match", "term"] = "match"
) -> dict[str, Any]:
    """Weighted words in the query DSL of Elasticsearch and OpenSearch.

    Args:
        weights: Word -> weight.
        field: The field of the documents that is searched.
        kind: "match" analyzes each word as the field's texts were; "term" takes it as it is, for
            a field that is not analyzed.

    Returns:
        What stands below "query" in a search request; `json.dumps` takes it.

    Raises:
        ValueError: A weight is negative, which these engines refuse, or not finite.
    """
    key = {"match": "query", "term": "value"}[kind]
    clauses = []
    for word, weight in weights.items():
        if not (math.isfinite(weight) and weight >= 0):
            raise ValueError(
                f"the word {word!r:.80} has the weight {weight}; expected a finite one of at least "
                "0, because a boost cannot be negative: leave the word out."
            )
        clauses.append({kind: {field: {key: word, "boost": float(weight)}}})
    return {"bool": {"should": clauses}}


def fts5_query(weights: Mapping[str, float], column: str | None = None) -> FTS5Query:
    """A MATCH expression of SQLite's FTS5 with the weights beside it.

    Args:
        weights: Word -> weight.
        column: The column to search; None: all columns of the table.
    """
    words = " OR ".join(map(fts5_phrase, weights))
    match = words if column is None or not words else f"{sql_name(column)} : ({words})"
    return FTS5Query(match, {word: float(weight) for word, weight in weights.items()})


def fts5_phrase(word: str) -> str:
    """A word in quotation marks, in which FTS5 sees no operator; of a null byte it makes a space.

    If the table's tokenizer makes several tokens of the word, they must follow each other.
    """
    return sql_name(word.replace("\0", " "))


def sql_name(name: str) -> str:
    """A name of a table or column in quotation marks."""
    return '"' + name.replace('"', '""') + '"'


# Name of a language -> the query in it, for documents with one field of this name.
EXPORTS: dict[str, Callable[[Mapping[str, float], str], Any]] = {
    "lucene": lambda weights, field: lucene_query(weights),
    "elasticsearch": lambda weights, field: {"query": elasticsearch_query(weights, field)},
    "fts5": lambda weights, field: fts5_query(weights, field)._asdict(),
}
