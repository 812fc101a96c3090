"""A trained run reformulates queries, from Python and from the command line."""

import dataclasses
import json
import os
import re
import shutil
import sys
import zipfile

import keras
import numpy as np
import pytest

from kytolly.command import entry as cli
from kytolly.search.index.embedding import HashEncoder
from kytolly.search.index.engines import IndexEngine
from kytolly.search.index.exports import weight_text
from kytolly.search.index.metrics import per_query
from kytolly.search.index.trec import read_run
from kytolly.search.reformulate import search
from kytolly.search.reformulate.choice import PRETRAINED_SCALE, Choice, Choices, proposals
from kytolly.search.reformulate.device_env import DeviceQueries, is_query_term, kept_proposals
from kytolly.search.reformulate.gain_model import GainModel
from kytolly.search.reformulate.options import read_options
from kytolly.search.reformulate.reformulator import (
    NOTHING_HELPS,
    NOTHING_LEARNED,
    Plan,
    Reformulator,
    load_scorer,
    trec_run,
)
from kytolly.search.reformulate.search import SearchContext
from kytolly.search.reformulate.table import make_table
from tests.search.reformulate.tiny_collection import make_options, write_collection


def test_a_query_is_reformulated_with_reasons(reformulator):
    found = reformulator.reformulate("key12 noise1", top=4)
    assert found.reason is None and len(found.before) == len(found.after) == 4
    assert 1 <= len(found.added) <= 2
    term = found.added[0]
    assert term.term == "syn12"
    assert list(found.weights) == ["key12", "noise1", *(one.term for one in found.added)]
    lowered = {one.term: one.weight for one in found.lowered}
    assert lowered == {one: found.weights[one] for one in lowered} and len(lowered) == 2
    assert 0.09 < min(lowered.values()) <= max(lowered.values()) < 1.0
    heavy = [one.weight for one in found.added]
    assert heavy == sorted(heavy, reverse=True) and heavy[-1] > 0
    assert heavy == [found.weights[one.term] for one in found.added]
    assert list(found.words.values()) == list(found.weights.values())
    assert found.lucene.startswith("key12") and f" noise1^{weight_text(lowered['noise1'])}" in (
        found.lucene
    )
    assert found.lucene.endswith(f" {found.added[-1].surface}^{weight_text(heavy[-1])}")
    assert {"idf", "cosine to query"} <= set(term.features) and term.rank >= 1
    scores = reformulator.context.index.scores(found.weights)
    docs = reformulator.context.collection.doc_index
    for hit in found.after:
        assert hit.score == pytest.approx(float(scores[docs[hit.doc_id]]))
    assert json.loads(json.dumps(found.as_dict()))["query"] == "key12 noise1"
    text = "\n".join(found.lines())
    assert f"  - noise1 ^{weight_text(lowered['noise1'])}" in text
    assert "of the feedback documents" in text and f"Lucene: {found.lucene}" in text


def test_a_query_is_given_to_other_engines_in_words(reformulator):
    found = reformulator.reformulate("Key12 the noise1 key12", top=4)
    added = {term.surface: term.weight for term in found.added}
    own = {"key12": found.weights["key12"], "noise1": found.weights["noise1"]}
    assert added and found.words == {**own, **added} and 0.19 < own["key12"] < 2.0
    match = " OR ".join(f'"{word}"' for word in found.words)
    assert found.fts5 == (match, found.words)
    clauses = found.elasticsearch("body")["bool"]["should"]
    assert clauses[0] == {"match": {"body": {"query": "key12", "boost": own["key12"]}}}
    assert [clause["match"]["body"]["boost"] for clause in clauses] == list(found.words.values())
    engine = IndexEngine(reformulator.context.index, reformulator.context.collection.doc_ids)
    assert engine.search(found.words, 4)[0] == [hit.doc_id for hit in found.after]


@pytest.mark.parametrize("text", ["", "the of and", "zzz"])
def test_a_query_without_a_token_comes_back_unchanged(reformulator, text):
    found = reformulator.reformulate(text)
    assert found.added == () and found.reason == "no token that any document contains"
    assert found.before == found.after == ()
    assert "no document" in "\n".join(found.lines())


@pytest.mark.parametrize("text", [None, 5, ["a"], {"q": 3}, b"a"])
def test_what_is_no_text_is_refused(reformulator, text):
    with pytest.raises(TypeError, match=r"reformulate\(\) got .*, expected the text of one query"):
        reformulator.reformulate(text)


