"""What `pretrained` made of documents before, in the user's cache folder.

An entry has the index and the embeddings of some documents under some settings, of which its name
is the digest. All that is read from it is checked; what is damaged or stale is made again.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
import shutil
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from kytolly.machine.facts import OFF_WORDS
from kytolly.record.files import write_text
from kytolly.search.index.collection import text_digest
from kytolly.search.index.corpus import load_collection
from kytolly.search.index.tokens import NONE, languages, stop_word_lists
from kytolly.search.model.candidate_scorer import CandidateScorer
from kytolly.search.reformulate.network import NumpyScorer
from kytolly.search.reformulate.options import ReformulationOptions, RetrievalOptions
from kytolly.search.reformulate.search import SearchContext

VARIABLE = "KYTOLLY_SEARCH_CACHE"  # a folder, or off
MAX_CACHE_BYTES = 4 * 2**30  # bytes of all entries; beyond, those used longest ago are removed
RULES_FILE = "rules.json"  # of the tokens: what `auto` means for the documents


def cached_context(options: ReformulationOptions) -> SearchContext:
    """The search context of a collection, from the cache if it was searched before."""
    collection, folder = load_collection(options.collection, ()), cache_folder()
    if folder is None:
        return SearchContext.load(options, (), collection=collection)
    entry = folder / entry_name(options.retrieval, collection.texts)
    known = with_known_rules(options, entry)
    context = SearchContext.load(known or options, (), saved=entry, collection=collection)
    with reported_failures(folder):
        if known is None or not context.is_saved:
            entry.mkdir(parents=True, exist_ok=True, mode=0o700)
            context.save(entry)
            rules = dataclasses.asdict(context.options.retrieval)
            rules = {name: rules[name] for name in ("language", "stop_words", "ngrams")}
            write_text(entry / RULES_FILE, json.dumps(rules) + "\n")
            remove_old_entries(folder, entry)
        os.utime(entry)
    return context


def cached_scorer(path: Path, load: Callable[[Path], CandidateScorer]) -> NumpyScorer:
    """The network in a file, in NumPy; from the cache, it needs no second of Keras.

    Args:
        path: The file.
        load: Reads it, where the cache has nothing.
    """
    folder = cache_folder()
    if folder is None:
        return NumpyScorer(load(path))
    saved = folder / f"network-{hashlib.sha256(path.read_bytes()).hexdigest()[:32]}.npz"
    scorer = NumpyScorer.read(saved)
    if scorer is None:
        scorer = NumpyScorer(load(path))
        with reported_failures(folder):
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            scorer.save(saved)
    return scorer


def cache_folder() -> Path | None:
    """The folder that `KYTOLLY_SEARCH_CACHE` names, or one in the user's cache; None: it is off."""
    wanted = os.environ.get(VARIABLE, "").strip()
    if wanted.lower() in OFF_WORDS:
        return None
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(wanted or Path(home) / "kytolly" / "search").expanduser().absolute()


def entry_name(retrieval: RetrievalOptions, texts: Sequence[str]) -> str:
    """The digest of documents, and of the settings that change their index and embeddings."""
    settings = [retrieval.language, retrieval.stop_words, retrieval.ngrams, retrieval.k1]
    settings += [retrieval.b, retrieval.encoder, retrieval.dimension, text_digest(texts)]
    return hashlib.sha256(json.dumps(settings).encode()).hexdigest()[:32]


def with_known_rules(options: ReformulationOptions, entry: Path) -> ReformulationOptions | None:
    """The options with the language that was found before; None: it is not known."""
    try:
        rules = json.loads((entry / RULES_FILE).read_text("utf-8"))
        language, stop_words, ngrams = rules["language"], rules["stop_words"], rules["ngrams"]
        known = language in (NONE, *languages()) and stop_words in (NONE, *stop_word_lists())
        if not known or len(rules) != 3:
            return None
        retrieval = dataclasses.replace(
            options.retrieval, language=language, stop_words=stop_words, ngrams=ngrams
        )
    except (OSError, ValueError, TypeError, KeyError):
        return None
    return dataclasses.replace(options, retrieval=retrieval)


def remove_old_entries(folder: Path, newest: Path) -> None:
    """Remove the entries used longest ago beyond the size limit, but never the newest one."""
    others = [path for path in folder.iterdir() if path.is_dir() and path != newest]
    total = 0
    for entry in (newest, *sorted(others, key=os.path.getmtime, reverse=True)):
        total += sum(file.stat().st_size for file in entry.iterdir())
        if total > MAX_CACHE_BYTES and entry != newest:
            shutil.rmtree(entry, ignore_errors=True)


@contextlib.contextmanager
def reported_failures(folder: Path) -> Iterator[None]:
    """Say once that the cache cannot be written; the search goes on without it."""
    try:
        yield
    except OSError as error:
        warnings.warn(
            f"{folder} cannot be written ({error.strerror}), so the next query indexes the "
            f"documents again: set {VARIABLE} to another folder, or to off.",
            stacklevel=3,
        )
