"""The gain of a changed query, as both of its rankings let expect it: it is changed where it pays.

A logistic regression says how probable it is that a document is relevant, from what both searches
and the embeddings say of it. The expected gain is that of nDCG@10 under these probabilities. An
isotonic regression, fitted to queries that neither network nor regression had seen, makes of it a
gain that comes true on average. `run_gains` fits both for a run, `search/scripts/fit_gain_model.py`
those that come with the package. These have a regression for each collection: where they disagree,
the query is unlike what they learned from, and less is expected of it.

Sources: Robertson 1977, "The Probability Ranking Principle in IR"; Zadrozny & Elkan 2002,
"Transforming Classifier Scores into Accurate Multiclass Probability Estimates" (isotonic
regression); Khattab & Zaharia 2020, "ColBERT" (the largest cosine for each word of the query);
Lakshminarayanan, Pritzel & Blundell 2017, "Simple and Scalable Predictive Uncertainty Estimation
using Deep Ensembles" (disagreement as doubt).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy import special

from kytolly.search.index.files import read_arrays, short, write_arrays
from kytolly.search.index.fusion import score_unit
from kytolly.search.index.ranking import best_nonzero
from kytolly.search.reformulate.drift import rare_words
from kytolly.search.reformulate.query import Query
from kytolly.search.reformulate.search import SearchContext

PRETRAINED_GAINS = Path(__file__).with_name("pretrained_gains.npz")
GAINS_FILE = "gains.npz"  # of a run
DEPTH = 10  # documents of each ranking that are looked at, and that the metric counts
FAR = 30  # rank of a document that is not among the first of a ranking
WORDS = 200  # first words of a document that are compared with those of the query
OPENING = 40  # of these, the ones where a title is
DOUBT = 0.5  # share of the regressions' standard deviation that the expected gain loses
WORD = re.compile(r"\w+")
REGRESSION = ("mean", "scale", "weights", "bias")  # of a `GainModel`
DOCUMENT_FEATURES = (
    "score before",
    "score after",
    "score before, of the best",
    "score after, of the best",
    "BM25 as typed",
    "cosine",
    "cosine, of the best",
    "share of typed words",
    "rank before",
    "rank after",
    "length",
    "similarity of words",
    "similarity of words, of the best",
    "cosine to feedback",
    "all typed words",
    "rare typed words",
    "similarity of first words, of the best",
    "similarity of first words",
)


class RankedDocuments(NamedTuple):
    """The first documents of a query's two rankings, `d` in all.

    Attributes:
        documents: [d] places in the collection.
        features: [d, 2F]: DOCUMENT_FEATURES, and the same less their mean over their deviation.
        discount_before, discount_after: [d] what a relevant document adds to the DCG.
    """

    documents: np.ndarray
    features: np.ndarray
    discount_before: np.ndarray
    discount_after: np.ndarray


class GainModel(NamedTuple):
    """Regressions of relevance, `M` in all, and what their expected gains come to.

    Attributes:
        mean, scale: [M, 2F] of the features.
        weights: [M, 2F] of the scaled features.
        bias: [M] beside them.
        plain_from, plain_to: [k] expected gains, rising, and what they come to, with BM25 alone.
        fused_from, fused_to: [l] the same with cosines.
        margins: [2] gain from which a query is changed, with BM25 alone and with cosines.
    """

    mean: np.ndarray
    scale: np.ndarray
    weights: np.ndarray
    bias: np.ndarray
    plain_from: np.ndarray
    plain_to: np.ndarray
    fused_from: np.ndarray
    fused_to: np.ndarray
    margins: np.ndarray

    @classmethod
    def read(cls, path: Path = PRETRAINED_GAINS) -> GainModel:
        """The model in a file.

        Raises:
            ValueError: The file holds something else.
        """
        try:
            model = cls(*read_arrays(path, cls._fields))
            if model.bias.ndim == 0:  # of an earlier version, with one regression
                one = {name: getattr(model, name)[np.newaxis] for name in REGRESSION}
                model = model._replace(**one)
            model.check()
        except Exception as error:  # zipfile, zlib and numpy each have their own
            raise ValueError(
                f"{path} cannot be used ({type(error).__name__}: {short(str(error), 200)}); "
                "expected a model of gains, as this version writes it: train again."
            ) from None
        return model

    @classmethod
    def of_run(cls, folder: Path) -> GainModel | None:
        """The model of a run; None if it has none."""
        path = folder / GAINS_FILE
        return cls.read(path) if path.is_file() else None

    def check(self) -> None:
        """Refuse arrays of another version, or damaged ones."""
        wide, pairs = 2 * len(DOCUMENT_FEATURES), (self[4:6], self[6:8])
        shapes = [part.shape for part in (self.mean, self.scale, self.weights)]
        rows = self.bias.size
        if shapes != [(rows, wide)] * 3 or not rows or self.margins.shape != (2,):
            raise ValueError(f"arrays of {shapes}, expected {wide} features")
        for at, to in pairs:
            if at.ndim != 1 or at.shape != to.shape or not len(at) or (np.diff(at) < 0).any():
                raise ValueError("a calibration is no rising function")
        if not all(np.isfinite(part).all() for part in self) or (self.scale <= 0).any():
            raise ValueError("numbers that are not finite, or scales that are not above 0")

    def save(self, path: Path) -> None:
        """Write the model for `read`."""
        write_arrays(path, self._asdict())

    def expected_gain(self, ranked: RankedDocuments, fusion: float) -> float:
        """The gain in nDCG@10 that comes true on average."""
        raw = self.uncalibrated_gain(ranked)
        if fusion:
            return float(np.interp(raw, self.fused_from, self.fused_to))
        return float(np.interp(raw, self.plain_from, self.plain_to))

    def uncalibrated_gain(self, ranked: RankedDocuments) -> float:
        """The gain in nDCG@10 under the probabilities of relevance, less `DOUBT`."""
        scaled = (ranked.features[:, np.newaxis] - self.mean) / self.scale  # [d, M, 2F]
        scores = (scaled * self.weights).sum(axis=-1) + self.bias
        gains = [gain_of_probabilities(column, ranked) for column in special.expit(scores).T]
        return float(np.mean(gains) - DOUBT * np.std(gains))

    def margin(self, fusion: float) -> float:
        """The expected gain from which a query is changed."""
        return float(self.margins[1 if fusion else 0])


def gain_of_probabilities(probability: np.ndarray, ranked: RankedDocuments) -> float:
    """The expected change of the DCG over that of an ideal ranking.

    Args:
        probability: [d] of each document's relevance.
        ranked: The documents.
    """
    relevant = int(np.clip(round(float(probability.sum())), 1, DEPTH))
    ideal = discounts(np.arange(relevant)).sum()
    return float(probability @ (ranked.discount_after - ranked.discount_before) / ideal)


def discounts(place: np.ndarray) -> np.ndarray:
    """What a relevant document at a place, from 0, adds to the DCG: 0 beyond the first ten."""
    return np.where(place < DEPTH, 1.0 / np.log2(place + 2.0), 0.0)


def ranked_documents(
    context: SearchContext, query: Query, text: str, changed: Mapping[str, float], fusion: float
) -> RankedDocuments:
    """The first documents for a query as it was typed and as it was changed, with their features.

    Args:
        context: The collection.
        query: The query.
        text: Its text.
        changed: Term -> weight in the changed query.
        fusion: Weight of the cosines.
    """
    index = context.index
    typed, after = index.scores(query.weights), index.scores(changed)
    cosines = context.documents.cosines(query.vector)
    if query.excluded >= 0:
        typed[query.excluded] = 0.0
    unit = np.float32(score_unit(typed))
    before = typed + np.float32(fusion) * unit * cosines
    after += np.float32(fusion) * unit * cosines
    if query.excluded >= 0:
        before[query.excluded] = after[query.excluded] = 0.0
    first, second = best_nonzero(before, DEPTH), best_nonzero(after, DEPTH)
    documents = np.array(list(dict.fromkeys([*first.tolist(), *second.tolist()])), np.int64)
    places = [_places(ranking, documents) for ranking in (first, second)]
    cosine = cosines[documents]
    cover, rare = _held_shares(context, query, documents)
    similar, opening = _word_similarities(context, text, documents)
    feedback = context.documents[first[:5]].mean(axis=0)
    feedback /= max(float(np.linalg.norm(feedback)), 1e-9)
    columns = [
        before[documents] / unit,
        after[documents] / unit,
        before[documents] / max(float(before[first].max(initial=0.0)), 1e-9),
        after[documents] / max(float(after[second].max(initial=0.0)), 1e-9),
        typed[documents] / unit,
        cosine,
        cosine / max(float(cosine.max(initial=0.0)), 1e-9),
        cover,
        *(np.log2(np.where(place < DEPTH, place, FAR) + 2.0) for place in places),
        np.log((index.lengths[documents] + 1.0) / (index.mean_length + 1.0)),
        similar,
        similar / max(float(similar.max(initial=0.0)), 1e-9),
        context.documents[documents] @ feedback,
        cover > 0.999,
        rare,
        opening / max(float(opening.max(initial=0.0)), 1e-9),
        opening,
    ]
    features = np.stack([np.asarray(column, np.float32) for column in columns], axis=1)
    deviation = features.std(axis=0) + 1e-3
    features = np.concatenate([features, (features - features.mean(axis=0)) / deviation], axis=1)
    return RankedDocuments(documents, features, *map(discounts, places))


def _places(ranking: np.ndarray, documents: np.ndarray) -> np.ndarray:
    """[d] the place of each document in a ranking, from 0; `DEPTH` where it is not in it."""
    places = {document: place for place, document in enumerate(ranking.tolist())}
    return np.array([places.get(document, DEPTH) for document in documents.tolist()])


def _held_shares(
    context: SearchContext, query: Query, documents: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """[d] shares of the typed terms that documents hold: by idf of all, and of the rare ones."""
    index = context.index
    known = [term for term in query.weights if term in index.term_ids]
    held = np.array([np.isin(documents, index.postings(term)[0]) for term in known])
    idf = index.idf[[index.term_ids[term] for term in known]]
    rare = np.isin(known, rare_words(index, query.weights))
    return idf @ held / max(float(idf.sum()), 1e-9), held[rare].mean(axis=0)


def _word_similarities(
    context: SearchContext, text: str, documents: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """[d] the mean over a query's words, by idf, of the largest cosine with a word of a document.

    The second is that with its first words.
    """
    index = context.index
    surfaces = context.index.tokenizer.surface(text)
    asked = [(index.term_ids[term], word) for term, word in surfaces if term in index.term_ids]
    idf = index.idf[[term for term, _ in asked]]
    idf = idf / max(float(idf.sum()), 1e-9)
    collection: list[int] = documents.tolist()
    texts = [context.collection.texts[document].lower() for document in collection]
    words = [WORD.findall(text)[:WORDS] or [""] for text in texts]
    places: dict[str, int] = {}
    for word in (*(word for _, word in asked), *(word for part in words for word in part)):
        places.setdefault(word, len(places))
    vectors = context.cache.get_batch(list(places))
    cosines = vectors[[places[word] for _, word in asked]] @ vectors.T
    rows = [[places[word] for word in part] for part in words]
    whole = [float(idf @ cosines[:, row].max(axis=1)) for row in rows]
    first = [float(idf @ cosines[:, row[:OPENING]].max(axis=1)) for row in rows]
    return np.array(whole), np.array(first)