@pytest.mark.parametrize(
    "queries, found",
    [
        (None, "got None, expected texts"),
        (5, "got 5, expected texts"),
        ({"q": 3}, "the query 3, expected a text"),
        (["key12", None], "the query None, expected a text"),
        ("key12", "got one text"),
    ],
)
def test_what_holds_no_texts_is_refused(reformulator, queries, found):
    with pytest.raises(TypeError, match=found):
        reformulator.reformulate_all(queries)


@pytest.mark.parametrize(
    "top, error", [(0, ValueError), (-1, ValueError), (2.0, TypeError), ("3", TypeError)]
)
def test_a_ranking_has_at_least_one_document(reformulator, top, error):
    with pytest.raises(error, match=f"top is '?{top}'?, expected"):
        reformulator.reformulate("key12", top=top)


def test_many_queries_are_what_each_alone_is(reformulator, monkeypatch):
    texts = {"x": "key12 noise1", "y": "of", "z": "key13", "bad0.0": "key0 key1"}
    alone = [reformulator.reformulate(text) for text in texts.values()]
    monkeypatch.setattr("kytolly.search.reformulate.reformulator.BATCH", 2)
    together = reformulator.reformulate_all(texts)
    assert [one.query_id for one in together] == list(texts)
    for one, other in zip(alone, together, strict=True):
        assert dataclasses.replace(other, query_id="") == one


def test_a_query_that_is_a_document_does_not_find_it(reformulator):
    context = reformulator.context
    text = context.collection.texts[0]
    name = context.collection.doc_ids[0]
    ids = [
        {hit.doc_id for hit in reformulator.reformulate_all({key: text})[0].after}
        for key in (name, "other")
    ]
    assert name not in ids[0] and name in ids[1]


def test_reformulating_needs_no_judgment_and_no_test(run, collection, tmp_path):
    bare = tmp_path / "bare"
    shutil.copytree(collection, bare)
    shutil.rmtree(bare / "qrels")
    found = Reformulator.load(run[0], bare)
    assert found.reformulate("key12 noise1").added
    own = Reformulator.load(run[0])
    assert own.choices.fusion == 0.0 and own.choices.at(0.0).scale > 0
    assert own.choices == found.choices  # the documents are the same
    assert own.reformulate("key12 noise1") == found.reformulate("key12 noise1")


def chosen(run, choices, fusion=None):
    loaded = Reformulator.load(run[0])
    network = load_scorer(run[0] / "best.keras")
    return Reformulator(loaded.context, network, choices, fusion)


def test_choices_say_what_is_used(run):
    def reformulated(choices, fusion=None):
        return chosen(run, choices, fusion).reformulate("key12 noise1")

    whole = reformulated(Choices(0.0, {0.0: Choice(0.0, 1.0)}))
    half = reformulated(Choices(0.0, {0.0: Choice(0.0, 0.5)}))
    assert whole.added[0].weight == pytest.approx(2 * half.added[0].weight, abs=2e-4)
    nothing = reformulated(Choices(0.0, {0.0: Choice(0.0)}))
    assert nothing.added == () and nothing.reason == NOTHING_LEARNED
    assert nothing.before == nothing.after
    careful = reformulated(Choices(0.0, {0.0: Choice(0.0, 1.0, margin=0.9)}))
    assert careful.added == () and careful.reason == NOTHING_HELPS
    assert careful.expected_gain == whole.expected_gain < 0.9
    untested = reformulated(Choices(0.0, {0.0: Choice(0.0)}), fusion=2.0)
    assert untested.added  # of this weight of the cosines nothing was tried
    assert len(untested.before) == 10 and untested.before != nothing.before
    usual = reformulated(Choices(None, {}))
    assert usual.added[0].weight == pytest.approx(half.added[0].weight, abs=2e-4)


def test_a_weight_of_cosines_asked_for_is_used(run):
    found = Reformulator.load(run[0], fusion=0.5)
    assert found.fusion == 0.5 and Reformulator.load(run[0]).fusion == 0.0
    hits = found.search("key12 noise1", top=3)
    assert hits == found.reformulate("key12 noise1", top=3).after and len(hits) == 3


