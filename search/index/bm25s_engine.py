"""An index that the package bm25s saved, as a search engine for weighted queries.

The folder has a matrix with a column of scores for each token of its vocabulary. bm25s adds the
columns of a query's tokens; here each is multiplied by its word's weight first.

Source: Lu 2024, "BM25S", arXiv:2407.03618; the files as bm25s 0.3 writes them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from kytolly.search.index.files import short, text_lines
from kytolly.search.index.ranking import weighted_best

TOKENS = re.compile(r"(?u)\b\w\w+\b")  # as bm25s.tokenize
PARAMETERS = "params.index.json"
CORPUS = "corpus.jsonl"


class BM25SEngine:
    """An index that `bm25s.BM25.save` wrote.

    Args:
        folder: The folder.
        doc_ids: [documents] ids in the order of indexing; None: those of the folder's corpus.jsonl
            (the key "id" or "_id" of each document).
        tokenizer: Text -> tokens, by the rules that made the index. Default: those of
            `bm25s.tokenize` without a stemmer. A word of the vocabulary is taken as it is.

    Raises:
        ValueError: The folder is no such index, or the ids do not fit it.
        ModuleNotFoundError: bm25s is not installed.
    """

    def __init__(
        self,
        folder: str | Path,
        doc_ids: Sequence[str] | None = None,
        tokenizer: Callable[[str], Iterable[str]] | None = None,
    ):
        self.folder = Path(folder)
        self._index = _load(self.folder)
        self._tokens = tokenizer or (lambda text: TOKENS.findall(text.lower()))
        documents = self._index.scores["num_docs"]
        saved = _saved_ids(self.folder / CORPUS)
        if doc_ids is None and saved is None:
            raise ValueError(
                f"{folder} has no {CORPUS} with ids; expected one, as BM25.save(corpus=[{{'id': "
                "...}, ...]) writes it: give doc_ids=, in the order of indexing."
            )
        self.doc_ids = list(saved or ()) if doc_ids is None else list(doc_ids)
        if not len(self.doc_ids) == len(saved or self.doc_ids) == documents:
            raise ValueError(
                f"{len(self.doc_ids):,} ids were found for {documents:,} documents of {folder}; "
                "expected one for each: give the ids of the collection that was indexed."
            )
        numbers = [str(number) for number in range(documents)]  # what bm25s saves for bare texts
        if saved is not None and saved not in (self.doc_ids, numbers):
            number = next(n for n in range(documents) if saved[n] != self.doc_ids[n])
            raise ValueError(
                f"document {number} of {folder} has the id {saved[number]!r:.80} there and "
                f"{self.doc_ids[number]!r:.80} in doc_ids; expected the same ids in the same "
                "order: give those of the collection that was indexed."
            )

    def search(self, weights: Mapping[str, float], top: int) -> tuple[list[str], np.ndarray]:
        """The best documents for a weighted query, as in `engines.SearchEngine`.

        Of equal scores the document that was indexed first comes first.
        """
        lists, rest = [], 0.0
        for word, weight in weights.items():
            for token in self._token_ids(word):
                docs, scores, otherwise = self._column(token)
                lists.append((weight, docs, scores))
                rest += weight * otherwise
        docs, scores = weighted_best(lists, top)
        return [self.doc_ids[doc] for doc in docs.tolist()], scores + rest

    def word_scores(self, word: str) -> tuple[list[str], np.ndarray]:
        """Every document that a word alone finds, and the scores."""
        ids, scores = self.search({word: 1.0}, len(self.doc_ids))
        return ids, scores

    def _token_ids(self, word: str) -> list[int]:
        known = self._index.vocab_dict
        tokens = (
            [word] if word in known else [token for token in self._tokens(word) if token in known]
        )
        # bm25s gives the empty token, which stands for no document, a column of its own or none.
        return [known[token] for token in tokens if token]

    def _column(self, token: int) -> tuple[np.ndarray, np.ndarray, float]:
        """Documents of a token, its scores there, and what it adds to every document.

        BM25L and BM25+ give a score to documents that lack the token; the column then holds the
        difference from that.
        """
        scores = self._index.scores
        part = slice(scores["indptr"][token], scores["indptr"][token + 1])
        otherwise = self._index.nonoccurrence_array
        rest = 0.0 if otherwise is None else float(otherwise[token])
        return scores["indices"][part], scores["data"][part], rest


def _load(folder: Path) -> Any:
    """The saved index, whose numbers have been checked: nothing points outside of it."""
    if not (folder / PARAMETERS).is_file():
        raise ValueError(
            f"{folder} is no index of bm25s; expected a folder with {PARAMETERS} and the other "
            "files that bm25s.BM25.save writes: give another folder."
        )
    try:
        import bm25s
    except ImportError:
        raise ModuleNotFoundError(
            "The package bm25s is not installed, and its index needs it: pip install "
            "'kytolly[retrieval]'."
        ) from None
    try:
        index = bm25s.BM25.load(folder, backend="numpy", csc_backend="numpy")
        scores, vocabulary = index.scores, index.vocab_dict
        starts, docs, data = (scores[name] for name in ("indptr", "indices", "data"))
        documents, columns = scores["num_docs"], len(starts) - 1
        if not isinstance(documents, int) or any(part.ndim != 1 for part in (starts, docs, data)):
            raise ValueError("its arrays have other shapes")
        if starts[0] != 0 or starts[-1] != len(docs) or np.any(np.diff(starts) < 0):
            raise ValueError("its columns are not in order")
        if len(data) != len(docs) or not np.isfinite(data).all():
            raise ValueError("its scores are not whole")
        if len(docs) and not 0 <= docs.min() <= docs.max() < documents:
            raise ValueError(f"it has documents outside of {documents}")
        rest = index.nonoccurrence_array
        ids = [number for token, number in vocabulary.items() if token]
        if not all(isinstance(token_id, int) and 0 <= token_id < columns for token_id in ids) or (
            rest is not None and (rest.shape != (columns,) or not np.isfinite(rest).all())
        ):
            raise ValueError("its vocabulary is not that of its scores")
    except Exception as error:  # json, NumPy and bm25s each have their own
        raise ValueError(
            f"{folder} cannot be read as an index of bm25s ({type(error).__name__}: "
            f"{short(str(error), 200)}); expected what bm25s.BM25.save writes: index again."
        ) from None
    return index


def _saved_ids(path: Path) -> list[str] | None:
    """The ids of a corpus that was saved with the index; None if there is none, or without ids."""
    if not path.is_file():
        return None
    ids = []
    for number, line in text_lines(path, f"expected the {CORPUS} of bm25s"):
        try:
            document = json.loads(line)
        except (ValueError, RecursionError):
            raise ValueError(
                f"{path}:{number}: not JSON; expected a document: index again."
            ) from None
        doc_id = document.get("id", document.get("_id")) if isinstance(document, dict) else None
        if not isinstance(doc_id, str | int):
            return None
        ids.append(str(doc_id))
    return ids
