"""Collections by the names of ir_datasets: from the package itself, or a stand-in without it."""

import importlib.util
import subprocess
import sys
import types
from pathlib import Path
from typing import NamedTuple

import pytest

from kytolly.search.index.corpus import available_splits, load_collection, resolved_source


class Doc(NamedTuple):
    doc_id: str
    title: str
    text: str

    def default_text(self):
        return f"{self.title} {self.text}"


class Query(NamedTuple):
    query_id: str
    text: str

    def default_text(self):
        return self.text


class Qrel(NamedTuple):
    query_id: str
    doc_id: str
    relevance: int


class Handler:
    """What ir_datasets' docs, queries and qrels handlers have in common."""

    def __init__(self, kind, records):
        setattr(self, f"{kind}_iter", lambda: iter(records))
        setattr(self, f"{kind}_handler", lambda: self)


class StandIn:
    """ir_datasets.Dataset, as far as it is used: parts that each answer for one kind."""

    def __init__(self, *handlers):
        self._handlers = handlers

    def __getattr__(self, name):
        for handler in self._handlers:
            if name in vars(handler):
                return getattr(handler, name)
        raise AttributeError(name)

    def has(self, kind):
        return hasattr(self, f"{kind}_handler")


DOCS = Handler("docs", [Doc("d1", "Ice", "caves"), Doc("d2", "Sea", "wind")])
EVERY = [Query(f"q{n}", f"text {n}") for n in range(40)]
TRAIN = Handler("queries", EVERY[:30])
TEST = Handler("queries", EVERY[30:])
TRAIN_QRELS = Handler("qrels", [Qrel(f"q{n}", "d1", 1) for n in range(30)])
TEST_QRELS = Handler("qrels", [Qrel("q30", "d2", 2), Qrel("q31", "d1", 0)])
UNKNOWN = Handler("qrels", [*[Qrel("q30", "d9", 1)] * 2, Qrel("q30", "d2", 1)])
SETS = {
    "toy": (DOCS,),
    "toy/train": (DOCS, TRAIN, TRAIN_QRELS),
    "toy/test": (DOCS, TEST, TEST_QRELS),
    "toy/odd": (DOCS, TEST, UNKNOWN),
    "full": (DOCS, Handler("queries", EVERY)),
    "full/training": (DOCS, TRAIN, TRAIN_QRELS),
    "full/validation": (DOCS, TEST, TEST_QRELS),
    "parts/train": (DOCS, TRAIN, TRAIN_QRELS),
    "parts/val": (DOCS, TEST, TEST_QRELS),
    "single": (DOCS, TEST, TEST_QRELS),
    "documents": (DOCS,),
    "spaces": (Handler("docs", [Doc("a b", "", "")]),),
    "other": (DOCS, Handler("queries", [Query("q1", "another text")]), TRAIN_QRELS),
    "none": (DOCS, TEST, Handler("qrels", [Qrel("q99", "d1", 1)])),
}


@pytest.fixture(autouse=True)
def package(monkeypatch, tmp_path):
    """The real package, if it is installed, with data sets of ours; else one of this protocol."""
    monkeypatch.setenv("IR_DATASETS_HOME", str(tmp_path / "home"))
    if importlib.util.find_spec("ir_datasets") is None:
        module = types.ModuleType("ir_datasets")
        module.registry = {}
        module.load = lambda name: module.registry[name]
        make = StandIn
    else:
        import ir_datasets as module

        make = module.Dataset
        registry = type(module.registry)()
        monkeypatch.setattr(module, "registry", registry)
    monkeypatch.setitem(sys.modules, "ir_datasets", module)
    for name, handlers in SETS.items():
        if make is StandIn:
            module.registry[name] = make(*handlers)
        else:
            module.registry.register(name, make(*handlers))
    return module


def refusal(source, **settings):
    with pytest.raises(ValueError) as caught:
        load_collection(source, **settings)
    message = str(caught.value)
    assert "\n" not in message
    return message


@pytest.mark.parametrize("name", ["toy", "toy/test", "toy/train"])
def test_splits_are_parts_of_the_name(name):
    source = f"ir_datasets:{name}"
    assert available_splits(source) == ["train", "dev", "test"]
    collection = load_collection(source, ("test",))
    assert list(collection.texts) == ["Ice caves", "Sea wind"]
    assert collection.judgments == {"test": {"q30": {"d2": 2}, "q31": {"d1": 0}}}
    assert collection.queries[collection.split("test")[0]] == "text 30"
    assert load_collection(source, ()).query_ids == ()


