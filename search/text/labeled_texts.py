"""Texts with a label each, from files that a user may have: CSV, TSV, JSON lines, or folders."""

from __future__ import annotations

import collections
import csv
import dataclasses
import hashlib
import itertools
import json
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from kytolly.config.words import nearest, path_text, value_text
from kytolly.search.index.files import MAX_LINE_BYTES, decoded_lines, open_file, text_lines

SPLITS = ("train", "dev", "test")
DELIMITERS = {".csv": ",;\t", ".tsv": "\t", ".tab": "\t"}  # of a .csv: the one that fits the header
JSON_LINES = (".jsonl", ".ndjson")
HELD_OUT = 10  # one text of this many is in a split that the data does not give
EXPECTED = "expected texts with labels as .csv, .tsv or .jsonl, or a folder"


class LabeledTexts(NamedTuple):
    """Texts and the name of each one's class.

    Attributes:
        texts: [n] never blank.
        labels: [n] never blank.
    """

    texts: tuple[str, ...]
    labels: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class LabeledSplits:
    """Labeled texts for training, for choices, and for the final metrics.

    Attributes:
        classes: Names of the classes in training, sorted.
        splits: "train", "dev" and "test"; all labels are in `classes`.
        unseen: Split -> label -> number of texts that were left out, because training has no text
            of that class.
    """

    classes: tuple[str, ...]
    splits: Mapping[str, LabeledTexts]
    unseen: Mapping[str, Mapping[str, int]]

    def class_indices(self, split: str) -> list[int]:
        """[n] position in `classes` of each text's label."""
        places = {name: index for index, name in enumerate(self.classes)}
        return [places[label] for label in self.splits[split].labels]


def read_labeled_texts(
    source: str | Path, text_column: str = "text", label_column: str = "label"
) -> LabeledSplits:
    """Read labeled texts and split them.

    A split that the data does not give is a tenth of the training texts, chosen by a digest of the
    text: equal texts are on one side, and the choice is the same everywhere.

    Args:
        source: A file with a header, a file of JSON lines, a folder with `train` and perhaps `dev`
            and `test` (each such a file or a folder), or a folder with one folder of .txt files
            for each class.
        text_column: Column, or key, of the text.
        label_column: Column, or key, of the label.

    Raises:
        ValueError: A file cannot be read or is not UTF-8, a column is missing, a text or label is
            blank, a split has no text, or training has fewer than two classes.
    """
    splits = fill_splits(read_given_splits(Path(source), text_column, label_column))
    train = splits["train"]
    classes = tuple(sorted(set(train.labels)))
    if len(classes) < 2:
        raise ValueError(
            f"{path_text(source)} has one class in training, {value_text(train.labels[0])}; "
            "expected two or more: choose another label column, or add texts of other classes."
        )
    unseen: dict[str, dict[str, int]] = {}
    for split in SPLITS[1:]:
        texts, labels = splits[split]
        known = [index for index, label in enumerate(labels) if label in classes]
        unseen[split] = dict(collections.Counter(label for label in labels if label not in classes))
        splits[split] = LabeledTexts(
            tuple(texts[index] for index in known), tuple(labels[index] for index in known)
        )
        if not known:
            raise ValueError(
                f"{path_text(source)}: {split} has no text of a class in training; expected some: "
                "check that the label columns have the same names for a class."
            )
    warn_of_leaks(splits, unseen)
    return LabeledSplits(classes, splits, unseen)


def read_texts(path: Path, text_column: str = "text") -> list[str]:
    """The texts of a file without labels; of a .txt file each line that is not blank is one.

    Raises:
        ValueError: The file cannot be read, is not UTF-8, has no such column or no text.
    """
    if path.suffix.lower() == ".txt":
        texts = [line for _, line in text_lines(path, EXPECTED)]
    else:
        texts = []
        for number, (text,) in file_rows(path, [text_column]):
            require_text(path, number, text_column, text)
            texts.append(text)
    if not texts:
        raise ValueError(f"{path_text(path)} has no text; expected one or more: add some.")
    return texts