def test_what_is_used_is_what_was_measured_on_dev(run, collection):
    """Plans of the reformulator gain on dev queries what tables say that they gain."""
    loaded = Reformulator.load(run[0])
    context = SearchContext.load(loaded.context.options, ("dev",))
    queries = [query for query in context.queries("dev") if query.has_relevant]
    dev = DeviceQueries(
        make_table(queries, context.index, context.documents, context.rules), context.rules
    )
    weights, _ = proposals(loaded.scorer, dev, 0.0)
    own = is_query_term(dev.table.candidate_features)
    weights = kept_proposals(weights * loaded.choices.at(0.0).scale, own, context.rules.max_terms)
    measured = dev.values(0.0, weights)
    numbers = [query.number for query in queries]
    plans = loaded.plans(context.collection, numbers)
    _, after = loaded.rankings(context.collection, numbers, plans, 200)
    qrels = context.collection.judgments["dev"]
    ids = {context.collection.query_ids[number] for number in numbers}
    qrels = {query: grades for query, grades in qrels.items() if query in ids}
    ranked = per_query(qrels, trec_run(context.collection, numbers, after), ["ndcg@10"])["ndcg@10"]
    expected = [ranked[context.collection.query_ids[number]] for number in numbers]
    np.testing.assert_allclose(measured, expected, atol=1e-5)
    assert max(expected) > 0.5


@pytest.mark.parametrize(
    "section, text", [("retrieval", "weight: 0.3"), ("training", "search: host")]
)
def test_a_run_of_an_older_version_says_so_in_one_line(run, capsys, tmp_path, section, text):
    folder = shutil.copytree(run[0], tmp_path / "run")
    path = folder / "reformulation.yaml"
    path.write_text(path.read_text().replace(f"{section}:\n", f"{section}:\n  {text}\n"))
    said = complaint(["reformulate", folder, "key12"], capsys)
    name = text.split(":")[0]
    assert f"'{name}' is not a setting" in said and "has to be trained again" in said


def test_a_damaged_choice_is_refused(run, capsys, tmp_path):
    folder = shutil.copytree(run[0], tmp_path / "run")
    (folder / "choice.json").write_text("{")
    assert "choice.json cannot be read" in complaint(["reformulate", folder, "key12"], capsys)


def test_the_network_of_the_package_needs_no_judgment(collection, tmp_path, every_change_pays):
    pytest.importorskip("wordllama")
    bare = shutil.copytree(collection, tmp_path / "bare")
    shutil.rmtree(bare / "qrels")
    found = Reformulator.pretrained(bare)
    assert found.fusion == 1.0 and found.choices.at(1.0).scale == PRETRAINED_SCALE
    one = found.reformulate("key12 noise1")
    assert one.added and one.lowered == () and len(one.after) == 10
    assert Reformulator.pretrained(bare, fusion=0.0).reformulate("zzz").after == ()


def test_other_documents_get_no_lowered_words(run, collection, tmp_path):
    other = shutil.copytree(collection, tmp_path / "other")
    with (other / "corpus.jsonl").open("a") as file:
        file.writelines(f'{{"_id": "more{n}", "text": "key12 {n}"}}\n' for n in range(20))
    with pytest.warns(UserWarning, match="nothing says that its network helps here"):
        found = Reformulator.load(run[0], other)
    one = found.reformulate("key12 noise1")
    assert one.added and one.lowered == () and found.choices == Choices(None, {})
    assert Reformulator.load(run[0]).reformulate("key12 noise1").lowered


def test_a_run_keeps_the_index_of_its_documents(run, collection, tmp_path, monkeypatch):
    folder = tmp_path / "run"
    shutil.copytree(run[0], folder)
    made, real = [], search.BM25Index.__init__

    def index(self, *args):
        made.append(len(args[0]))
        real(self, *args)

    monkeypatch.setattr(search.BM25Index, "__init__", index)
    saved = Reformulator.load(folder)
    before = saved.reformulate("key12 noise1")
    assert made == [] and before.added
    other = write_collection(tmp_path / "other")
    text = (other / "corpus.jsonl").read_text()
    (other / "corpus.jsonl").write_text(text.replace("noise1 ", "noise2 "))
    with pytest.warns(UserWarning, match="trained with other documents.*pretrained"):
        strange = Reformulator.load(folder, other)
    # Nothing was chosen for these documents: weights are used at a fixed scale.
    assert strange.choices == Choices(None, {}) != saved.choices
    assert strange.context.index.digest != saved.context.index.digest
    assert made == [136]  # other documents are indexed again
    options = (folder / "reformulation.yaml").read_text()
    (folder / "reformulation.yaml").write_text(options.replace("k1: 1.5", "k1: 1.2"))
    assert Reformulator.load(folder).context.index.parameters[0] == 1.2
    (folder / "reformulation.yaml").write_text(options)
    (folder / "index.npz").write_bytes(b"damaged")
    assert Reformulator.load(folder).reformulate("key12 noise1") == before
    (folder / "index.npz").unlink()
    assert Reformulator.load(folder).reformulate("key12 noise1") == before
    assert made == [136] * 4