def test_a_fifth_of_the_training_queries_is_dev_where_there_is_no_dev_part():
    learning = load_collection("ir_datasets:toy", ("train", "dev")).judgments
    train, dev = (set(learning[split]) for split in ("train", "dev"))
    assert train | dev == {f"q{n}" for n in range(30)} and not train & dev
    assert 2 <= len(dev) <= 10
    assert load_collection("ir_datasets:toy", ("dev",)).judgments["dev"].keys() == dev


def test_a_dev_part_of_its_own_is_taken_whole():
    assert available_splits("ir_datasets:full") == ["train", "dev"]
    collection = load_collection("ir_datasets:full/validation", ("train", "dev"))
    assert set(collection.judgments["dev"]) == {"q30", "q31"}
    assert len(collection.judgments["train"]) == 30
    assert "No split 'test' in ir_datasets:full; there are: train, dev" in refusal(
        "ir_datasets:full"
    )


def test_parts_need_no_data_set_above_them():
    for name in ("parts", "parts/val"):
        collection = load_collection(f"ir_datasets:{name}", ("train", "dev"))
        assert len(collection.judgments["train"]) == 30 and len(collection.judgments["dev"]) == 2
        assert collection.doc_ids == ("d1", "d2")


def test_splits_can_be_named_one_by_one():
    source = "ir_datasets:train=full/training,dev=toy/test,test=single"
    collection = load_collection(source)
    assert collection.judgments["dev"] == collection.judgments["test"]
    assert len(collection.judgments["train"]) == 30 and len(collection.query_ids) == 40
    assert available_splits("ir_datasets:dev=single") == ["dev"]
    assert "No split 'tset'" in refusal("ir_datasets:tset=single")
    assert "has no judgments" in refusal("ir_datasets:test=toy")


def test_a_data_set_without_parts_is_a_test_split():
    assert available_splits("ir_datasets:single") == ["test"]
    assert available_splits("ir_datasets:documents") == []
    assert load_collection("ir_datasets:documents", ()).doc_ids == ("d1", "d2")


def test_judgments_of_what_is_not_there_are_counted():
    with pytest.warns(UserWarning, match="toy/odd: left out 2 judgments"):
        collection = load_collection("ir_datasets:test=toy/odd", ("test",))
    assert collection.judgments["test"] == {"q30": {"d2": 1}}


def test_what_cannot_be_read_is_said_in_one_line(monkeypatch):
    said = refusal("ir_datasets:toi/test")
    assert "'toi' is no data set of ir_datasets" in said and "such as beir/scifact" in said
    assert "Did you mean 'toy'?" in said
    assert "has spaces or control characters" in refusal("ir_datasets:spaces", splits=())
    named = "ir_datasets:train=toy/train,dev=other"
    assert "'q1' of other has another text" in refusal(named, splits=("train", "dev"))
    assert "none judges no document for the test" in refusal("ir_datasets:none", splits=("test",))

    def fail():
        raise OSError("no route\nto the host")

    monkeypatch.setattr(DOCS, "docs_iter", fail)
    said = refusal("ir_datasets:toy", splits=())
    assert "cannot read the docs of toy (OSError: 'no route to the host')" in said


def test_without_the_package_one_line_names_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "ir_datasets", None)
    for call in (load_collection, available_splits):
        with pytest.raises(
            ModuleNotFoundError, match=r"ir_datasets is not installed.*\[datasets\]"
        ):
            call("ir_datasets:toy")


def test_a_folder_of_that_name_and_other_sources_are_not_meant(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert "does not exist" in refusal("./ir_datasets:toy")
    assert resolved_source("ir_datasets:toy") == "ir_datasets:toy"
    assert resolved_source("builtin") == "builtin"
    assert resolved_source("data") == str(tmp_path / "data")


def test_no_other_source_imports_the_package():
    code = "import sys, kytolly.search.index.corpus; sys.exit('ir_datasets' in sys.modules)"
    root = Path(__file__).parents[3]
    assert subprocess.run([sys.executable, "-c", code], cwd=root, check=False).returncode == 0
