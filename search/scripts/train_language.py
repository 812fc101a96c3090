"""Train the network of `search/text/language.py`, and print its accuracy by language and by length.

    pip download --no-deps -d wheels "django<6" "wagtail<9" "sphinx<10" "spacy<4" "faker<41"
    python -m kytolly.search.scripts.train_language wheels --output search/text/language_model.npz

The texts are the translated messages of Django (BSD-3-Clause), Wagtail (BSD-3-Clause) and Sphinx
(BSD-2-Clause), the stop words of spaCy (MIT) and the words of Faker (MIT). The English ones are the
messages themselves and the docstrings of those packages. The network holds none of them, only
numbers. Two sets of texts have no part in training: messages whose English original has a certain
digest, in all languages; and spaCy's example sentences, most of them from newspapers.
`--manual-pages /usr/share/man` adds a third: translated manual pages, if the system has any.
"""

from __future__ import annotations

import argparse
import ast
import collections
import gzip
import re
import struct
import warnings
import zipfile
import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from kytolly.search.text.language import (
    NOT_LETTERS,
    LanguageModel,
    gram_buckets,
    language_scores,
)

# Language -> how the packages name it. The first 31 have a stemmer of Snowball's.
CODES = {
    "arabic": "ar ar_DZ", "armenian": "hy", "basque": "eu", "catalan": "ca", "czech": "cs",
    "danish": "da", "dutch": "nl", "english": "en", "estonian": "et", "finnish": "fi",
    "french": "fr", "german": "de", "greek": "el", "hindi": "hi", "hungarian": "hu",
    "indonesian": "id id_ID", "irish": "ga", "italian": "it", "lithuanian": "lt", "nepali": "ne",
    "norwegian": "nb nn", "persian": "fa", "polish": "pl", "portuguese": "pt pt_BR pt_PT",
    "romanian": "ro", "russian": "ru", "serbian": "sr", "spanish": "es es_AR es_CO es_MX",
    "swedish": "sv", "tamil": "ta", "turkish": "tr tr_TR", "bulgarian": "bg", "chinese":
    "zh zh_CN zh_TW zh_Hans zh_Hant", "croatian": "hr hr_HR", "hebrew": "he he_IL",
    "japanese": "ja", "korean": "ko", "latvian": "lv", "slovak": "sk sk_SK", "slovenian": "sl",
    "thai": "th", "ukrainian": "uk uk_UA", "vietnamese": "vi",
}  # fmt: skip
NAMES = {code: name for name, codes in CODES.items() for code in codes.split()}
TEN = (
    *("dutch", "english", "french", "german", "italian"),
    *("polish", "portuguese", "russian", "spanish", "swedish"),
)
NOT_TEXT = re.compile(r"%\(\w+\)\w|%\w|\{[^}]*\}|<[^>]*>|&\w*;?|https?://\S+|``?[^`]*`?`|\\\w+")
ROFF = re.compile(r"\\f.|\\[&|^]|\\\(..|\\-|\\e|\\")
BATCH = 256  # texts of an update
HELD_OUT = 7  # one message of this many
LENGTHS = ((10, 20), (20, 30), (30, 50), (50, 100), (100, 1_000))  # characters


def read_messages(wheels: Sequence[Path]) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    """Language -> texts to train on, and language -> messages that are held out."""
    train: dict[str, set[str]] = collections.defaultdict(set)
    test: dict[str, set[str]] = collections.defaultdict(set)
    for file, content in files_in(wheels):
        if name := language_of(file, r"/locale/([^/]+)/.*\.mo$"):
            for original, translations in catalog(content):
                side = test if zlib.crc32(original.encode()) % HELD_OUT == 0 else train
                side["english"].add(plain_text(original))
                texts = {plain_text(text) for text in translations}
                side[name] |= texts - {plain_text(original)}
        elif name := language_of(file, r"/lang/(\w+)/stop_words\.py$|/lorem/(\w\w)_\w\w/"):
            train[name].update(map(plain_text, strings(content)))
        elif file.endswith(".py") and not re.search("/lang/|^faker/", file):
            train["english"].update(map(plain_text, docstrings(content)))
    for name in train:
        test[name] -= train[name]
    return sorted_texts(train), sorted_texts(test)


def sorted_texts(texts: Mapping[str, Collection[str]]) -> dict[str, list[str]]:
    """The texts that are not blank, in the order of `CODES`."""
    return {name: sorted(filter(None, texts[name])) for name in CODES}


def read_examples(wheels: Sequence[Path]) -> dict[str, list[str]]:
    """Language -> example sentences of spaCy."""
    found: dict[str, list[str]] = {}
    for file, content in files_in(wheels):
        if name := language_of(file, r"/lang/(\w+)/examples\.py$"):
            texts = strings(content, module_docstring=False)
            found.setdefault(name, []).extend(map(plain_text, texts))
    return found


