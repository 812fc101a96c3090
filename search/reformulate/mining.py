"""Candidate terms from the documents that a first search finds.

The first search is that of BM25 and embeddings together, so candidates also come from documents
that share no word with the query. Only the index, the texts and ready-made embeddings are read,
never a judgment. So this part runs in processes that load neither TensorFlow nor an encoder.

Source: Lavrenko & Croft 2001, "Relevance-Based Language Models" (pseudo-relevance feedback).
"""

from __future__ import annotations

import collections
import concurrent.futures
import functools
import os
import pickle
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from kytolly.search.index.bm25 import BM25Index
from kytolly.search.index.fusion import DocumentVectors, TermVectors, fused_scores
from kytolly.search.index.ranking import best_nonzero, best_places
from kytolly.search.reformulate.mining_features import Candidates, MiningFeatures, MiningRules
from kytolly.search.reformulate.result import NO_TOKEN

NO_CANDIDATE = "no candidate term"
MANY_QUERIES = 1_000  # per process; with fewer, its start takes longer than it saves
PROGRAM = "from kytolly.search.reformulate.mining import serve; serve()"


class MiningResult(NamedTuple):
    """One query's candidates, with `n` terms and `k` feedback documents.

    Attributes:
        weights: Terms of the query and their weights.
        words: The query's words as they were typed, without stop words.
        candidates: [n] terms that may be added: mined ones, best first, then neighbors, and then
            generated ones that are neither.
        lowerable: [m] terms of the query that may be lowered.
        surfaces: [n + m] the spelling of each, as typed or as in the feedback documents.
        term_features: [n + m, len(TERM_FEATURES)] float32, those of the query's terms last.
        query_features: [len(QUERY_FEATURES)] float32.
        feedback: [k] int32 documents, best first.
        shares: [k] float32 shares of the sum of their fused scores.
    """

    weights: dict[str, float]
    words: list[str]
    candidates: list[str]
    lowerable: list[str]
    surfaces: list[str]
    term_features: np.ndarray
    query_features: np.ndarray
    feedback: np.ndarray
    shares: np.ndarray