def read_given_splits(source: Path, text_column: str, label_column: str) -> dict[str, LabeledTexts]:
    """The splits that a file or folder gives; "train" is always there."""
    if not source.is_dir():
        return {"train": read_file(source, text_column, label_column)}
    parts = {split: part for split in SPLITS if (part := split_path(source, split)) is not None}
    if not parts:
        return {"train": read_class_folders(source)}
    if "train" not in parts:
        raise ValueError(
            f"{path_text(source)} has {', '.join(parts)} and no train; expected train.csv, "
            "train.tsv, train.jsonl or a folder named train: add it."
        )
    return {
        split: read_class_folders(part)
        if part.is_dir()
        else read_file(part, text_column, label_column)
        for split, part in parts.items()
    }


def split_path(folder: Path, split: str) -> Path | None:
    """The one file or folder of a split."""
    names = [split + ending for ending in ("", *DELIMITERS, *JSON_LINES)]
    paths = [folder / name for name in names if (folder / name).exists()]
    paths = [path for path in paths if path.suffix or path.is_dir()]
    if len(paths) > 1:
        raise ValueError(
            f"{path_text(folder)} has {paths[0].name} and {paths[1].name}; expected one of them: "
            "move the other away."
        )
    return paths[0] if paths else None


def read_class_folders(folder: Path) -> LabeledTexts:
    """The .txt files of a folder's folders, each of which is a class."""
    files = sorted(path for path in folder.glob("*/*.txt") if path.is_file())
    if not files:
        raise ValueError(
            f"{path_text(folder)} has no labeled text; expected train.csv, train.tsv or "
            "train.jsonl in it, or one folder of .txt files for each class."
        )
    texts = ["".join(line for _, line in decoded_lines(path, EXPECTED)) for path in files]
    for path, text in zip(files, texts, strict=True):
        if not text.strip():
            raise ValueError(f"{path_text(path)} has no text; expected some: remove the file.")
    return LabeledTexts(tuple(texts), tuple(path.parent.name for path in files))


def read_file(path: Path, text_column: str, label_column: str) -> LabeledTexts:
    """The texts and labels of one file."""
    texts, labels = [], []
    for number, (text, label) in file_rows(path, (text_column, label_column)):
        require_text(path, number, text_column, text)
        require_text(path, number, label_column, label)
        texts.append(text)
        labels.append(label.strip())
    if not texts:
        raise ValueError(f"{path_text(path)} has no row; expected texts with labels: add some.")
    return LabeledTexts(tuple(texts), tuple(labels))


def require_text(path: Path, number: int, column: str, value: str) -> None:
    """Refuse a blank field of a line."""
    if not value.strip():
        raise ValueError(
            f"{path_text(path)}:{number}: the column {column} is blank; expected text in every "
            "row: fill it in or remove the row."
        )


def file_rows(path: Path, columns: Sequence[str]) -> Iterator[tuple[int, list[str]]]:
    """Line number and the fields of some columns, in each row of a file."""
    ending = path.suffix.lower()
    if ending in JSON_LINES:
        return json_rows(path, columns)
    if ending in DELIMITERS:
        return table_rows(path, columns)
    open_file(path, EXPECTED).close()
    raise ValueError(f"{path_text(path)} ends with {ending or 'no suffix'}; {EXPECTED}.")


def table_rows(path: Path, columns: Sequence[str]) -> Iterator[tuple[int, list[str]]]:
    """Line number and the fields of some columns, in each row of a file with a header."""
    csv.field_size_limit(MAX_LINE_BYTES)  # a long document exceeds the default of 128 KiB
    lines = (line for _, line in decoded_lines(path, EXPECTED))
    first = next(lines, "")
    delimiter = next(
        (sign for sign in DELIMITERS[path.suffix.lower()] if sign in first),
        DELIMITERS[path.suffix.lower()][0],
    )
    reader = csv.reader(itertools.chain([first], lines), delimiter=delimiter, strict=True)
    try:
        header = [name.strip() for name in next(reader, [])]
        places = [column_place(path, header, column) for column in columns]
        for row in reader:
            if not row or (len(row) < len(header) and not any(map(str.strip, row))):
                continue  # a blank line
            if len(row) != len(header):
                raise ValueError(
                    f"{path_text(path)}:{reader.line_num}: {len(row)} fields; expected "
                    f"{len(header)}, as in the header: put a text with the delimiter in quotes."
                )
            yield reader.line_num, [row[place] for place in places]
    except csv.Error as error:
        raise ValueError(
            f"{path_text(path)}:{reader.line_num}: not a table ({error}); expected fields "
            f"separated by {value_text(delimiter)}, quotes inside of a field doubled: mend the row."
        ) from None


