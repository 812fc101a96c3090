"""The built-in collection: known-item search over the documentation of installed packages.

Nothing is downloaded or imported. The sources of the standard library and of packages that this
project depends on are parsed. A document is the docstring of a public function, class or
method without its first sentence; that sentence is the query, and the document its only relevant
one. So the collection is the same wherever the same versions are installed.

Source: known-item search with queries from the documents themselves, Azzopardi, de Rijke & Balog
2007, "Building Simulated Queries for Known-Item Topics".
"""

from __future__ import annotations

import ast
import collections
import contextlib
import functools
import gc
import hashlib
import importlib.util
import inspect
import math
import os
import re
import sysconfig
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from kytolly.search.index.collection import BUILTIN, SPLITS, Collection

PACKAGES = (
    "gymnasium",
    "keras",
    "matplotlib",
    "numpy",
    "rich",
    "scipy",
)  # and the standard library
LEFT_OUT = re.compile(  # folders and files: tests, copies of other packages, and what is not public
    r"tests?|.*_test|test_.*|testing|conftest|site-packages|dist-packages|__pycache__|idlelib|lib2to3"
    r"|turtledemo|ensurepip|encodings|pydoc_data|distutils|f2py|_lib|_vendor|_pyinstaller|externals"
    r"|_tf_keras|_pydecimal|_pyio|backend"
)
MIN_QUERY_WORDS = 5
MIN_DOCUMENT_WORDS = 15
ALIKE = 0.7  # share of common words from which two sentences say the same
PARTS = (0.6, 0.2, 0.2)  # shares of the modules, per split

ABBREVIATED = "".join(rf"(?<!{word}\.)" for word in ("e\\.g", "i\\.e", "etc", "cf", "vs"))
SENTENCE_END = re.compile(rf"(?<=[.!?]){ABBREVIATED}\s+(?=[A-Z`\"'(*])")
WORD = re.compile(r"[^\W\d_]+")


class Passage(NamedTuple):
    """A docstring in two.

    Attributes:
        name: Dotted name of what it documents, `numpy.linalg._linalg.norm`.
        module: Dotted name of its module.
        sentence: The first sentence, on one line.
        rest: The other sentences.
    """

    name: str
    module: str
    sentence: str
    rest: str


def builtin_collection(splits: Sequence[str] = SPLITS) -> Collection:
    """The collection, with the judgments of the given splits.

    Documents whose first sentence is too short for a query, or says the same as another one, are
    kept as documents without a query. Docstrings of one module resemble one another. So a module
    is in one split as a whole (deep within a package, its whole folder is), and a sentence that
    shares most of its words with one of another split is no query.

    Raises:
        ValueError: A split that is not train, dev or test, or a package that is not installed.
    """
    for name in splits:
        if name not in SPLITS:
            raise ValueError(
                f"No split {name!r} in the built-in collection; there are: {', '.join(SPLITS)}: "
                "ask for one of these."
            )
    passages = _passages()
    asked = _queries(passages)
    judgments: dict[str, dict[str, dict[str, int]]] = {name: {} for name in splits}
    for passage in asked:
        name = _split(passage.module)
        if name in judgments:
            judgments[name][_query_id(passage)] = {passage.name: 1}
    return Collection(
        name=BUILTIN,
        doc_ids=tuple(passage.name for passage in passages),
        texts=tuple(passage.rest for passage in passages),
        query_ids=tuple(_query_id(passage) for passage in asked),
        queries=tuple(passage.sentence for passage in asked),
        judgments=judgments,
    )


@functools.lru_cache(maxsize=1)
def _passages() -> tuple[Passage, ...]:
    """All documents by name; of equal texts the first one only."""
    by_name: dict[str, Passage] = {}
    with _no_garbage_collection():
        for passage in _all_passages():
            by_name.setdefault(passage.name, passage)
    by_text: dict[str, Passage] = {}
    for name in sorted(by_name):
        by_text.setdefault(_gist(by_name[name].rest), by_name[name])
    return tuple(by_text.values())


