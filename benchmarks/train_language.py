"""Train the network of `text/language.py`, and print its accuracy by language and by length.

    pip download --no-deps -d wheels "django<6" "wagtail<9" "sphinx<10" "spacy<4"
    python -m kytolly.benchmarks.train_language wheels --output text/language_model.npz

The texts are the translated messages of Django (BSD-3-Clause), Wagtail (BSD-3-Clause) and Sphinx
(BSD-2-Clause) and the stop words of spaCy (MIT); the English ones are the messages themselves and
the docstrings of those packages. Nothing of them is in the network but numbers. Two sets of texts
have no part in training: messages whose English original has a certain digest, in all languages;
and spaCy's example sentences, which are of newspapers. `--manual-pages /usr/share/man` adds a
third: the paragraphs of translated manual pages, if the system has any.
"""

from __future__ import annotations

import argparse
import ast
import collections
import gzip
import itertools
import re
import struct
import warnings
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from kytolly.text.language import (
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
TEN = "dutch english french german italian polish portuguese russian spanish swedish".split()
NOT_TEXT = re.compile(r"%\(\w+\)\w|%\w|\{[^}]*\}|<[^>]*>|&\w*;?|https?://\S+|``?[^`]*`?`|\\\w+")
ROFF = re.compile(r"\\f.|\\[&|^]|\\\(..|\\-|\\e|\\")
HELD_OUT = 7  # one message of this many
LENGTHS = ((10, 20), (20, 30), (30, 50), (50, 100), (100, 1_000))  # characters


def read_messages(wheels: Sequence[Path]) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    """Language -> texts to train on, and language -> messages that are held out."""
    train: dict[str, set[str]] = collections.defaultdict(set)
    test: dict[str, set[str]] = collections.defaultdict(set)
    for wheel in wheels:
        archive = zipfile.ZipFile(wheel)
        for file in archive.namelist():
            code = re.search(r"/locale/([^/]+)/.*\.mo$", file)
            if code and code.group(1) in NAMES:
                for original, translations in catalog(archive.read(file)):
                    held_out = zlib.crc32(original.encode()) % HELD_OUT == 0
                    side = test if held_out else train
                    side["english"].add(plain_text(original))
                    for text in translations:
                        if plain_text(text) != plain_text(original):
                            side[NAMES[code.group(1)]].add(plain_text(text))
            elif file.endswith(".py") and "/lang/" not in file:
                train["english"].update(map(plain_text, docstrings(archive.read(file))))
            elif (code := re.search(r"/lang/(\w+)/stop_words.py$", file)) and code.group(1) in NAMES:
                words = strings(archive.read(file))
                train[NAMES[code.group(1)]].update(map(plain_text, words))
    for name in train:
        test[name] -= train[name]
    return tuple({name: sorted(filter(None, side[name])) for name in CODES} for side in (train, test))


def read_examples(wheels: Sequence[Path]) -> dict[str, list[str]]:
    """Language -> example sentences of spaCy."""
    found: dict[str, list[str]] = {}
    for wheel in wheels:
        archive = zipfile.ZipFile(wheel)
        for file in archive.namelist():
            code = re.search(r"/lang/(\w+)/examples.py$", file)
            if code and code.group(1) in NAMES:
                texts = strings(archive.read(file), module_docstring=False)
                found.setdefault(NAMES[code.group(1)], []).extend(map(plain_text, texts))
    return found


def read_manual_pages(folder: Path) -> dict[str, list[str]]:
    """Language -> paragraphs of translated manual pages."""
    found: dict[str, list[str]] = {}
    for page in sorted(folder.glob("*/man*/*.gz")):
        if page.parts[-3] in NAMES:
            text = ROFF.sub("", gzip.decompress(page.read_bytes()).decode("utf-8", "replace"))
            texts = found.setdefault(NAMES[page.parts[-3]], [])
            texts += [plain_text(line) for line in text.splitlines() if line[:1].isalpha()]
    return {name: sorted({t for t in texts if len(t) >= 20}) for name, texts in found.items()}


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
    texts: Sequence[str], count: int, rng: np.random.Generator, shortest: int = 8, longest: int = 120
) -> Iterator[str]:
    """Parts of random texts, joined where they are too short, of 8 to 120 letters."""
    lengths = np.array([len(text) for text in texts], float) ** 0.7
    picks = iter(rng.choice(len(texts), 6 * count, p=lengths / lengths.sum()))
    for wanted in np.exp(rng.uniform(np.log(shortest), np.log(longest), count)):
        text = ""
        while len(text) < wanted and (pick := next(picks, None)) is not None:
            text += " " + NOT_LETTERS.sub(" ", texts[pick]).strip()
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

    keras.utils.set_random_seed(0)
    rng = np.random.default_rng(0)
    grams, labels = [], []
    for label, name in enumerate(texts):
        for text in windows(texts[name], rows, rng):
            if len(found := gram_buckets(text, buckets)):
                grams.append((found + 1).astype(np.uint16)[:400])
                labels.append(label)
    padded = np.zeros((len(grams), 400), np.uint16)
    for row, found in enumerate(grams):
        padded[row, : len(found)] = found
    inputs = keras.Input((400,), dtype="int32")
    table = keras.layers.Embedding(buckets + 1, dimension, name="table")
    mask = keras.ops.cast(inputs > 0, "float32")[..., None]
    mean = keras.ops.sum(table(inputs) * mask, 1) / keras.ops.maximum(keras.ops.sum(mask, 1), 1.0)
    outputs = keras.layers.Dense(len(texts), name="linear")(keras.layers.Dropout(0.1)(mean))
    model = keras.Model(inputs, outputs)
    steps = epochs * (len(labels) // 256)
    rate = keras.optimizers.schedules.CosineDecay(2e-2, steps)
    model.compile(
        keras.optimizers.Adam(rate),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
        jit_compile=False,
    )
    data = tf.data.Dataset.from_tensor_slices((padded, np.array(labels)))
    data = data.shuffle(len(labels), seed=0).batch(256, drop_remainder=True).prefetch(4)
    model.fit(data, epochs=epochs, verbose=2)
    rows_of_table = model.get_layer("table").get_weights()[0][1:]
    scale = np.abs(rows_of_table).max(0) / 127
    return LanguageModel(
        np.array(list(texts)),
        np.round(rows_of_table / scale).astype(np.int8),
        scale.astype(np.float32),
        *model.get_layer("linear").get_weights(),
    )


def accuracies(
    model: LanguageModel, texts: Mapping[str, Iterable[str]], shortest: int, longest: int
) -> dict[str, tuple[int, int, str]]:
    """Language -> (right, all, most frequent mistake) over texts of such a length in characters."""
    found = {}
    for name, members in texts.items():
        given = collections.Counter()
        for text in members:
            if shortest <= len(text) < longest and len(g := gram_buckets(text, len(model.table))):
                given[str(model.names[language_scores(model, g).argmax()])] += 1
        wrong = [(count, other) for other, count in given.items() if other != name]
        if given:
            found[name] = (given[name], given.total(), max(wrong)[1] if wrong else "")
    return found


def print_accuracies(title: str, model: LanguageModel, texts: Mapping[str, Iterable[str]]) -> None:
    """Print the accuracy of each language over 20 characters and more, and by length."""
    found = accuracies(model, texts, 20, 100_000)
    print(f"\n{title}: accuracy over texts of 20 characters and more")
    for name, (right, total, mistake) in found.items():
        print(f"  {name:<12}{right / total:8.1%} of {total:>6}   {mistake}")
    for label, names in (("ten languages", TEN), ("all languages", list(found))):
        rates = [found[name][0] / found[name][1] for name in names if name in found]
        print(f"  {label} ({len(rates)}), mean: {np.mean(rates):.2%}")
    for shortest, longest in LENGTHS:
        part = accuracies(model, texts, shortest, longest)
        both = [
            np.mean([part[n][0] / part[n][1] for n in names if n in part])
            for names in (TEN, list(part))
        ]
        print(f"  {shortest} to {longest} characters: ten {both[0]:.1%}, all {both[1]:.1%}")


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
    model = train(
        texts, arguments.buckets, arguments.dimension, arguments.rows, arguments.epochs
    )
    print_accuracies("messages held out", model, held_out)
    print_accuracies("spaCy's example sentences", model, read_examples(wheels))
    if arguments.manual_pages:
        print_accuracies("manual pages", model, read_manual_pages(arguments.manual_pages))
    if arguments.output:
        np.savez(arguments.output, **model._asdict())


if __name__ == "__main__":
    main()