def files_in(wheels: Sequence[Path]) -> Iterator[tuple[str, bytes]]:
    """Name and content of the files that may hold texts."""
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as archive:
            for file in archive.namelist():
                if file.endswith((".mo", ".py")):
                    yield file, archive.read(file)


def language_of(file: str, pattern: str) -> str:
    """The language that the code in a file's name stands for; "" for another file or code."""
    match = re.search(pattern, file)
    return NAMES.get(next(filter(None, match.groups()), ""), "") if match else ""


def read_manual_pages(folder: Path) -> dict[str, list[str]]:
    """Language -> lines of translated manual pages, of five words and more.

    A line that is in the pages of two languages was not translated, and is left out. Other lines
    were not translated either, so that the accuracy on them is a lower bound.
    """
    found: dict[str, set[str]] = {}
    for page in sorted(folder.glob("*/man*/*.gz")):
        if page.parts[-3] in NAMES:
            text = gzip.decompress(page.read_bytes()).decode("utf-8", "replace")
            lines = ROFF.sub("", text.replace("\\*(Aq", "'")).splitlines()
            lines = [plain_text(line) for line in lines if line[:1].isalpha()]
            found.setdefault(NAMES[page.parts[-3]], set()).update(lines)
    times = collections.Counter(line for lines in found.values() for line in lines)
    return {
        name: sorted(x for x in lines if times[x] == 1 and (len(x.split()) > 4 or not x.isascii()))
        for name, lines in found.items()
    }


def catalog(data: bytes) -> Iterator[tuple[str, list[str]]]:
    """English original and translations of each message in a .mo file."""
    order = "<" if data[:4] == b"\xde\x12\x04\x95" else ">"
    count, originals, translations = struct.unpack(f"{order}8x3I", data[:20])
    for index in range(count):
        pair = []
        for start in (originals, translations):
            length, place = struct.unpack_from(f"{order}2I", data, start + 8 * index)
            pair.append(data[place : place + length].decode("utf-8", "replace"))
        if pair[0]:
            yield pair[0].split("\0")[0].split("\4")[-1], pair[1].split("\0")


def docstrings(source: bytes) -> Iterator[str]:
    """First paragraphs of the docstrings of a Python file."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)):
            yield (ast.get_docstring(node) or "").split("\n\n")[0]


def strings(source: bytes, module_docstring: bool = True) -> list[str]:
    """Strings of a Python file; one that holds words is cut into groups of eight."""
    texts = [
        node.value
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]
    if not module_docstring:
        return [text for text in texts if ">>>" not in text]
    words = [word for text in texts for word in text.split()]
    return [" ".join(words[at : at + 8]) for at in range(0, len(words), 8)]


def plain_text(text: str) -> str:
    """A message without placeholders, markup and repeated spaces."""
    return " ".join(NOT_TEXT.sub(" ", text).split())


def windows(
    texts: Sequence[str],
    count: int,
    rng: np.random.Generator,
    shortest: int = 8,
    longest: int = 120,
) -> Iterator[str]:
    """Parts of random texts, joined where they are too short, of 8 to 120 letters."""
    lengths = np.array([len(text) for text in texts], float) ** 0.7
    picks = iter(rng.choice(len(texts), 6 * count, p=lengths / lengths.sum()))
    for wanted in np.exp(rng.uniform(np.log(shortest), np.log(longest), count)):
        text = ""
        while len(text) < wanted and (pick := next(picks, None)) is not None:
            text += " " + NOT_LETTERS.sub(" ", texts[int(pick)]).strip()
        start = rng.integers(max(len(text) - int(wanted), 0) + 1)
        start = text.find(" ", start) + 1 if " " in text[start:] else start
        end = text.find(" ", start + int(wanted))
        yield text[start : end if end > 0 else None][: int(1.5 * wanted)]


def train(
    texts: Mapping[str, Sequence[str]], buckets: int, dimension: int, rows: int, epochs: int
) -> LanguageModel:
    """Fit the table and the linear layer to random parts of the texts, `rows` a language."""
    import keras
    import tensorflow as tf

    rng = np.random.default_rng(0)
    grams, labels = [], []
    for label, name in enumerate(texts):
        for text in windows(texts[name], rows, rng):
            if len(found := gram_buckets(text, buckets)):
                grams.append(found.astype(np.int32))
                labels.append(label)
    classes, steps = np.array(labels, np.int32), epochs * (len(labels) // BATCH)
    table = keras.Variable(rng.normal(0, 0.05, (buckets, dimension)), dtype="float32")
    weights = keras.Variable(rng.normal(0, 0.3, (dimension, len(texts))), dtype="float32")
    bias = keras.Variable(np.zeros(len(texts)), dtype="float32")
    variables = [table, weights, bias]
    rate: Any = keras.optimizers.schedules.CosineDecay(2e-2, steps)
    optimizer = keras.optimizers.Adam(rate)
    optimizer.build(variables)
    numbers = tf.TensorSpec([None], tf.int32)

    @tf.function(input_signature=[numbers, numbers, numbers])
    def fit_step(found, places, target):
        with tf.GradientTape() as tape:
            mean = tf.math.segment_mean(tf.gather(table.value, found), places)
            scores = mean @ weights + bias
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(target, scores)
            loss = tf.reduce_mean(losses)
        gradients = tape.gradient(loss, [variable.value for variable in variables])
        optimizer.apply([tf.convert_to_tensor(part) for part in gradients])
        return loss

    for epoch in range(epochs):
        order, losses = rng.permutation(len(classes)), []
        for at in range(0, len(order) - BATCH + 1, BATCH):
            batch = order[at : at + BATCH]
            lengths = [len(grams[row]) for row in batch]
            places = np.repeat(np.arange(BATCH, dtype=np.int32), lengths)
            found = np.concatenate([grams[row] for row in batch])
            losses.append(fit_step(found, places, classes[batch]))
        print(f"epoch {epoch + 1} of {epochs}: loss {np.mean(losses):.4f}", flush=True)
    values = np.asarray(table)
    scale = np.abs(values).max(axis=0) / 127
    return LanguageModel(
        names=np.array(list(texts)),
        table=np.round(values / scale).astype(np.int8),
        scale=scale.astype(np.float32),
        weights=np.asarray(weights),
        bias=np.asarray(bias),
    )


class Answer(NamedTuple):
    """The network's answer for a text."""

    language: str
    found: str
    length: int


