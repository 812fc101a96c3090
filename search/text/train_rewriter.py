"""Training a query rewriter: from a collection to a run with what it learned."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from kytolly.record.checkpoint import BEST
from kytolly.record.network_file import load_network
from kytolly.record.run_folder import RunFolder
from kytolly.search.config.rewriter import RewriterConfig
from kytolly.search.index.collection import warn_of_shared_queries
from kytolly.search.index.corpus import available_splits, load_collection
from kytolly.search.index.training_queries import JudgedTexts, held_out_parts
from kytolly.search.text.held_out_terms import HELD_OUT_FILE, read_held_out, write_held_out
from kytolly.search.text.rewriter import Rewriter, RewriterTask
from kytolly.search.text.rewriting_pairs import frequent_terms, mined_terms, share_of_best
from kytolly.search.text.rewriting_words import Term
from kytolly.trainer import Callbacks, Trainer

SPLITS = ("train", "dev", "test")
PARTS = "held_out"  # folder of the rewriters that learn without a part; gone at the end


def train_rewriter(
    cfg: RewriterConfig,
    source: str | Path,
    log_dir: str | Path | None = None,
    *,
    cb: Callbacks = (),
    resume: bool = False,
    progress: bool = True,
) -> tuple[dict[str, Any], list[str]]:
    """Train a rewriter, and measure its best weights on the test split, if there is one.

    Then one more rewriter for each of `cfg.held_out_folds` parts of the train queries, for
    `held_out_terms.json`.

    Args:
        cfg: What a query becomes, and how to learn.
        source: A collection, as `load_collection` takes it, with judgments of train and dev.
        log_dir: The run's folder; None: a new one.
        cb: Callbacks, ours and Keras's.
        resume: Continue the run in `log_dir`.
        progress: Show a progress bar on standard error.

    Returns:
        What `result.json` holds, and the result as lines of text.

    Raises:
        ValueError: The collection or a setting does not fit.
        ModuleNotFoundError: wordllama is not installed, and `cfg.pretrained` asks for it.
        KeyboardInterrupt: Its message says how to continue.
    """
    known = available_splits(source)
    splits = [split for split in SPLITS if split in known or split != "test"]
    collection = load_collection(source, splits)
    warn_of_shared_queries(collection)
    task = RewriterTask(collection, cfg)
    parts = parts_of(task)
    result = Trainer(log_dir, progress).train_supervised(cfg, task, cb, resume=resume)
    result.require_written()
    folder = Path(result.run_dir)
    rewriter = best_rewriter(task, folder)
    rewriter.save(folder)
    summary = {
        **result.summary,
        "queries": {split: len(queries) for split, queries in task.queries.items()},
        "pairs": {split: len(pairs["source"].lengths) for split, pairs in task.pairs.items()},
        "test": measure(task, rewriter) if "test" in splits else None,
        "held_out": held_out_summary(task, parts, folder, result.summary["updates"], progress),
    }
    RunFolder(folder).write_result(summary)
    return summary, lines(summary)


def parts_of(task: RewriterTask) -> np.ndarray:
    """[Q] the part of each train query; none where no held-out terms are asked for."""
    if not task.cfg.held_out_folds:
        return np.zeros(0, np.int64)
    train, dev = (
        JudgedTexts([query.text for query in queries], [query.relevant for query in queries])
        for queries in (task.queries["train"], task.queries["dev"])
    )
    return held_out_parts(train, dev, task.cfg.held_out_folds, task.cfg.seed)


def best_rewriter(task: RewriterTask, folder: Path) -> Rewriter:
    """The rewriter with the best weights of a run."""
    names = ("target", "max_source_length", "max_target_length")
    settings = {name: getattr(task.cfg, name) for name in names}
    return Rewriter(load_network(folder / BEST), task.vocabulary, settings)


def held_out_summary(
    task: RewriterTask, parts: np.ndarray, folder: Path, updates: int, progress: bool
) -> dict[str, Any] | None:
    """The quality of the held-out terms, which are made here; None where none are asked for.

    For the arguments, see `held_out_terms`.
    """
    if not len(parts):
        return None
    try:
        terms = held_out_terms(task, parts, folder, updates, progress)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(
            f"The rewriter is saved in {folder}, but not its {HELD_OUT_FILE}. Continue it with "
            f"`{task.cfg.command} --resume {shlex.quote(str(folder))}`; parts that are done stay."
        ) from None
    queries = task.queries["train"]
    written = [[one.term for one in terms[query.text]] for query in queries]
    return {"queries": len(queries), "term_share": share_of_best(queries, written)}


def held_out_terms(
    task: RewriterTask, parts: np.ndarray, folder: Path, updates: int, progress: bool
) -> dict[str, list[Term]]:
    """The proposals of rewriters for the train queries that each has not learned from.

    Args:
        task: With all train queries.
        parts: [Q] the part of each train query.
        folder: The run's folder. It receives `HELD_OUT_FILE`; a part that was done before is taken
            from there.
        updates: Those of the run, by which a part of a shorter run is told.
        progress: Show a progress bar on standard error.
    """
    path, by_query, count = folder / HELD_OUT_FILE, {}, int(parts.max()) + 1
    done = read_held_out(path, updates)
    if done is not None:
        return done
    for number in range(count):
        saved, rows = folder / PARTS / f"{number}.json", np.flatnonzero(parts == number)
        terms = read_held_out(saved, updates)
        if terms is None:
            run = folder / PARTS / str(number)
            shutil.rmtree(run, ignore_errors=True)
            others = task.without(rows)
            others.name = f"{task.name}, held-out terms, part {number + 1} of {count}"
            Trainer(run, progress).train_supervised(task.cfg, others).require_written()
            texts = [task.queries["train"][row].text for row in rows]
            proposed = best_rewriter(task, run).terms_of(texts)
            terms = dict(zip(texts, proposed, strict=True))
            write_held_out(saved, terms, updates)
            shutil.rmtree(run)
        by_query |= terms
    write_held_out(path, by_query, updates)
    shutil.rmtree(folder / PARTS)
    return by_query


def measure(task: RewriterTask, rewriter: Rewriter) -> dict[str, Any]:
    """The metrics of the test split, beside terms that need no learning.

    The shares are of the best terms of relevant documents, among as many terms as a rewriter
    writes at most: those of the rewriter; of the documents that the query finds; that training
    queries need most often; and among twice as many, mined alone, or mined and written.
    """
    queries, count = task.query_sample("test"), task.cfg.max_target_length
    written = [[one.term for one in row] for row in rewriter.terms_of([q.text for q in queries])]
    mined = [mined_terms(task.index, query, 2 * count) for query in queries]
    few = [terms[:count] for terms in mined]
    both = [[*written_terms, *others] for written_terms, others in zip(written, few, strict=True)]
    frequent = frequent_terms(queries, task.index, task.queries["train"], count)
    return {
        **task.metrics(rewriter.network, "test"),
        "queries": len(queries),
        "terms": count,
        "share_mined": share_of_best(queries, few),
        "share_frequent": share_of_best(queries, frequent),
        "share_mined_twice_as_many": share_of_best(queries, mined),
        "share_mined_and_written": share_of_best(queries, both),
    }


def lines(summary: Mapping[str, Any]) -> list[str]:
    """The result for a reader."""
    test = summary["test"]
    tail = []
    if summary["held_out"] is not None:
        held_out = summary["held_out"]
        tail = [
            f"Share for the {held_out['queries']:,} train queries, by rewriters that learned "
            f"without them: {held_out['term_share']:.3f}"
        ]
    if test is None:
        return [f"Best on dev: {summary['evaluation']}", *tail]
    rows = {
        "written by the rewriter": "term_share",
        "of the documents that the query finds": "share_mined",
        "most frequent in training": "share_frequent",
        "of those documents, twice as many": "share_mined_twice_as_many",
        "of those documents, and written": "share_mined_and_written",
    }
    head = f"Share of the {test['terms']} best terms of relevant documents, test queries:"
    body = [f"  {words:<40} {test[name]:.3f}" for words, name in rows.items()]
    return [head, *body, f"Token accuracy {test['token_accuracy']:.3f}", *tail]
