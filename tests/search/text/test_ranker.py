"""A re-ranker from a collection to the order that its run gives."""

import dataclasses
import json
import shutil
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("wordllama")

from kytolly.search.config.ranker import RankerConfig
from kytolly.search.index.corpus import load_collection
from kytolly.search.index.fusion import NONE
from kytolly.search.ranker_training import result_lines, train_ranker
from kytolly.search.text.ranker import Ranker, RankingTask
from tests.search.text.ranked_texts import write_ranking
from tests.test_examples import PYTHON_BLOCK

TINY = RankerConfig(
    batch_size=8,
    num_buckets=1,
    total_updates=24,
    evaluation_interval_updates=12,
    log_interval_updates=8,
    updates_per_call=4,
    learning_rate=1e-2,
    width=8,
    layers=1,
    heads=2,
    depth=5,
    max_length=32,
    max_question_length=10,
    xla=False,
)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return write_ranking(tmp_path_factory.mktemp("ranker") / "data")


@pytest.fixture(scope="module")
def task(data):
    return RankingTask(load_collection(data, ("train", "dev")), TINY)


@pytest.fixture(scope="module")
def run(data):
    summary, lines = train_ranker(TINY, data, data.parent / "run", progress=False)
    return data.parent / "run", summary, lines


@pytest.mark.parametrize("progress", [True, False])
def test_training_says_which_dev_queries_its_evaluations_are_of(data, capsys, progress):
    """15 dev queries have a relevant document: 7 pick the moment, and 8 the weight."""
    with pytest.raises(ValueError, match="is no run"):
        train_ranker(TINY, data, data / "none", resume=True, progress=progress)
    said = "data: evaluation ndcg is ndcg@10 of 7 of the 15 dev queries with a relevant document"
    assert (said in capsys.readouterr().err) == progress


def test_a_run_learns_chooses_a_weight_and_measures_it(run):
    folder, summary, lines = run
    assert summary["test"]["first"] < 0.6 and summary["test"]["re_ranked"] > 0.95
    assert summary["test"]["low"] > 0.2 and summary["test"]["queries"] == 15
    assert summary["choice"]["weight"] > 0 and summary["choice"]["queries"] == 8
    assert summary["evaluation"]["ndcg"] > summary["evaluation"]["first_ndcg"]
    saved = json.loads((folder / "result.json").read_text("utf-8"))
    assert saved["test"] == summary["test"] and saved["choice"] == summary["choice"]
    assert "95% from +" in lines[1] and "beside fused" in lines[0]


def test_the_run_ranks_the_same_alone_and_among_others(run):
    ranker = Ranker.load(run[0])
    query = "what is topic3"
    texts = ["topic3 red question", "", "topic3 blue green " * 9 + "answer", "topic3 old answer"]
    together = ranker.network_scores(query, texts)
    for place, text in enumerate(texts):
        np.testing.assert_allclose(
            ranker.network_scores(query, [text])[0], together[place], atol=1e-4
        )
    found = ranker.rank(query, texts, [3.0, 0.0, 2.0, 2.5])
    expected = np.array([3.0, 0.0, 2.0, 2.5]) / 3.0 + ranker.weight * together
    assert [one.place for one in found] == np.argsort(-expected, kind="stable").tolist()
    np.testing.assert_allclose([one.score for one in found], np.sort(expected)[::-1], atol=1e-4)
    assert found[0].network_score == pytest.approx(together[found[0].place], abs=1e-4)
    alone = [one.place for one in ranker.rank(query, texts)]
    assert alone == np.argsort(-together, kind="stable").tolist()
    assert ranker.rank(query, []) == [] and len(ranker.rank("half a \ud800", ["\ud800"])) == 1


@pytest.mark.parametrize("train_embedding", [pytest.param(False, marks=pytest.mark.learning), True])
def test_only_tokens_of_the_collection_learn(data, train_embedding):
    cfg = dataclasses.replace(TINY, train_embedding=train_embedding)
    task = RankingTask(load_collection(data, ["train", "dev"]), cfg)
    network = task.make_network(cfg)
    seen = int(task.contexts.tokens.max()) + 1
    assert network.embedding.num_first == (max(seen, task.learned) if train_embedding else 0)
    assert task.learned < 1_000 and network.settings["vocabulary"] == 32_000
    table, tokens = task.vocabulary.first_vectors(), np.arange(0, 32_000, 500)
    np.testing.assert_allclose(network.embedding(tokens), table[tokens], rtol=1e-3, atol=1e-6)


def test_without_weight_the_order_is_that_of_the_first_search(run):
    ranker = Ranker.load(run[0])
    ranker.weight = 0.0
    texts, scores = ["topic3 answer", "topic3 question", "red"], [1.0, 2.0, 1.0]
    assert [one.place for one in ranker.rank("topic3", texts, scores)] == [1, 0, 2]