def answers(model: LanguageModel, texts: Mapping[str, Iterable[str]]) -> list[Answer]:
    """The network's answer for each text that has a letter."""
    return [
        Answer(name, str(model.names[language_scores(model, grams).argmax()]), len(text))
        for name, members in texts.items()
        for text in members
        if len(grams := gram_buckets(text, len(model.table)))
    ]


def mean_accuracy(given: Sequence[Answer], names: Collection[str]) -> float:
    """Mean over languages of the share of right answers."""
    right: dict[str, list[bool]] = {}
    for one in given:
        if one.language in names:
            right.setdefault(one.language, []).append(one.found == one.language)
    return float(np.mean([np.mean(members) for members in right.values()])) if right else np.nan


def print_accuracies(title: str, given: Sequence[Answer]) -> None:
    """Print the accuracy of each language over 20 characters and more, and by length."""
    print(f"\n{title}: accuracy over texts of 20 characters and more")
    long = [one for one in given if one.length >= 20]
    for name in CODES:
        found = collections.Counter(one.found for one in long if one.language == name)
        if total := found.total():
            mistakes = [other for other, _ in found.most_common(2) if other != name]
            rate = found[name] / total
            print(f"  {name:<12}{rate:8.1%} of {total:>6}   {', '.join(mistakes[:1])}")
    for label, names in (("ten languages", TEN), ("all languages", CODES)):
        print(f"  {label}, mean: {mean_accuracy(long, names):.2%}")
    for shortest, longest in LENGTHS:
        part = [one for one in given if shortest <= one.length < longest]
        rates = [mean_accuracy(part, names) for names in (TEN, CODES)]
        print(f"  {shortest} to {longest} characters: ten {rates[0]:.1%}, all {rates[1]:.1%}")


def main() -> None:
    """Train, print and save."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("wheels", type=Path, help="folder of the wheels")
    parser.add_argument("--output", type=Path, help="file to write")
    parser.add_argument("--manual-pages", type=Path, help="folder of manual pages to check with")
    parser.add_argument("--buckets", type=int, default=2**14)
    parser.add_argument("--dimension", type=int, default=16)
    parser.add_argument("--rows", type=int, default=10_000, help="texts of each language")
    parser.add_argument("--epochs", type=int, default=8)
    arguments = parser.parse_args()
    wheels = sorted(arguments.wheels.glob("*.whl"))
    texts, held_out = read_messages(wheels)
    sizes = {name: sum(map(len, members)) for name, members in texts.items()}
    print(", ".join(f"{name} {size:,}" for name, size in sizes.items()), "characters")
    model = train(texts, arguments.buckets, arguments.dimension, arguments.rows, arguments.epochs)
    if arguments.output:
        np.savez(arguments.output, **model._asdict())
    print_accuracies("messages held out", answers(model, held_out))
    print_accuracies("spaCy's example sentences", answers(model, read_examples(wheels)))
    if arguments.manual_pages:
        pages = read_manual_pages(arguments.manual_pages)
        print_accuracies("manual pages", answers(model, pages))


if __name__ == "__main__":
    main()
