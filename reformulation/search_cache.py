"""Searches of the whole index on the host, each made once and remembered."""

from __future__ import annotations

import collections
from collections.abc import Sequence

import numpy as np

from kytolly.reformulation.episode import NO_TERM
from kytolly.reformulation.pool import NEVER, SHOWN_SCORES, ScoredIndex
from kytolly.reformulation.query import EpisodeRules, Query
from kytolly.reformulation.scoring import (
    expanded_weights,
    metric_per_query,
    query_ranks,
    query_scores,
)

REMEMBERED = 200_000  # searches; about 300 bytes each


class SearchCache:
    """Results of searches by query and set of added terms; the least recently used leave first.

    Terms are always added in the order of their places. So the scores are the same whatever order
    an episode took.

    Args:
        queries: Queries with their judgments.
        index: The index to search.
        rules: The metric, and the weight of an added term.
        entries: Most searches that are remembered.

    Attributes:
        hits: Searches that were remembered.
        misses: Searches that were made.
    """

    def __init__(
        self,
        queries: Sequence[Query],
        index: ScoredIndex,
        rules: EpisodeRules,
        entries: int = REMEMBERED,
    ):
        if entries < 1:
            raise ValueError(f"a cache of {entries} searches holds none, expected at least 1.")
        self.queries, self.index, self.rules, self.entries = queries, index, rules, entries
        self.hits = self.misses = 0
        self._found: collections.OrderedDict[tuple[int, bytes], tuple[float, ...]] = (
            collections.OrderedDict()
        )

    @property
    def hit_rate(self) -> float:
        """Share of the searches that were remembered."""
        return self.hits / max(self.hits + self.misses, 1)

    def __len__(self) -> int:
        return len(self._found)

    def __call__(self, query: np.ndarray, chosen: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The metric [E] and the best scores [E, SHOWN_SCORES] of queries with terms added.

        Args:
            query: [E] places in `queries`.
            chosen: [E, max_terms] int32 candidates in any order, filled up with NO_TERM.
        """
        chosen = np.sort(chosen, axis=1)
        keys = [(row, terms.tobytes()) for row, terms in zip(query.tolist(), chosen, strict=True)]
        missing = {key: row for row, key in enumerate(keys) if key not in self._found}
        self.hits += len(keys) - len(missing)
        self.misses += len(missing)
        new = self._search_rows(query, chosen, missing)
        result = np.empty((len(keys), 1 + SHOWN_SCORES), np.float32)
        for row, key in enumerate(keys):
            if key in new:
                result[row] = new[key]
            else:
                result[row] = self._found[key]
                self._found.move_to_end(key)
        self._found.update(new)
        while len(self._found) > self.entries:
            self._found.popitem(last=False)
        return result[:, 0], result[:, 1:]

    def _search_rows(
        self, query: np.ndarray, chosen: np.ndarray, rows: dict[tuple[int, bytes], int]
    ) -> dict[tuple[int, bytes], tuple[float, ...]]:
        """Key -> the metric and the best scores of each of the given rows."""
        if not rows:
            return {}
        asked = [self.queries[query[row]] for row in rows.values()]
        ranks, best = zip(
            *(
                self._search_query(one, chosen[row])
                for one, row in zip(asked, rows.values(), strict=True)
            ),
            strict=True,
        )
        values = metric_per_query(self.rules.metric, ranks, [len(one.relevant) for one in asked])
        found = zip(rows, values.tolist(), best, strict=True)
        return {key: (value, *scores) for key, value, scores in found}

    def _search_query(self, query: Query, chosen: np.ndarray) -> tuple[np.ndarray, list[float]]:
        """Ranks of the relevant documents and the best scores."""
        added = [query.candidates[place] for place in chosen if place != NO_TERM]
        weights = expanded_weights(query, added, self.rules.weight)
        scores = query_scores(self.index, query, weights)
        ranks = query_ranks(query, scores[np.newaxis])[0]
        best = []
        for _ in range(SHOWN_SCORES):
            place = scores.argmax()
            best.append(float(scores[place]))
            scores[place] = NEVER
        return ranks, best