class Miner:
    """Mines the candidates of queries from one index.

    Args:
        index: The documents.
        texts: [documents] their texts.
        rules: Settings of mining.
        vectors: Embeddings of the documents; None: the first search is BM25's alone.
        term_vectors: Embeddings of terms; None: no candidates from there.
    """

    def __init__(
        self,
        index: BM25Index,
        texts: Sequence[str],
        rules: MiningRules,
        vectors: DocumentVectors | None = None,
        term_vectors: TermVectors | None = None,
    ):
        if len(texts) != index.documents:
            raise ValueError(
                f"The index holds {index.documents} documents, but there are {len(texts)} texts: "
                "give the texts that it was made of."
            )
        self.index, self.texts, self.rules = index, texts, rules
        self.vectors, self.term_vectors = vectors, term_vectors
        self.features = MiningFeatures(index, rules)
        self._surface = functools.lru_cache(5_000)(lambda doc: index.tokenizer.surface(texts[doc]))
        self._first_spelling = functools.cache(self._spelling_in_texts)

    def mine(
        self,
        text: str,
        excluded: int = -1,
        vector: np.ndarray | None = None,
        generated: Mapping[str, float] | None = None,
    ) -> MiningResult | str:
        """Candidates of a query, or the reason why there are none.

        Args:
            text: The query.
            excluded: A document that must not be found; -1 for none.
            vector: [d] embedding of the query; None: the first search is BM25's alone.
            generated: Terms that a rewriter proposes, best first, and their log-probabilities.
        """
        weights = self.index.query_weights(text)
        known = [self.index.term_ids[term] for term in weights if term in self.index.term_ids]
        if not known:
            return NO_TOKEN
        scores, feedback, shares = self._feedback(weights, excluded, vector)
        held, counts = feedback_counts(self.index, feedback)
        mining = self._mining_scores(held, counts, feedback, shares)
        common = self.rules.max_document_share * self.index.documents
        rare = self.features.frequency[held] <= common
        others = np.flatnonzero(rare & ~np.isin(held, known))
        mined = held[best_places(mining, self.rules.candidates, others)]
        proposed = self._generated_ids(generated or {}, known)
        if not len(held) or not (len(mined) or proposed):
            return NO_CANDIDATE
        near = self._neighbors(vector, feedback, shares, [*mined, *known])
        new = [term for term in proposed if term not in {*mined.tolist(), *near.tolist()}]
        lowered = known[: self.rules.query_terms] if len(known) > 1 else []
        terms = np.concatenate([mined, near, np.array([*new, *lowered], np.int64)])
        counts, mining = (values_of(terms, held, values) for values in (counts, mining))
        names = [self.index.terms[term] for term in terms]
        typed = self.index.tokenizer.surface(text)
        spellings = self._best_spellings(names, feedback, dict(reversed(typed)))
        given = Candidates(
            terms=terms,
            counts=counts,
            mining=mining,
            known=np.array(known),
            scores=scores,
            feedback=feedback,
            shares=shares,
            mined=len(mined),
            lowerable=len(lowered),
            generated=np.array([proposed.get(term, np.nan) for term in terms.tolist()]),
        )
        addable = len(names) - len(lowered)
        return MiningResult(
            weights=weights,
            words=[word for _, word in typed],
            candidates=names[:addable],
            lowerable=names[addable:],
            surfaces=[surface for surface, _ in spellings],
            term_features=self.features.term_features(given, spellings),
            query_features=self.features.query_features(given, weights),
            feedback=feedback.astype(np.int32),
            shares=shares.astype(np.float32),
        )

    def _first_scores(
        self, weights: dict[str, float], excluded: int, vector: np.ndarray | None
    ) -> np.ndarray:
        """[documents] scores of the search that finds the feedback documents."""
        itself = excluded if excluded >= 0 else None
        return fused_scores(self.index, weights, itself, self.vectors, vector, self.rules.fusion)

    def _mining_scores(
        self, terms: np.ndarray, counts: np.ndarray, feedback: np.ndarray, shares: np.ndarray
    ) -> np.ndarray:
        """[u] TF-IDF of terms in the feedback documents, weighted with the documents' scores."""
        lengths = np.maximum(self.index.lengths[feedback], 1)
        average = max(self.index.mean_length, 1.0)
        frequency = counts / (counts + (lengths / average)[:, np.newaxis])  # saturates as BM25's
        inverse = np.log((self.index.documents + 1) / self.features.frequency[terms])
        return (shares @ frequency) * inverse

    def _feedback(
        self, weights: dict[str, float], excluded: int, vector: np.ndarray | None
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Scores [documents] of the first search, its best documents [k], and their shares [k]."""
        scores = self._first_scores(weights, excluded, vector)
        feedback = best_nonzero(scores, self.rules.feedback_documents)
        feedback = feedback[scores[feedback] > 0.0]
        return scores, feedback, scores[feedback] / max(float(scores[feedback].sum()), 1e-9)

    def _generated_ids(
        self, generated: Mapping[str, float], known: Sequence[int]
    ) -> dict[int, float]:
        """Ids of the generated terms that can be candidates, best first, and log-probabilities."""
        ids = {self.index.term_ids.get(term, -1): score for term, score in generated.items()}
        for term in (-1, *known):
            ids.pop(term, None)
        return dict(list(ids.items())[: self.rules.generated])

    def _neighbors(
        self,
        vector: np.ndarray | None,
        feedback: np.ndarray,
        shares: np.ndarray,
        excluded: list[int],
    ) -> np.ndarray:
        """Ids of the terms nearest to the query and to its feedback documents."""
        if self.term_vectors is None or self.vectors is None or vector is None:
            return np.zeros(0, np.int64)
        centroid = shares @ self.vectors[feedback]
        centroid /= max(float(np.linalg.norm(centroid)), 1e-9)
        return self.term_vectors.nearest(vector + centroid, self.rules.neighbors, excluded)

    def _best_spellings(
        self, names: list[str], feedback: np.ndarray, typed: dict[str, str]
    ) -> list[tuple[str, float]]:
        """The spelling of each term, and the share of its feedback documents that open with it.

        A term of the query is spelled as it was typed, a candidate as it mostly is in the feedback
        documents; of two equally frequent spellings, the first one that was met counts.
        """
        wanted = dict.fromkeys(names, 0)  # term -> documents in whose opening it is
        counts, holders = collections.Counter(), dict(wanted)
        for doc in feedback:
            words = self._surface(int(doc))
            here = [position for position, (term, _) in enumerate(words) if term in wanted]
            counts.update([words[position] for position in here])
            first = {words[position][0]: position for position in reversed(here)}
            for term, position in first.items():
                holders[term] += 1
                wanted[term] += position < self.rules.opening_tokens
        best: dict[str, str] = {}
        for (term, word), _ in counts.most_common():
            best.setdefault(term, word)
        if self.term_vectors is not None:
            best = {**self.term_vectors.spellings, **best}
        shown = {**best, **typed}
        for name in names:
            if name not in shown:  # generated, and in no feedback document
                shown[name] = self._first_spelling(name)
        return [(shown[name], wanted[name] / max(holders[name], 1)) for name in names]

    def _spelling_in_texts(self, term: str) -> str:
        """The spelling of a term in the first document that holds it."""
        first = int(self.index.postings(term)[0][0])
        return next(word for token, word in self._surface(first) if token == term)


def values_of(terms: np.ndarray, held: np.ndarray, values: np.ndarray) -> np.ndarray:
    """[..., n] of `values` [..., u] of terms `held` [u], rising, those of other terms [n], or 0."""
    index = np.minimum(np.searchsorted(held, terms), len(held) - 1)
    return np.where(held[index] == terms, values[..., index], 0.0)


def feedback_counts(index: BM25Index, documents: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Ids [u] of the terms of some documents, rising, and their counts [k, u]."""
    parts = [index.document_terms(int(doc)) for doc in documents]
    if not parts:
        return np.zeros(0, np.int64), np.zeros((0, 0))
    ids = np.concatenate([ids for ids, _ in parts])
    terms, column = np.unique(ids, return_inverse=True)
    counts = np.zeros((len(parts), len(terms)))
    row = np.repeat(np.arange(len(parts)), [len(ids) for ids, _ in parts])
    counts[row, column] = np.concatenate([count for _, count in parts])
    return terms, counts


def mine_texts(
    miner: Miner,
    texts: Sequence[str],
    excluded: Sequence[int],
    vectors: Sequence[np.ndarray | None],
    workers: int | None = None,
    generated: Sequence[Mapping[str, float]] | None = None,
) -> list[MiningResult | str]:
    """The result of `Miner.mine` for each text, in order. It does not depend on `workers`.

    Threads hardly help, because mining is Python code. Each process is started as a program of its
    own rather than with `multiprocessing`: a fork of a process that runs TensorFlow may hang, and a
    spawned process would run the caller's script again.

    Args:
        miner: The index, with the settings of mining.
        texts: [Q] queries.
        excluded: [Q] documents that must not be found; -1 for none.
        vectors: [Q] embeddings of the queries [d].
        workers: Processes, at most one per core; None: only as many as save time.
        generated: [Q] terms that a rewriter proposes, and their log-probabilities; None: there is
            no rewriter.

    Raises:
        RuntimeError: A process failed.
    """
    if workers is None:
        workers = len(texts) // MANY_QUERIES
    elif workers < 1:
        raise ValueError(f"workers is {workers}, expected at least 1, or None for one a core.")
    proposed = [None] * len(texts) if generated is None else generated
    tasks = list(zip(texts, excluded, vectors, proposed, strict=True))
    workers = min(workers, len(tasks))
    if workers > 1:  # to count cores is to read a file
        workers = min(workers, os.cpu_count() or 1)
    if workers <= 1:
        return [miner.mine(*task) for task in tasks]
    parts_of_miner = miner.index, miner.texts, miner.rules, miner.vectors, miner.term_vectors
    head = pickle.dumps(parts_of_miner)

    def run(first: int) -> list[MiningResult | str]:
        return _results_of_process(head + pickle.dumps(tasks[first::workers]))

    results: list[MiningResult | str] = [""] * len(tasks)
    with concurrent.futures.ThreadPoolExecutor(workers) as pool:
        parts = [pool.submit(run, first) for first in range(workers)]
    for first, part in enumerate(parts):
        if (error := part.exception()) is not None:
            raise RuntimeError(
                f"process {first + 1} of {workers} that mine candidates failed: {error}. With "
                "workers=1 mining needs no other process."
            ) from error
        results[first::workers] = part.result()
    return results


def serve() -> None:
    """Program of a process: reads the miner's parts and its queries, writes their results."""
    miner = Miner(*pickle.load(sys.stdin.buffer))
    tasks = pickle.load(sys.stdin.buffer)
    pickle.dump([miner.mine(*task) for task in tasks], sys.stdout.buffer)


def _results_of_process(request: bytes) -> list[MiningResult | str]:
    """Results of a process that gets the miner's parts and its queries."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path or "." for path in sys.path)}
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        environment[name] = "1"  # the processes are the parallelism
    done = subprocess.run(
        # -P: not from the current folder, where files of strangers may lie
        [sys.executable, "-P", "-c", PROGRAM],
        input=request,
        capture_output=True,
        env=environment,
        check=False,
    )
    if done.returncode:
        lines = done.stderr.decode(errors="replace").strip().splitlines()
        raise RuntimeError(lines[-1] if lines else f"it ended with {done.returncode}")
    return pickle.loads(done.stdout)
