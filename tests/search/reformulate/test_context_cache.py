"""The cache of `pretrained`: a second query indexes and embeds nothing, and is the same."""

import json
import os

import pytest

from kytolly.search.reformulate import context_cache, reformulator
from kytolly.search.reformulate.context_cache import VARIABLE, cache_folder, remove_old_entries
from kytolly.search.reformulate.reformulator import Reformulator
from kytolly.search.reformulate.search import BM25Index, DocumentVectors
from tests.search.reformulate.tiny_collection import write_collection

pytestmark = pytest.mark.usefixtures("every_change_pays")

QUERY = "key12 noise1"


@pytest.fixture
def cache(tmp_path, monkeypatch):
    pytest.importorskip("wordllama")
    monkeypatch.setenv(VARIABLE, str(tmp_path / "cache"))
    return tmp_path / "cache"


def forbid_work(monkeypatch):
    def refuse(*args, **kwargs):
        raise AssertionError("nothing may be made again")

    monkeypatch.setattr(DocumentVectors, "of_texts", refuse)
    monkeypatch.setattr(BM25Index, "__init__", refuse)
    monkeypatch.setattr(reformulator, "load_scorer", refuse)
    monkeypatch.setattr("kytolly.search.text.language.main_language", refuse)


def entries(cache):
    return sorted(path for path in cache.iterdir() if path.is_dir())


def test_a_second_query_is_the_same_without_the_work(collection, cache, monkeypatch):
    first = Reformulator.pretrained(collection).reformulate(QUERY)
    assert len(entries(cache)) == 1 and first.added
    forbid_work(monkeypatch)
    assert Reformulator.pretrained(collection).reformulate(QUERY) == first
    with pytest.raises(AssertionError, match="nothing may be made again"):  # another setting
        Reformulator.pretrained(collection, language="german")


@pytest.mark.parametrize("name", ["index.npz", "vectors.npz", "rules.json", "network"])
@pytest.mark.parametrize("damage", [b"", b"{}", b"PK\x03\x04 no archive", None])
def test_what_is_damaged_is_made_again(name, damage, collection, cache, monkeypatch):
    first = Reformulator.pretrained(collection).reformulate(QUERY)
    (entry,) = entries(cache)
    path = next(cache.glob("network-*")) if name == "network" else entry / name
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2] if damage is None else damage)
    assert Reformulator.pretrained(collection).reformulate(QUERY) == first
    assert path.read_bytes() == whole
    forbid_work(monkeypatch)
    assert Reformulator.pretrained(collection).reformulate(QUERY) == first


def test_other_documents_have_an_entry_of_their_own(cache, tmp_path):
    folder = write_collection(tmp_path / "data")
    Reformulator.pretrained(folder)
    corpus = folder / "corpus.jsonl"
    lines = corpus.read_text().splitlines()
    lines[0] = json.dumps({"_id": "good0.0", "text": "key12 other noise1"})
    corpus.write_text("\n".join(lines) + "\n")
    changed = Reformulator.pretrained(folder)
    assert "other" in changed.context.index.term_ids and len(entries(cache)) == 2


def test_it_can_be_off_and_elsewhere(collection, tmp_path, monkeypatch):
    pytest.importorskip("wordllama")
    monkeypatch.setenv(VARIABLE, "off")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    assert cache_folder() is None
    assert Reformulator.pretrained(collection).reformulate(QUERY).added
    assert not (tmp_path / "home").exists()
    monkeypatch.setenv(VARIABLE, "")
    assert cache_folder() == tmp_path / "home" / "kytolly" / "search"


def test_where_nothing_can_be_written_a_warning_says_so(collection, cache):
    cache.write_text("a file, where the folder would be")
    with pytest.warns(UserWarning, match=f"set {VARIABLE} to another folder"):
        found = Reformulator.pretrained(collection).reformulate(QUERY)
    assert found.added


def test_entries_used_longest_ago_are_removed(tmp_path, monkeypatch):
    for age, name in enumerate("dcba"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "index.npz").write_bytes(b"x" * 100)
        os.utime(tmp_path / name, (1e9 + age, 1e9 + age))  # a is the newest
    monkeypatch.setattr(context_cache, "MAX_CACHE_BYTES", 300)
    remove_old_entries(tmp_path, tmp_path / "d")
    assert [path.name for path in entries(tmp_path)] == ["a", "b", "d"]