def test_scores_that_do_not_fit_are_refused(run):
    ranker = Ranker.load(run[0])
    for scores in ([1.0], [1.0, float("nan")], [[1.0, 2.0]]):
        with pytest.raises(ValueError, match="expected one finite number for each"):
            ranker.rank("a", ["b", "c"], scores)


@pytest.mark.parametrize("sign, used", [(1.0, True), (-1.0, False), (0.0, False)])
def test_only_a_network_that_helps_beyond_chance_has_a_weight(task, monkeypatch, sign, used):
    monkeypatch.setattr(task, "scores", lambda network, found: sign * 50.0 * found.relevant)
    choice = task.choose_weight(None)
    assert (choice.weight > 0) is used and (choice.gain > 0.2) is used and choice.queries == 8
    assert (choice.chance <= 0.1) is used


def test_queries_that_pick_the_network_do_not_choose_its_weight(task, data):
    watched, choosing = set(task.watched.queries.tolist()), set(task.choosing.queries.tolist())
    assert len(watched) == 7 and len(choosing) == 8 and not watched & choosing
    few = dataclasses.replace(TINY, dev_queries=3)
    other = RankingTask(load_collection(data, ("train", "dev")), few)
    assert len(other.watched.queries) == 3 and len(other.choosing.queries) == 12


def test_scores_of_pairs_lie_where_their_documents_are(task):
    network = task.make_network(TINY)
    found = task.watched
    assert (found.documents == NONE).sum() == 0
    found = found._replace(documents=np.where(np.arange(5) == 4, NONE, found.documents))
    scores = task.scores(network, found)
    assert (scores[:, 4] == 0).all()
    ranker = Ranker(network, task.vocabulary, 0.1, TINY)
    texts = [task.collection.texts[doc] for doc in found.documents[2, :4]]
    expected = ranker.network_scores(task.collection.queries[found.queries[2]], texts)
    np.testing.assert_allclose(scores[2, :4], expected, atol=1e-4)


@pytest.mark.learning
def test_a_collection_without_test_queries_is_not_measured(tmp_path):
    data = write_ranking(tmp_path / "data", topics=20, splits=("train", "dev"))
    cfg = dataclasses.replace(TINY, total_updates=2, samples=8)
    summary, lines = train_ranker(cfg, data, tmp_path / "run", progress=False)
    assert "test" not in summary and len(lines) == 1 == len(result_lines(summary))


def test_too_few_dev_queries_are_refused(tmp_path):
    data = write_ranking(tmp_path / "data", topics=3, splits=("train", "dev", "test"))
    with pytest.raises(ValueError, match=r"data has 1 dev queries.*at least 2"):
        RankingTask(load_collection(data, ("train", "dev")), TINY)


def test_a_run_of_another_kind_or_with_a_damaged_file_is_refused(run, tmp_path):
    (tmp_path / "config.yaml").write_text("settings: {}\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"ranker\.json cannot be read"):
        Ranker.load(tmp_path)
    for text in ("[]", "{}", '{"weight": NaN, "search_identity": "", "collection": ""}'):
        (tmp_path / "ranker.json").write_text(text)
        with pytest.raises(ValueError, match=r"ranker\.json cannot be read"):
            Ranker.load(tmp_path)


def test_more_tokens_than_the_network_has_positions_for_are_refused(run, tmp_path):
    copied = shutil.copytree(run[0], tmp_path / "run")
    path = copied / "config.yaml"
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace("max_length: 32", "max_length: 24"), encoding="utf-8")
    assert Ranker.load(copied).cfg.context_length == 24 - 10 - 3
    path.write_text(text.replace("max_length: 32", "max_length: 33"), encoding="utf-8")
    with pytest.raises(ValueError, match=r"run has a network with 32 positions, and .* 33 in its"):
        Ranker.load(copied)


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"heads": 3}, "heads is 3, expected a divisor of width"),
        ({"max_length": 12, "max_question_length": 9}, "expected at least max_question_length"),
        ({"class_weights": "auto"}, "a re-ranker has no classes"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(TINY, **changes)


def test_the_python_of_the_page_runs(run, tmp_path, monkeypatch, capsys):
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "NAME").symlink_to(run[0])
    monkeypatch.chdir(tmp_path)
    page = (Path(__file__).parents[3] / "docs" / "text_ranker.md").read_text("utf-8")
    (block,) = PYTHON_BLOCK.findall(page)
    exec(compile(block, "text_ranker.md", "exec"), {})
    assert capsys.readouterr().out.count("\n") == 2
