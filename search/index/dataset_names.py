"""Collections of the package ir_datasets, by name.

"ir_datasets:beir/fiqa" (or that of one of its splits, "ir_datasets:beir/fiqa/test") stands for
the documents of `beir/fiqa` and the queries and judgments of its parts `train`, `dev` and `test`.
"ir_datasets:train=antique/train/split200-train,dev=antique/train/split200-valid" names the parts
one by one. The package downloads a collection when it is used first.

Source: MacAvaney et al. 2021, "Simplified Data Wrangling with ir_datasets", arXiv:2103.02280.
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from kytolly.config.words import nearest
from kytolly.search.index.collection import SPLITS, Collection, unknown_split
from kytolly.search.index.files import NOT_IN_IDS, is_unicode, short

PREFIX = "ir_datasets:"
PART_NAMES = {
    "train": ("train", "training"),
    "dev": ("dev", "validation", "valid", "val"),
    "test": ("test",),
}
HELD_OUT = 5  # one training query of this many is a dev query where a data set has no dev part


def dataset_name(source: str | Path) -> str | None:
    """The name after "ir_datasets:"; None if the source is something else."""
    text = str(source)
    return text.removeprefix(PREFIX) if text.startswith(PREFIX) else None


def split_datasets(name: str) -> dict[str, str]:
    """Split -> the id of the data set that has its judgments; nothing is downloaded.

    Where there is a train part and no dev part, both splits have the train part.

    Raises:
        ValueError: There is no data set of this name.
        ModuleNotFoundError: ir_datasets is not installed.
    """
    if "=" in name:
        parts = {
            split: part for split, _, part in (pair.partition("=") for pair in name.split(","))
        }
        for split, part in parts.items():
            if split not in SPLITS:
                raise ValueError(unknown_split(split, PREFIX + name, SPLITS))
            if not _dataset(part).has("qrels"):
                raise ValueError(
                    f"the data set {part} of ir_datasets has no judgments: name another."
                )
    else:
        root, parts = _root(name), {}
        for split, names in PART_NAMES.items():
            known = [f"{root}/{part}" for part in names if _has(f"{root}/{part}", "qrels")]
            parts.update({split: known[0]} if known else {})
        if not parts and _dataset(root).has("qrels"):
            parts = {"test": root}
    if "train" in parts:
        parts.setdefault("dev", parts["train"])
    return parts


def load_dataset(name: str, splits: Sequence[str]) -> Collection:
    """A collection of ir_datasets with the judgments, and the queries, of some splits.

    Judgments of documents or queries that it lacks are left out, and counted in a warning.

    Raises:
        ValueError: There is no such data set or split, or it cannot be read.
        ModuleNotFoundError: ir_datasets is not installed.
    """
    parts = split_datasets(name)
    for split in splits:
        if split not in parts:
            raise ValueError(unknown_split(split, PREFIX + name, [s for s in SPLITS if s in parts]))
    source = next(iter(parts.values())) if "=" in name else _root(name)
    if parts and not _has(source, "docs"):
        source = next(iter(parts.values()))
    docs = dict(_texts(source, "docs"))
    queries: dict[str, str] = {}
    for part in dict.fromkeys(parts[split] for split in splits):
        for key, text in _texts(part, "queries"):
            if queries.setdefault(key, text) != text:
                raise ValueError(
                    f"the query {key!r:.80} of {part} has another text in another split; expected "
                    "one: name splits that belong together."
                )
    return Collection(
        name=PREFIX + name,
        doc_ids=tuple(docs),
        texts=tuple(docs.values()),
        query_ids=tuple(queries),
        queries=tuple(queries.values()),
        judgments={split: _judgments(parts, split, docs, queries) for split in splits},
    )


def _root(name: str) -> str:
    """The data set that holds the parts: "beir/fiqa" also for "beir/fiqa/test"."""
    parent, _, last = name.rpartition("/")
    known = {part for names in PART_NAMES.values() for part in names}
    return parent if parent and last in known else name


def _package() -> Any:
    try:
        import ir_datasets
    except ImportError:
        raise ModuleNotFoundError(
            f"The package ir_datasets is not installed, and collections named {PREFIX}NAME need "
            "it: pip install 'kytolly[datasets]'."
        ) from None
    return ir_datasets


def _dataset(name: str) -> Any:
    package = _package()
    try:
        return package.load(name)
    except KeyError:
        known = sorted(package.registry)
        raise ValueError(
            f"{name!r:.200} is no data set of ir_datasets; expected one of its {len(known):,} "
            f"names, such as beir/scifact.{nearest(name, known)}"
        ) from None


def _has(name: str, kind: str) -> bool:
    """True if there is a data set of this name, with this kind of records."""
    try:
        return _package().load(name).has(kind)
    except KeyError:
        return False


def _texts(name: str, kind: str) -> Iterator[tuple[str, str]]:
    """(id, text) of the documents or queries of a data set."""
    for record in _records(name, kind):
        key = str(record.doc_id if kind == "docs" else record.query_id)
        text = record.default_text() or ""
        if not key or NOT_IN_IDS.search(key) or not is_unicode(text):
            raise ValueError(
                f"the id {key!r:.80} in the {kind} of {name} has spaces or control characters, or "
                "its text has half a character; expected neither: choose another data set."
            )
        yield key, text


def _records(name: str, kind: str) -> Iterator[Any]:
    dataset = _dataset(name)
    if not dataset.has(kind):
        raise ValueError(f"the data set {name} of ir_datasets has no {kind}: name another one.")
    try:
        yield from getattr(dataset, f"{kind}_iter")()
    except Exception as error:  # a download, an archive or a parser, each with its own errors
        raise ValueError(
            f"ir_datasets cannot read the {kind} of {name} ({type(error).__name__}: "
            f"{short(' '.join(str(error).split()), 300)}): check the network, or its folder "
            "~/.ir_datasets."
        ) from None


def _judgments(
    parts: Mapping[str, str], split: str, docs: Mapping[str, str], queries: Mapping[str, str]
) -> dict[str, dict[str, int]]:
    shared = split in ("train", "dev") and parts["dev"] == parts.get("train")
    grades: dict[str, dict[str, int]] = {}
    unknown = 0
    for record in _records(parts[split], "qrels"):
        query, doc = str(record.query_id), str(record.doc_id)
        if shared and _is_held_out(query) != (split == "dev"):
            continue
        if query not in queries or doc not in docs:
            unknown += 1
            continue
        grades.setdefault(query, {})[doc] = int(record.relevance)
    if not grades:
        raise ValueError(
            f"{parts[split]} judges no document for the {split} split ({unknown} judgments of "
            "unknown ones); expected at least one: name the splits, as train=ID,dev=ID,test=ID."
        )
    if unknown:
        warnings.warn(
            f"{parts[split]}: left out {unknown} judgments of documents or queries that it lacks; "
            "metrics count the others only.",
            stacklevel=4,
        )
    return grades


def _is_held_out(query_id: str) -> bool:
    """True if a training query is a dev query where there is no dev part; the same everywhere."""
    return hashlib.sha256(query_id.encode()).digest()[0] % HELD_OUT == 0
