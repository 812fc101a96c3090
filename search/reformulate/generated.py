"""Terms that a trained query rewriter proposes for queries, as candidates of the agent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kytolly.record.checkpoint import save_network
from kytolly.search.index.bm25 import BM25Index

if TYPE_CHECKING:  # it loads TensorFlow
    from kytolly.search.text.rewriter import Rewriter
    from kytolly.search.text.rewriting_words import Term

FOLDER = "rewriter"  # in a run of the agent: what it needs of the rewriter's run
MIN_SHARED = 0.2  # of the words of rewriter or index, whichever has fewer


class GeneratedTerms:
    """Proposes terms for queries.

    Args:
        rewriter: The rewriter.
        held_out: For the text of each query that it learned from, what another one proposes that
            did not; empty: it learned from none.
    """

    def __init__(self, rewriter: Rewriter, held_out: Mapping[str, Sequence[Term]] | None = None):
        self.rewriter, self.held_out = rewriter, dict(held_out or {})

    @classmethod
    def load(cls, run_dir: str | Path, learning: bool) -> GeneratedTerms:
        """Those of a rewriter's run.

        Args:
            run_dir: The folder.
            learning: Something learns from train queries how far to trust the terms.

        Raises:
            ValueError: The folder is no such run; or it has no held-out terms, and something
                learns: it would trust terms that the rewriter knows by heart.
        """
        from kytolly.search.text.held_out_terms import HELD_OUT_FILE, read_held_out
        from kytolly.search.text.rewriter import Rewriter

        rewriter = Rewriter.load(run_dir)
        held_out = read_held_out(Path(run_dir) / HELD_OUT_FILE)
        if learning and held_out is None:
            raise ValueError(
                f"{run_dir} has no {HELD_OUT_FILE}: of its train queries the rewriter knows the "
                "terms by heart, and an agent that learns from those trusts it too much. Train "
                "the rewriter with --held-out-folds 3, or continue that run, to its end."
            )
        return cls(rewriter, held_out)

    @classmethod
    def read(cls, run_dir: Path) -> GeneratedTerms:
        """Those that `save` wrote to a run of the agent."""
        from kytolly.search.text.rewriter import REWRITER_FILE, Rewriter

        folder = run_dir / FOLDER
        if not (folder / REWRITER_FILE).is_file():
            raise ValueError(
                f"{run_dir} was trained with a rewriter, and {folder} has no {REWRITER_FILE}; "
                "expected its copy there: copy the whole folder of the run, or train again."
            )
        return cls(Rewriter.read(folder))

    def save(self, run_dir: Path) -> None:
        """Write the rewriter, without the held-out terms, for `read`."""
        folder = run_dir / FOLDER
        folder.mkdir(exist_ok=True)
        save_network(self.rewriter.network, folder)
        self.rewriter.save(folder)

    def check_index(self, index: BM25Index) -> None:
        """Refuse a rewriter whose terms are not those of an index.

        Raises:
            ValueError: The tokenizer is another one, or hardly a word is in both.
        """
        tokenizer, theirs = self.rewriter.tokenizer, index.tokenizer
        if tokenizer.identity != theirs.identity:
            raise ValueError(
                f"the rewriter makes terms by the rules {tokenizer.identity}, and the index by "
                f"{theirs.identity}: set language: english, stop_words: auto and ngrams: 0, or "
                "leave the rewriter out."
            )
        words = self.rewriter.vocabulary.settings()["words"]
        known = words if self.rewriter.writes_terms else tokenizer(" ".join(words))
        known = set(known)
        shared = len(known & index.term_ids.keys()) / max(min(len(known), len(index.terms)), 1)
        if shared < MIN_SHARED:
            raise ValueError(
                f"only {shared:.0%} of the rewriter's words are terms of the documents, expected "
                f"at least {MIN_SHARED:.0%}: give a rewriter of the same language and subject."
            )

    def terms_of(self, texts: Sequence[str]) -> list[dict[str, float]]:
        """For each text terms and their log-probabilities, in the order of writing."""
        others = [text for text in dict.fromkeys(texts) if text not in self.held_out]
        terms = {**self.held_out, **dict(zip(others, self.rewriter.terms_of(others), strict=True))}
        return [{term.term: term.log_probability for term in terms[text]} for text in texts]