def column_place(path: Path, header: Sequence[str], column: str) -> int:
    """Position of a column; ValueError names those that are there."""
    if column not in header:
        raise ValueError(missing_column(path_text(path), column, header))
    return header.index(column)


def missing_column(where: str, column: str, known: Sequence[str]) -> str:
    """The message for a column, or key, that is not there."""
    if not known:
        return f"{where} has no column {value_text(column)}, nor any other: it is empty."
    names = ", ".join(map(value_text, known[:20]))
    hint = nearest(column, known) or " Give --text-column and --label-column."
    return f"{where} has no column {value_text(column)}; its columns are {names}.{hint}"


def json_rows(path: Path, keys: Sequence[str]) -> Iterator[tuple[int, list[str]]]:
    """Line number and the values of some keys, in each line of a file of JSON lines."""
    for number, line in text_lines(path, EXPECTED):
        where = f"{path_text(path)}:{number}"
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            record = None
        if not isinstance(record, dict):
            raise ValueError(f"{where}: no JSON object; expected one on each line: mend it.")
        yield number, [json_text(where, record, key) for key in keys]


def json_text(where: str, record: Mapping[str, Any], key: str) -> str:
    """A text, number or truth value of a record as text."""
    if key not in record:
        raise ValueError(missing_column(where, key, list(record)))
    value = record[key]
    if not isinstance(value, (str, int)):
        raise ValueError(
            f"{where}: {key} is {value_text(value)}; expected text or a whole number: mend it."
        )
    return str(value)


def fill_splits(given: Mapping[str, LabeledTexts]) -> dict[str, LabeledTexts]:
    """The splits that are given, and for each other one a tenth of the training texts."""
    missing = [split for split in SPLITS if split not in given]
    parts: dict[str, list[int]] = {split: [] for split in ("train", *missing)}
    train = given["train"]
    for index, text in enumerate(train.texts):
        place = text_bucket(text)
        parts[missing[place] if place < len(missing) else "train"].append(index)
    splits = {
        split: LabeledTexts(
            tuple(train.texts[index] for index in indices),
            tuple(train.labels[index] for index in indices),
        )
        for split, indices in parts.items()
    }
    for split, part in splits.items():
        if not part.texts:
            raise ValueError(
                f"{len(train.texts)} texts given leave none for {split}; expected more than "
                "some dozens: add texts, or give train, dev and test apart."
            )
    return {**given, **splits}


def text_bucket(text: str) -> int:
    """A number from 0 to 9; texts that differ in case and spaces only have the same."""
    plain = " ".join(text.lower().split())
    return int.from_bytes(hashlib.sha256(plain.encode("utf-8", "replace")).digest()[:8], "big") % (
        HELD_OUT
    )


def warn_of_leaks(
    splits: Mapping[str, LabeledTexts], unseen: Mapping[str, Mapping[str, int]]
) -> None:
    """Warn of classes that training never saw, and of texts that it saw."""
    train = set(splits["train"].texts)
    for split in SPLITS[1:]:
        if counts := unseen[split]:
            names = ", ".join(f"{value_text(name)} ({n})" for name, n in list(counts.items())[:10])
            warnings.warn(
                f"{split}: left out {sum(counts.values())} texts of {len(counts)} classes that "
                f"training never saw: {names}. The metrics do not count them.",
                stacklevel=3,
            )
        if again := sum(text in train for text in splits[split].texts):
            warnings.warn(
                f"{split}: {again} texts are in training too, so its metrics are too good.",
                stacklevel=3,
            )