def with_lines(collection, folder, change):
    """A copy of a collection, with what `change` makes of the lines of its documents."""
    shutil.copytree(collection, folder)
    lines = (folder / "corpus.jsonl").read_text().splitlines()
    (folder / "corpus.jsonl").write_text("\n".join(change(lines)) + "\n")
    return folder


def test_a_collection_that_has_grown_keeps_what_was_chosen(run, collection, tmp_path):
    new = [json.dumps({"_id": f"new{n}", "text": f"key{n} noise1"}) for n in range(15)]
    folder = shutil.copytree(run[0], tmp_path / "run")
    GainModel.read().save(folder / "gains.npz")
    own = Reformulator.load(folder)
    grown = with_lines(collection, tmp_path / "grown", lambda lines: [*lines[1:], *new])
    # 135 of 150 documents are the same: 0.9. With one more that is new it is less.
    message = r"trained with 135 of these 150 documents: 15 are new, and 1 of its own are gone"
    with pytest.warns(UserWarning, match=message) as told:
        found = Reformulator.load(folder, grown)
    assert len(told) == 1 and found.choices == own.choices and not found.context.unknown
    assert found.gains is not None and own.gains is not None
    assert [one.tobytes() for one in found.gains] == [one.tobytes() for one in own.gains]
    more = with_lines(grown, tmp_path / "more", lambda lines: [*lines, new[0].replace("w0", "x")])
    with pytest.warns(UserWarning, match=f"other documents than those of {more}"):
        strange = Reformulator.load(folder, more)
    assert strange.choices == Choices(None, {}) and strange.gains is None


def test_documents_in_another_order_are_the_same(run, collection, tmp_path, recwarn):
    turned = with_lines(collection, tmp_path / "turned", reversed)
    assert Reformulator.load(run[0], turned).choices == Reformulator.load(run[0]).choices
    assert not recwarn.list


@pytest.mark.parametrize("damage", [None, b"damaged"], ids=["run of before", "damaged"])
def test_a_run_that_does_not_know_its_documents_takes_one_more_for_others(
    run, collection, tmp_path, damage
):
    """The folder of the documents is named, also where none was given."""
    folder = shutil.copytree(run[0], tmp_path / "run")
    new = json.dumps({"_id": "new", "text": "key1"})
    grown = with_lines(collection, tmp_path / "grown", lambda lines: [*lines, new])
    options = (folder / "reformulation.yaml").read_text()
    (folder / "reformulation.yaml").write_text(options.replace(str(collection), str(grown)))
    (folder / "documents.npz").unlink()
    if damage is not None:
        (folder / "documents.npz").write_bytes(damage)
    with pytest.warns(UserWarning, match=f"other documents than those of {grown}: .*Train again"):
        assert Reformulator.load(folder).choices == Choices(None, {})


def complaint(argv, capsys):
    assert cli.main([str(part) for part in argv]) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and len(captured.err.strip().splitlines()) == 1
    return captured.err


