"""LibreOffice's help becomes a collection in its language, whose splits share no page."""

import pytest

from kytolly.search.index.corpus import available_splits, load_collection
from kytolly.search.reformulate.options import ReformulationOptions, RetrievalOptions
from kytolly.search.reformulate.search import SearchContext
from kytolly.search.scripts.convert_help import convert

GERMAN = (
    "Sie können das Diagramm {} in ein Dokument einfügen und danach die Daten ändern. Wählen Sie "
    "dazu im Menü den Befehl, der das Fenster öffnet, und bestätigen Sie ihn."
)
ENGLISH = (
    "You can insert the chart {} into a document and change its data afterwards. Choose the "
    "command that opens the window, and confirm it."
)
PAGE = """<html><head><title>{title}</title><script>var menu = "Menü";</script></head><body>
<nav>Navigation</nav><div id="DisplayArea"><meta itemprop="keywords" content="Stichwort">
<h1>{title}</h1><p>{text}</p></div><div id="SearchFrame"></div><footer>Fuß</footer></body></html>"""


def write_help(folder, pages, entries):
    for name, (title, text) in pages.items():
        path = folder / "text" / "writer" / f"{name}.html"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(PAGE.format(title=title, text=text), "utf-8")
    lines = [
        f'{{url:"{folder.name}/text/writer/{name}.html?DbPAR=WRITER#a", app:"WRITER", '
        f'text:"{text}"}},'
        for name, text in entries
    ]
    folder.mkdir(exist_ok=True)
    (folder / "bookmarks.js").write_text("var bookmarks = [\n" + "\n".join(lines), "utf-8")
    return folder


def test_translated_pages_are_documents_and_translated_entries_queries(tmp_path):
    pages = {
        "1": ("Diagramme", GERMAN.format("eins")),
        "2": ("Daten", GERMAN.format("zwei")),
        "3": ("Charts", ENGLISH.format("three")),
        "4": ("Kurz", "Das ist zu kurz."),
    }
    entries = [
        ("1", "Diagramme -- einfügen"),
        ("2", "Diagramme -- einfügen"),
        ("2", "charts -- inserting"),
        ("3", "Diagramme -- englische"),
        ("4", "Kurzes"),
        ("1", "Diagramme -- einfügen"),
    ]
    write_help(tmp_path / "en-US", {}, [("2", "charts -- inserting")])
    convert(write_help(tmp_path / "de", pages, entries), tmp_path / "out")
    made = load_collection(tmp_path / "out", available_splits(tmp_path / "out"))
    first, second = (f"de/text/writer/{name}.html" for name in "12")
    texts = dict(zip(made.doc_ids, made.texts, strict=True))
    assert texts == {
        first: f"Diagramme {GERMAN.format('eins')}",
        second: f"Daten {GERMAN.format('zwei')}",
    }
    assert list(made.queries) == ["Diagramme einfügen"]
    (judged,) = made.judgments.values()
    assert list(judged.values()) == [{first: 1, second: 1}]


def test_a_page_and_what_it_shares_entries_with_are_in_one_split_of_every_language(tmp_path):
    pages = {str(n): (f"Seite {n}", GERMAN.format(f"Wort{n}")) for n in range(40)}
    entries = [(str(n), f"Eintrag {n // 2}") for n in range(40)]
    entries += [(str(n), f"Anderes {n}") for n in range(40)]
    splits = {}
    for language in ("de", "fr"):  # in either the same pages
        folder = write_help(tmp_path / language, pages, entries)
        convert(folder, tmp_path / f"out-{language}")
        made = load_collection(tmp_path / f"out-{language}")
        splits[language] = {
            split: sorted(name.partition("/")[2] for led in judged.values() for name in led)
            for split, judged in made.judgments.items()
        }
    assert splits["de"] == splits["fr"] and all(splits["de"].values())
    one_of_each = [set(names) for names in splits["de"].values()]
    assert sum(map(len, one_of_each)) == len(set.union(*one_of_each)) == 40


def test_the_language_of_a_collection_is_that_of_its_pages(tmp_path):
    pages = {str(n): (f"Seite {n}", GERMAN.format(f"Wort{n}")) for n in range(8)}
    entries = [(str(n), f"Diagramm Wort{n}") for n in range(8)]
    convert(write_help(tmp_path / "de", pages, entries), tmp_path / "out")
    retrieval = RetrievalOptions(language="auto", encoder="hash")
    options = ReformulationOptions(collection=str(tmp_path / "out"), retrieval=retrieval)
    context = SearchContext.load(options, ())
    assert context.options.retrieval.language == "german"
    assert "und" not in context.index.query_weights("Diagramm und Daten")


@pytest.mark.parametrize("entries", [None, [("9", "Diagramme")]])
def test_a_folder_without_the_help_is_refused(tmp_path, entries):
    folder = tmp_path / "de"
    if entries is not None:
        write_help(folder, {"1": ("Diagramme", GERMAN.format("eins"))}, entries)
    with pytest.raises(ValueError, match=r"de.* expected the folder of one language"):
        convert(folder, tmp_path / "out")
    assert not (tmp_path / "out").exists()
