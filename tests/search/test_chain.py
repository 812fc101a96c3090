"""BM25, a first search and a re-ranker in one chain, and the command that shows it."""

import json
import re
import shutil
import sys
import warnings

import numpy as np
import pytest

pytest.importorskip("wordllama")

from kytolly.command import entry
from kytolly.search.chain import AgentSearch, ChainResult, SearchChain
from kytolly.search.command.search import column_head
from kytolly.search.config.ranker import RankerConfig
from kytolly.search.index.corpus import load_collection
from kytolly.search.index.fusion import NONE
from kytolly.search.index.trec import read_run
from kytolly.search.ranker_training import train_ranker
from kytolly.search.reformulate.reformulator import Reformulator
from kytolly.search.reformulate.result import Reformulation
from kytolly.search.text.ranker import Ranker
from kytolly.search.text.vocabulary import _byte_pair_tokenizer
from tests.search.text.ranked_texts import write_ranking

SMALL = {
    "layers": 0,
    "depth": 6,
    "total_updates": 30,
    "batch_size": 8,
    "num_buckets": 1,
    "learning_rate": 0.05,
    "evaluation_interval_updates": 15,
    "max_length": 32,
    "max_question_length": 10,
    "xla": False,
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("chain")
    data = str(write_ranking(made / "data"))
    write_ranking(made / "other", topics=12)
    for name, agent in (("fused", None), ("over-agent", "pretrained")):
        cfg = RankerConfig(agent=agent, **SMALL)
        train_ranker(cfg, data, made / name, progress=False)
    return made


def ids(hits):
    return [hit.doc_id for hit in hits]


def test_a_re_rankers_run_shows_its_own_chain(folder):
    chain = SearchChain.load(str(folder / "fused"))
    assert chain.weight > 0 and chain.columns == ["BM25", "fused", "re-ranked"]
    found = chain.search({"a": "what is topic3", "b": "topic5 fast"}, top=8)[1]
    assert found.query_id == "b" and found.reformulation is None
    first = found.columns["fused"]
    texts = dict(zip(chain.collection.doc_ids, chain.collection.texts, strict=True))
    order = Ranker.load(folder / "fused").rank(
        "topic5 fast", [texts[one] for one in ids(first[:6])], [hit.score for hit in first[:6]]
    )
    ranked = found.columns["re-ranked"]
    assert ids(ranked[:6]) == [first[one.place].doc_id for one in order]
    assert ids(ranked[6:]) == ids(first[6:]) and len(ranked) == 8


def test_the_agents_search_is_that_of_its_queries(folder):
    agent = Reformulator.pretrained(folder / "data")
    collection = load_collection(folder / "data", ("test",))
    numbers = collection.split("test")[:3]
    documents, scores = AgentSearch(agent).search(collection, numbers, 200)
    assert documents.shape == (3, 200) == scores.shape
    for row, number in enumerate(numbers):
        hits = agent.reformulate(collection.queries[number], 200).after
        there = documents[row][documents[row] != NONE]
        assert [collection.doc_ids[one] for one in there] == ids(hits)
        np.testing.assert_allclose(scores[row, : len(hits)], [hit.score for hit in hits], rtol=1e-6)


def test_a_re_ranker_over_an_agent_brings_the_agent(folder):
    chain = SearchChain.load(str(folder / "over-agent"))
    assert chain.weight == Ranker.load(folder / "over-agent").weight
    assert chain.columns == ["BM25", "reformulated", "re-ranked"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        given = SearchChain.load(
            "pretrained", str(folder / "data"), ranker=str(folder / "over-agent")
        )
    assert given.weight == chain.weight
    one, other = chain.search(["topic7"])[0], given.search(["topic7"])[0]
    assert one == other and one.reformulation is not None


@pytest.mark.parametrize(
    "run, how",
    [
        ("fused", {"collection": "other"}),
        ("fused", {"fusion": 0.5}),
        ("pretrained", {"collection": "data", "ranker": "fused"}),
    ],
)
def test_a_weight_counts_only_for_the_search_that_it_was_chosen_for(folder, monkeypatch, run, how):
    monkeypatch.chdir(folder)
    with pytest.warns(UserWarning, match="other documents or another first search"):
        chain = SearchChain.load(run, **how)
    assert chain.weight == 0.0
    columns = list(chain.search(["what is topic3"])[0].columns.values())
    assert columns[2] == columns[1] != ()


@pytest.mark.parametrize("run", ["fused", "over-agent"])
def test_a_weight_counts_for_a_collection_that_has_grown(folder, tmp_path, run):
    grown = shutil.copytree(folder / "data", tmp_path / "grown")
    with (grown / "corpus.jsonl").open("a") as corpus:
        corpus.write('{"_id": "new", "text": "topic3 slow"}\n')
    with pytest.warns(
        UserWarning, match="trained with 300 of these 301 documents: 1 is new"
    ) as told:
        chain = SearchChain.load(str(folder / run), str(grown))
    assert len(told) == 1 and chain.weight == Ranker.load(folder / run).weight > 0


def search(folder, capsys, *argv):
    assert entry.main(["search", *argv]) == 0
    return capsys.readouterr().out


def test_the_command_prints_columns_of_100_characters(folder, capsys, monkeypatch):
    monkeypatch.chdir(folder)
    out = search(folder, capsys, "over-agent", "what is topic3")
    lines = out.splitlines()
    assert max(map(len, lines)) <= 100 and lines[0] == "Query: what is topic3"
    heads = ["BM25", "unchanged + cosines", "re-ranked"]
    assert any(re.split(" {2,}", line.strip()) == heads for line in lines)
    assert sum("topic3" in line for line in lines) > 5
    assert any("= [d3." in line for line in lines) and any("[d3.0] " in line for line in lines)
    found = json.loads(search(folder, capsys, "fused", "what is topic3", "--json", "--top", "3"))
    assert [len(one) for one in found["columns"].values()] == [3, 3, 3]
    assert found["columns"]["re-ranked"][0]["doc_id"] == "d3.0" and found["added"] == []
    assert found["weight"] > 0 and "weight 0" not in out
    plain = search(folder, capsys, "fused", "what is topic3", "--fusion", "0")
    assert plain.endswith("has the weight 0: nothing says that it helps here.\n")
    assert any(line.split() == ["BM25", "re-ranked"] for line in plain.splitlines())


@pytest.mark.parametrize("run", ["pretrained", "fused"])
def test_the_command_says_where_cosines_alone_order_documents(folder, capsys, monkeypatch, run):
    monkeypatch.chdir(folder)
    said = "No document has a word of the query: the order is that of the cosines alone."
    out = search(folder, capsys, run, "zzqx wrpl", "--collection", "data")
    assert out.splitlines().count(said) == 1
    assert ("unchanged + cosines" in out) == (run == "pretrained") and "reformulated" not in out
    assert said not in search(folder, capsys, run, "what is topic3", "--collection", "data")
    nothing = search(folder, capsys, run, "zzqx wrpl", "--collection", "data", "--fusion", "0")
    assert "No document is found." in nothing.splitlines() and said not in nothing


def test_two_runs_side_by_side_say_where_cosines_alone_order_documents(folder, capsys, monkeypatch):
    monkeypatch.chdir(folder)
    out = search(folder, capsys, "fused", "zzqx", "--against", "pretrained")
    assert out.endswith("the order is that of the cosines alone.\n")


@pytest.mark.parametrize(
    "reason, fusion, head",
    [
        (None, 1.0, "reformulated + cosines"),
        (None, 0.0, "reformulated"),
        ("no token", 1.0, "unchanged + cosines"),
        ("no token", 0.0, "unchanged"),
    ],
)
def test_the_head_of_a_column_says_what_its_order_comes_from(reason, fusion, head):
    query = Reformulation("", "ice", (), (), {}, {}, (), (), reason=reason)
    result = ChainResult("", "ice", {}, query, fusion)
    assert column_head("reformulated", result) == head
    assert column_head("re-ranked", result) == "re-ranked"


def test_a_query_without_a_known_word_is_unchanged_and_ordered_by_cosines(folder):
    found = Reformulator.pretrained(folder / "data").reformulate("zzqx wrpl", top=3)
    assert found.before == found.after != () and found.reason is not None
    assert "Ranking after (as before, in the order of the cosines alone):" in found.lines()


@pytest.mark.parametrize("agent", [[], ["--agent", "over-agent"]], ids=["alone", "with an agent"])
def test_a_ranker_without_wordllama_is_refused_before_anything_is_read(
    agent, folder, capsys, monkeypatch
):
    monkeypatch.chdir(folder)
    monkeypatch.setitem(sys.modules, "wordllama", None)
    for module in ("reformulate.search", "ranker_training"):
        name = f"kytolly.search.{module}.load_collection"
        monkeypatch.setattr(name, lambda *_: pytest.fail("read"))
    _byte_pair_tokenizer.cache_clear()
    assert entry.main(["train", "ranker", "--collection", "tiny", *agent]) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert "wordllama is not installed" in line


def test_a_file_of_queries_becomes_a_run_for_each_search(folder, capsys, monkeypatch):
    monkeypatch.chdir(folder)
    argv = ["fused", "--queries", "data/queries.jsonl", "--out", "found.run", "--top", "5"]
    result = json.loads(search(folder, capsys, *argv, "--json"))
    assert result["queries"] == 60 and result["without_a_document"] == 0
    runs = {name: read_run(path) for name, path in result["runs"].items()}
    assert runs.keys() == {"BM25", "fused", "re-ranked"}
    assert all(len(run) == 60 and len(run["q3"]) == 5 for run in runs.values())
    assert runs["re-ranked"]["q3"][0][0] == "d3.0"
    search(folder, capsys, *argv)  # runs of ours are replaced
    (folder / "found.fused.run").write_text("mine\n", "utf-8")
    assert entry.main(["search", *argv]) == 2
    assert "found.fused.run exists, and it is no run file" in capsys.readouterr().err


@pytest.mark.parametrize(
    "argv, message",
    [
        (["fused", " "], "the query is empty"),
        (["fused"], "expected either the text of a query or --queries"),
        (["data", "topic3"], "data has no reformulation.yaml and no ranker.json"),
        (["none", "topic3"], "none is no run"),
        (["fused", "topic3", "--ranker", "fused"], "leave --ranker out"),
        (["pretrained", "a", "--collection", "data", "--ranker", "data"], "data is no run"),
        (["fused", "topic3", "--collection", "none"], "none does not exist"),
        (["fused", "topic3", "--classifier", "fused"], "classifier.json cannot be read"),
        (["pretrained", "topic3"], "pretrained needs --collection DIR"),
    ],
)
def test_bad_input_is_one_line(folder, capsys, monkeypatch, argv, message):
    monkeypatch.chdir(folder)
    assert entry.main(["search", *argv]) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and captured.err.count("\n") == 1, captured
    assert message in captured.err