def test_the_command_prints_json_last(run, capsys):
    folder, _, _ = run
    assert cli.main(["reformulate", str(folder), "key12 noise1", "--top", "3", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert len(found["before"]) == 3 and found["run_dir"] == str(folder) and found["lucene"]


@pytest.mark.parametrize("query", ["key12 noise1", "key12"])
def test_the_text_of_a_query_may_follow_an_option(run, capsys, query):
    printed = []
    for argv in (["--fusion", "0", query], [query, "--fusion", "0"]):
        assert cli.main(["reformulate", str(run[0]), *argv]) == 0
        printed.append(capsys.readouterr().out)
    assert printed[0] == printed[1] and printed[0].startswith(f"Query: {query}\n")


def test_a_query_without_quotation_marks_is_refused(run, capsys):
    said = "'noise1' is one argument too many, expected those that `kytolly reformulate --help`"
    for argv in (["--fusion", "0", "key12", "noise1"], ["key12", "noise1"]):
        assert said in complaint(["reformulate", run[0], *argv], capsys)


def test_the_command_prints_the_query_for_another_engine(run, capsys):
    argv = ["reformulate", str(run[0]), "key12 noise1", "--export"]

    def printed(*options):
        assert cli.main([*argv, *options]) == 0
        return capsys.readouterr().out

    lucene = printed("lucene")
    assert re.match(r"key12\^0\.\d+ noise1\^0\.\d+ ", lucene) and len(lucene.splitlines()) == 1
    query = json.loads(printed("elasticsearch", "--field", "body"))["query"]["bool"]["should"]
    assert query[0]["match"]["body"]["query"] == "key12" and len(query) > 2
    fts5 = json.loads(printed("fts5"))
    assert fts5["match"].startswith('"text" : ("key12" OR "noise1"')
    assert len(fts5["weights"]) == len(query) == len(lucene.split())
    assert json.loads(printed("fts5", "--json"))["export"] == fts5


def test_the_command_writes_a_run_for_a_file_of_queries(run, capsys, tmp_path):
    folder, _, _ = run
    source = read_options(folder / "reformulation.yaml").collection
    out = tmp_path / "out.run"
    argv = ["reformulate", folder, "--queries", f"{source}/queries.jsonl", "--run-file", out]
    assert cli.main([str(part) for part in argv]) == 0
    assert "no token that any document contains" in capsys.readouterr().out
    tested, every = read_run(folder / "test_agent_fused.run"), read_run(out)
    assert {query: every[query] for query in tested} == tested


@pytest.mark.parametrize(
    "argv, word",
    [
        (["nowhere", "x"], "is no run"),
        (["FOLDER", "x"], "expected a run of train_optimized.py"),
        (["RUN"], "either the text"),
        (["RUN", "--queries", "f"], "belong together"),
        (["RUN", "key12 \udcff"], "UTF-8"),
        (["RUN", "x", "--collection", "FOLDER/no"], "does not exist"),
        (["RUN", "x", "--collection", ""], "expected a path"),
        (["RUN", "x", "--collection", "p" * 4_000], "too long"),
        (["RUN", "x", "--collection", "a\0b"], "expected a path"),
        (["RUN", "x", "--collection", "a\udcff"], "expected a path"),
        (["RUN", "x", "--top", "9" * 5_000], "whole number"),
        (["RUN", "x", "--top", "-1"], "expected"),
        (["RUN", "x", "--export", "lucene", "--field", "x"], "leave it out"),
        (["RUN", "x", "--export", "solr"], "invalid choice"),
        (["RUN", "--queries", "f", "--run-file", "o", "--export", "lucene"], "one query"),
    ],
    ids=range(15),
)
def test_bad_input_of_the_command(run, capsys, tmp_path, argv, word):
    (tmp_path / "config.yaml").write_text("a: 1")
    names = {"RUN": str(run[0]), "FOLDER": str(tmp_path), "FOLDER/no": f"{tmp_path}/no"}
    assert word in complaint(["reformulate", *(names.get(part, part) for part in argv)], capsys)


@pytest.mark.parametrize("name", ["queries.jsonl", "./sub/../queries.jsonl", "link", "hard"])
def test_the_run_file_never_replaces_the_queries(run, capsys, tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sub").mkdir()
    queries = tmp_path / "queries.jsonl"
    queries.write_text('{"_id": "q", "text": "key12"}\n')
    (tmp_path / "link").symlink_to(queries)
    os.link(queries, tmp_path / "hard")
    argv = ["reformulate", run[0], "--queries", queries, "--run-file", name]
    assert "exists, and it is no run file" in complaint(argv, capsys)
    argv[-1] = "p" * 5_000
    assert "cannot be written (File name too long)" in complaint(argv, capsys)
    assert queries.read_text() == '{"_id": "q", "text": "key12"}\n'


def test_the_run_file_replaces_nothing_of_the_run_or_the_collection(run, capsys, tmp_path):
    folder = shutil.copytree(run[0], tmp_path / "run")
    data = shutil.copytree(read_options(folder / "reformulation.yaml").collection, tmp_path / "c")
    (tmp_path / "q.jsonl").write_text('{"_id": "q", "text": "key12"}\n')
    files = [path for path in tmp_path.rglob("*") if path.is_file() and path.name != "checkpoint"]
    before = {path: path.read_bytes() for path in files}
    for path in (folder / "best.keras", folder / "test_bm25.run", data / "corpus.jsonl"):
        argv = ["reformulate", folder, "--queries", tmp_path / "q.jsonl", "--run-file", path]
        assert "choose another --run-file" in complaint(argv, capsys)
    assert {path: path.read_bytes() for path in files} == before


def test_rankings_that_exhaust_the_memory_are_refused(reformulator, monkeypatch):
    collection, plan = reformulator.context.collection, Plan(None, {}, {}, 0.0, "")
    monkeypatch.setattr("kytolly.machine.memory.SMALL_BYTES", 0)
    monkeypatch.setattr("kytolly.machine.facts.available_memory_bytes", lambda: 2 * 250 * 2 * 10)
    reformulator.rankings(collection, [0, 1], [plan] * 2, 10)
    with pytest.raises(ValueError, match=r"rankings of 11 documents for 2 queries would"):
        reformulator.rankings(collection, [0, 1], [plan] * 2, 11)


def change_network(path, change):
    """Rewrite the configuration in a Keras file."""
    with zipfile.ZipFile(path) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    config = json.loads(parts["config.json"])
    change(config)
    parts["config.json"] = json.dumps(config).encode()
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in parts.items():
            archive.writestr(name, data)


@pytest.mark.parametrize(
    "change",
    [
        lambda config: config.update(registered_name="Lambda", class_name="Lambda"),
        lambda config: config.update(module="antigravity", registered_name=None),
        lambda config: config["config"].update(hidden_units=[10**9]),
        lambda config: config["config"].update(hidden_units=[8, 10**6, 8]),
        lambda config: config["config"].update(hidden_units="8"),
        lambda config: config["config"].update(hidden_units=[9]),
        lambda config: config["config"].update(activation={"class_name": "TFSMLayer"}),
        lambda config: config["build_config"]["input_shape"].update(candidates=[1, 8, 10**9]),
        lambda config: config["build_config"].update(input_shape=None),
        lambda config: config.clear(),
    ],
)
def test_a_network_of_a_stranger_is_refused_before_it_is_built(run, capsys, tmp_path, change):
    folder = shutil.copytree(run[0], tmp_path / "run")
    change_network(folder / "best.keras", change)
    said = complaint(["reformulate", folder, "key12"], capsys)
    assert "best.keras cannot be used" in said and "train again" in said
    assert "antigravity" not in sys.modules


def test_a_network_with_nan_is_refused(run, tmp_path):
    network = keras.models.load_model(run[0] / "best.keras")
    network.set_weights([weight * np.nan for weight in network.get_weights()])
    network.save(tmp_path / "best.keras")
    with pytest.raises(ValueError, match="not finite"):
        load_scorer(tmp_path / "best.keras")


class OwnEncoder:
    """As many numbers as asked for, under a name of its own."""

    def __init__(self, dimension):
        self.identity, self.dimension = f"mine-1 {dimension}", dimension

    def encode(self, texts):
        return HashEncoder(self.dimension).encode(texts)


def test_a_run_with_an_own_encoder_asks_for_it(collection, tmp_path):
    from kytolly.search.reformulate.train import train

    short = {"epochs": 0, "warm_start_epochs": 1, "held_out_folds": 0}
    options = make_options(collection, **short)
    train(options, encoder=OwnEncoder(512), log_dir=tmp_path / "run")
    options = read_options(tmp_path / "run" / "reformulation.yaml")
    assert (options.retrieval.encoder, options.retrieval.dimension) == ("own", 512)
    found = Reformulator.load(tmp_path / "run", encoder=OwnEncoder(512))
    assert found.reformulate("key12 noise1").after
    with pytest.raises(ValueError, match="encoder is own, and no encoder was given: give one"):
        Reformulator.load(tmp_path / "run")
    with pytest.raises(ValueError, match=r"gives 64 numbers, and the run was .* of 512 numbers"):
        Reformulator.load(tmp_path / "run", encoder=OwnEncoder(64))


def test_an_encoder_is_refused_where_the_run_has_another(run):
    with pytest.raises(ValueError, match=r"mine-1 64 gives 64 numbers, .* with encoder: hash of"):
        Reformulator.load(run[0], encoder=OwnEncoder(64))