@contextlib.contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """Syntax trees have no cycles, and with TensorFlow in memory the search for them is slow."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _all_passages() -> Iterator[Passage]:
    for package in PACKAGES:
        spec = importlib.util.find_spec(package)  # finds a top-level package without importing it
        if spec is None or not spec.origin:
            raise ValueError(
                f"The built-in collection is made of the sources of {', '.join(PACKAGES)}, and "
                f"{package} is not installed: install it, or give a folder as collection."
            )
        yield from _package_passages(Path(spec.origin).parent, package)
    yield from _package_passages(Path(sysconfig.get_paths()["stdlib"]), "")


def _package_passages(root: Path, package: str) -> Iterator[Passage]:
    """Passages of every module below a folder; `package` is "" for the standard library."""
    for path in _modules(root):
        parts = path.relative_to(root).with_suffix("").parts
        if parts[-1] == "__init__":
            parts = parts[:-1]
        try:
            source = path.read_text(encoding="utf-8")
            if '"""' not in source and "'''" not in source:
                continue
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of escapes that are none
                tree = ast.parse(source)
        except (SyntaxError, UnicodeDecodeError, ValueError):
            continue  # a template, or not for this version of Python
        module = ".".join([package] * bool(package) + list(parts))
        for name, docstring in _docstrings(tree.body):
            sentence, rest = _first_sentence(docstring)
            if len(rest.split()) >= MIN_DOCUMENT_WORDS:
                yield Passage(f"{module}.{name}", module, sentence, rest)


def _modules(root: Path) -> Iterator[Path]:
    """Source files below a folder, in the order of their names."""
    for folder, folders, files in os.walk(root):
        folders[:] = sorted(name for name in folders if not LEFT_OUT.fullmatch(name))
        for file in sorted(files):
            if file.endswith(".py") and not LEFT_OUT.fullmatch(file[:-3]):
                yield Path(folder, file)


def _docstrings(body: Sequence[ast.stmt], prefix: str = "") -> Iterator[tuple[str, str]]:
    """(name, docstring) of the public functions, classes and methods of a block."""
    for node in body:
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            continue
        if node.name.startswith("_"):
            continue
        docstring = ast.get_docstring(node, clean=False)
        if docstring:
            yield prefix + node.name, inspect.cleandoc(docstring)
        if isinstance(node, ast.ClassDef):
            yield from _docstrings(node.body, f"{prefix}{node.name}.")


def _first_sentence(docstring: str) -> tuple[str, str]:
    """The first sentence, at most the first paragraph, and what follows it."""
    paragraph, _, others = docstring.partition("\n\n")
    pieces = SENTENCE_END.split(paragraph, maxsplit=1)
    rest = "\n\n".join(piece for piece in [*pieces[1:], others] if piece.strip())
    return " ".join(pieces[0].split()), rest


def _queries(passages: Sequence[Passage]) -> list[Passage]:
    """Passages whose first sentence is long enough, and unlike all others."""
    times = collections.Counter(_gist(passage.sentence) for passage in passages)
    long_and_single = [
        passage
        for passage in passages
        if len(WORD.findall(passage.sentence)) >= MIN_QUERY_WORDS
        and times[_gist(passage.sentence)] == 1
    ]
    crossing = _crossing(
        [frozenset(_gist(passage.sentence).split()) for passage in long_and_single],
        [_split(passage.module) for passage in long_and_single],
    )
    return [p for index, p in enumerate(long_and_single) if index not in crossing]


def _crossing(sentences: Sequence[frozenset[str]], splits: Sequence[str]) -> set[int]:
    """Indices of the sentences that resemble one of another split.

    Two sets that share at least the part ALIKE of their union share one of the rarest words of
    each: only sentences that do are compared.

    Source: Chaudhuri, Ganti & Kaushik 2006, "A Primitive Operator for Similarity Joins in Data
    Cleaning" (prefix filter).
    """
    times = collections.Counter(word for words in sentences for word in words)
    holders: dict[str, list[int]] = collections.defaultdict(list)
    crossing: set[int] = set()
    for index, words in enumerate(sentences):
        rarest = sorted(words, key=lambda word: (times[word], word))
        others = set()
        for word in rarest[: len(words) - math.ceil(ALIKE * len(words)) + 1]:
            others.update(holders[word])
            holders[word].append(index)
        for other in others:
            shared = len(words & sentences[other])
            if splits[other] != splits[index] and shared >= ALIKE * len(words | sentences[other]):
                crossing.update((index, other))
    return crossing


def _gist(text: str) -> str:
    """The words without case, digits and punctuation: "1D pooling." and "2D pooling" are equal."""
    return " ".join(WORD.findall(text.lower()))


def _query_id(passage: Passage) -> str:
    return f"{passage.name}?"


def _split(module: str) -> str:
    """train, dev or test: the digest of the module's name decides, the same in every process.

    Where the module lies two folders deep or more, the name of its folder decides.
    """
    parts = module.split(".")
    family = ".".join(parts[:-1]) if len(parts) > 3 else module
    number = int.from_bytes(hashlib.sha256(family.encode("utf-8")).digest()[:8], "big") / 2**64
    reached = 0.0
    for name, part in zip(SPLITS, PARTS, strict=True):
        reached += part
        if number < reached:
            return name
    return SPLITS[-1]
