"""A query and its reformulation, for programs and for readers."""

from __future__ import annotations

import dataclasses
import textwrap
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from kytolly.search.index.exports import (
    FTS5Query,
    elasticsearch_query,
    fts5_query,
    lucene_query,
    weight_text,
)

NO_TOKEN = "no token that any document contains"
SHOWN = 70  # characters of a document's text
MIN_EXPORTED = 0.05  # weight of an added term in a query for another engine


class Hit(NamedTuple):
    """A document that was found.

    Attributes:
        doc_id: Its id in the collection.
        score: BM25's score, and the document's cosine where it is weighed.
    """

    doc_id: str
    score: float


class AddedTerm(NamedTuple):
    """A term that the agent added.

    Attributes:
        term: The term as the index has it.
        surface: Its most frequent spelling in the documents that it was taken from.
        weight: Its weight; a word of the query has 1.
        rank: Place among the candidates, from 1: mined ones come first, in the order of mining.
        source: Its origin: "mined" from the documents that the query finds, "generated"
            by the rewriter, "mined, generated", or "neighbor" in the space of embeddings.
        features: The agent's features of it, by name.
    """

    term: str
    surface: str
    weight: float
    rank: int
    source: str
    features: dict[str, float]


class LoweredTerm(NamedTuple):
    """A term of the query whose weight the agent lowered.

    Attributes:
        term: The term as the index has it.
        surface: The word as it was typed.
        weight: Its weight now; it was 1, or how often the word was typed.
        features: The agent's features of it, by name.
    """

    term: str
    surface: str
    weight: float
    features: dict[str, float]


@dataclasses.dataclass(frozen=True)
class Reformulation:
    """A query and its reformulation.

    Attributes:
        query_id: Its id, or "" for one that was typed.
        text: The query as it was typed.
        added: Terms that were added, the heaviest first.
        lowered: Terms of the query whose weight was lowered, the most lowered first.
        weights: Term -> weight, the query's own terms first.
        words: Word -> weight: the same query in words, of which any engine makes its own terms.
        before: The best documents for the query as it was typed.
        after: The best documents for the new query.
        expected_gain: Gain in the run's metric that the network expects.
        reason: Why nothing was changed; None if something was.
    """

    query_id: str
    text: str
    added: tuple[AddedTerm, ...]
    lowered: tuple[LoweredTerm, ...]
    weights: dict[str, float]
    words: dict[str, float]
    before: tuple[Hit, ...]
    after: tuple[Hit, ...]
    expected_gain: float = 0.0
    reason: str | None = None

    @property
    def exported_words(self) -> dict[str, float]:
        """`words` without added ones that weigh little: another engine is asked for fewer terms."""
        light = {term.surface for term in self.added if term.weight < MIN_EXPORTED}
        return {word: weight for word, weight in self.words.items() if word not in light}

    @property
    def lucene(self) -> str:
        """The new query in Lucene's syntax."""
        return lucene_query(self.exported_words)

    @property
    def fts5(self) -> FTS5Query:
        """The new query for SQLite's FTS5: a MATCH expression, and the weights."""
        return fts5_query(self.exported_words)

    def elasticsearch(self, field: str) -> dict[str, Any]:
        """The new query for Elasticsearch and OpenSearch, which search a field of the documents."""
        return elasticsearch_query(self.exported_words, field)

    def as_dict(self) -> dict[str, Any]:
        """The object that `kytolly reformulate --json` prints."""
        values = {name: value for name, value in vars(self).items() if name != "query_id"}
        values["query"], values["lucene"] = values.pop("text"), self.lucene
        for name in ("added", "lowered", "before", "after"):
            values[name] = [part._asdict() for part in values[name]]
        return values

    def lines(self, texts: Mapping[str, str] | None = None) -> Iterator[str]:
        """Lines for a reader.

        Args:
            texts: Document id -> text, whose first words are shown; None: ids alone.
        """
        yield f"Query: {self.text}"
        if self.reason is not None:
            yield f"Unchanged: {self.reason}."
        for term in self.added:
            yield f"  + {term.surface} ^{weight_text(term.weight)}  ({term_reasons(term)})"
        for term in self.lowered:
            yield f"  - {term.surface} ^{weight_text(term.weight)}"
        terms = " ".join(f"{term}:{weight_text(weight)}" for term, weight in self.weights.items())
        yield f"Weighted terms: {terms}"
        yield f"Lucene: {self.lucene}"
        ranks = {hit.doc_id: rank for rank, hit in enumerate(self.before, start=1)}
        kind = "" if self.reason is None else " (as before)"
        if self.reason == NO_TOKEN and self.after:
            kind = " (as before, in the order of the cosines alone)"
        yield f"Ranking after{kind}:"
        for rank, hit in enumerate(self.after, start=1):
            was = f"was {ranks[hit.doc_id]}" if hit.doc_id in ranks else "new"
            text = "" if texts is None else f"  {first_words(texts[hit.doc_id])}"
            yield f"{rank:>4}. {hit.doc_id}  {hit.score:.3f}  ({was}){text}"
        if not self.after:
            yield "      no document"


def first_words(text: str) -> str:
    """The beginning of a text, where a title is if there is one, in one line."""
    return textwrap.shorten(text[: 8 * SHOWN], SHOWN, placeholder=" ...")


def term_source(features: Mapping[str, float]) -> str:
    """The source of a candidate with these features, as `AddedTerm` says it."""
    names = {"mined": "mining rank", "generated": "is generated"}
    return ", ".join(source for source, name in names.items() if features[name] > 0.0) or "neighbor"


def term_reasons(term: AddedTerm) -> str:
    """The main features that made a term a candidate, for a reader."""
    known = term.features
    return (
        f"{term.source}, candidate {term.rank}, "
        f"in {known['feedback documents']:.0%} of the feedback documents, "
        f"idf {known['idf']:.2f}, npmi {known['npmi, best']:.2f}, "
        f"cosine to query {known['cosine to query']:.2f}"
    )
