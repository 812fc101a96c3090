"""LibreOffice's help as retrieval collections: its pages, and the entries of its index as queries.

    apt-get download libreoffice-help-tr libreoffice-help-en-us
    for package in *.deb; do dpkg-deb --extract $package help; done
    python -m kytolly.search.scripts.convert_help help/usr/share/libreoffice/help/tr collections/tr

It exists in some fifty languages, with the same pages in each. An entry of the index, such as
"charts -- copying from Calc into Writer", is a query; the pages that it leads to are relevant. Its
authors wrote the entries by hand, and they stand in no text that is searched.

What is not translated is left out: pages in another language than most, and entries that the
English help beside the folder has, too. A page and all entries that lead to it are in one split,
the same in all languages. The help has the license MPL 2.0.
"""

from __future__ import annotations

import argparse
import collections
import hashlib
import html.parser
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from kytolly.search.index.corpus import HEADER
from kytolly.search.scripts.convert_medquad import first_names, write_json, write_lines
from kytolly.search.text.language import identify_language

ENTRY = re.compile(r'\{url:"([^"?]+)[^"]*", app:"\w*", text:"([^"]*)"\}')
ENGLISH = "en-US"
SPLITS = ("train", "train", "train", "dev", "test")  # a fifth each
LEAST_WORDS = 20  # of a page
PARTS = ("DisplayArea", "SearchFrame")  # ids between which a page's text stands
SKIPPED = ("script", "style")


class Page(NamedTuple):
    """A page of the help.

    Attributes:
        title: One line.
        text: One line.
    """

    title: str
    text: str


class PageReader(html.parser.HTMLParser):
    """Collects title and text of a page; its menus, and the entries of the index, are left out."""

    def __init__(self) -> None:
        super().__init__()
        self.title: list[str] = []
        self.text: list[str] = []
        self._tag, self._inside = "", False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Take note of where the text that follows stands."""
        self._tag = tag
        name = dict(attrs).get("id")
        if name in PARTS:
            self._inside = name == PARTS[0]

    def handle_endtag(self, tag: str) -> None:
        """Take note that an element ends."""
        self._tag = ""

    def handle_data(self, data: str) -> None:
        """Keep a text that is the title, or of the page itself."""
        if self._tag == "title":
            self.title.append(data)
        elif self._inside and self._tag not in SKIPPED:
            self.text.append(data)


def read_page(path: Path) -> Page:
    """The page in an HTML file."""
    reader = PageReader()
    reader.feed(path.read_text("utf-8"))
    title = one_line(reader.title)
    return Page(title, one_line(reader.text).removeprefix(title).strip())


def read_entries(folder: Path) -> dict[str, list[str]]:
    """Entry of the index -> the pages that it leads to, as paths beside the folder.

    Raises:
        ValueError: The folder has no index.
    """
    path = folder / "bookmarks.js"
    if not path.is_file():
        raise ValueError(
            f"{folder} has no bookmarks.js, expected the folder of one language in LibreOffice's "
            "help, such as help/usr/share/libreoffice/help/tr."
        )
    entries: dict[str, list[str]] = {}
    for url, text in ENTRY.findall(path.read_text("utf-8")):
        pages = entries.setdefault(" ".join(text.replace(" -- ", " ").split()), [])
        if url not in pages:
            pages.append(url)
    return entries


def read_help(folder: Path) -> tuple[dict[str, Page], dict[str, list[str]]]:
    """The pages of a language by their path, and the entries that lead to them.

    Raises:
        ValueError: The folder has no index, or it leads to no page.
    """
    entries, found = read_entries(folder), collections.defaultdict(dict)
    for path in sorted((folder / "text").rglob("*.html")):
        page = read_page(path)
        if len(page.text.split()) >= LEAST_WORDS:
            name = path.relative_to(folder.parent).as_posix()
            found[identify_language(page.text).name][name] = page
    pages: dict[str, Page] = max(found.values(), key=len, default={})
    translated = folder.name != ENGLISH and (folder.parent / ENGLISH).is_dir()
    english = read_entries(folder.parent / ENGLISH) if translated else {}
    entries = {
        text: known
        for text, led in entries.items()
        if text not in english and (known := [name for name in led if name in pages])
    }
    if not entries:
        raise ValueError(
            f"{folder}: its index leads to no page with {LEAST_WORDS} words and more in text/, "
            "expected the folder of one language in LibreOffice's help."
        )
    return pages, entries


def splits_of(entries: Mapping[str, Sequence[str]]) -> list[str]:
    """[entries] the split of each: one for all that lead to a page, or share an entry with it."""
    first = first_names(list(entries.values()))
    digests = [hashlib.sha256(name.partition("/")[2].encode()) for name in first]
    return [SPLITS[digest.digest()[0] % len(SPLITS)] for digest in digests]


def convert(folder: Path, output: Path) -> None:
    """Write the help of a language as a collection in the BEIR layout.

    Raises:
        ValueError: As `read_help`.
    """
    pages, entries = read_help(folder)
    keys = {text: f"q{number}" for number, text in enumerate(entries)}
    (output / "qrels").mkdir(parents=True, exist_ok=True)
    write_json(
        output / "corpus.jsonl",
        ({"_id": name, "title": page.title, "text": page.text} for name, page in pages.items()),
    )
    write_json(output / "queries.jsonl", ({"_id": key, "text": t} for t, key in keys.items()))
    lines: dict[str, list[str]] = {}
    for (text, led), split in zip(entries.items(), splits_of(entries), strict=True):
        lines.setdefault(split, ["\t".join(HEADER)]).extend(
            f"{keys[text]}\t{name}\t1" for name in led
        )
    for split, rows in lines.items():
        write_lines(output / "qrels" / f"{split}.tsv", rows)


def one_line(parts: Iterable[str]) -> str:
    """Texts, joined and without line breaks."""
    return " ".join(" ".join(parts).split())


def main() -> None:
    """Convert the help of one language."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path, help="of the language, such as .../help/tr")
    parser.add_argument("output", type=Path, help="folder to write the collection to")
    arguments = parser.parse_args()
    try:
        convert(arguments.folder, arguments.output)
    except ValueError as error:
        parser.exit(2, f"{error}\n")
    print(f"Wrote {arguments.output}.")


if __name__ == "__main__":
    main()
