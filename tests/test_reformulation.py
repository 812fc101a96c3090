"""From a collection to a trained run, and on to better queries."""

import dataclasses
import json
import shutil

import keras
import numpy as np
import pytest
import tensorflow as tf
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from kytolly.command import entry as cli
from kytolly.reformulation import prepare as reformulation
from kytolly.reformulation import train as reformulation_training
from kytolly.reformulation.device_env import QueryEnvironment
from kytolly.reformulation.options import options_from, read_options, write_options
from kytolly.reformulation.prepare import (
    Phases,
    SearchSide,
    greedy_actions,
    make_scorer,
    ppo_config,
)
from kytolly.reformulation.reformulator import Reformulator, escaped, lucene_query, number
from kytolly.reformulation.report import lines as lines_of
from kytolly.reformulation.table import make_pool
from kytolly.reformulation.train import train
from kytolly.retrieval.corpus import load_collection
from kytolly.retrieval.metrics import report
from kytolly.retrieval.trec import read_run
from tests.retrieval.tiny_collection import write_collection

SETTINGS = {
    "retrieval": {"encoder": "hash", "dimension": 16, "candidates": 8, "max_terms": 2},
    "training": {
        "epochs": 4,
        "collect_batch_size": 8,
        "episodes_per_update": 16,
        "batch_size": 16,
        "warm_start_epochs": 6,
        "use_amp": False,
    },
    "rl_agent": {"hidden_units": [8]},
}


def make_options(collection, **training):
    settings = {**SETTINGS, "training": {**SETTINGS["training"], **training}}
    return options_from({**settings, "collection": str(collection)})


@pytest.fixture(scope="module")
def collection(tmp_path_factory):
    return write_collection(tmp_path_factory.mktemp("data") / "tiny")


@pytest.fixture(scope="module")
def run(collection, tmp_path_factory):
    folder, lines = tmp_path_factory.mktemp("runs") / "a", []
    summary = train(make_options(collection), log_dir=folder, test=True, say=lines.append)
    return folder, summary, lines


@pytest.fixture(scope="module")
def reformulator(run):
    return Reformulator.load(run[0])


def test_a_run_on_disk_is_complete_and_judged(run, collection):
    folder, summary, _ = run
    names = {path.name for path in folder.iterdir()}
    assert {"config.yaml", "reformulation.yaml", "best.keras", "index.npz"} <= names
    assert "result.json" in names
    assert {"metrics.csv", "checkpoints", "test_bm25.run", "test_reformulated.run"} <= names
    assert json.loads((folder / "result.json").read_text()) == summary
    assert summary["queries"]["train"] == 25 and summary["queries"]["train_skipped"] == 1
    # The runs on disk are what was judged.
    qrels = load_collection(collection, ("test",)).judgements["test"]
    for name in ("bm25", "reformulated"):
        means = report(qrels, read_run(folder / f"test_{name}.run"), ["ndcg@10"])
        assert means["ndcg@10"] == pytest.approx(summary["test"]["ndcg@10"][name], abs=1e-9)
    test = summary["test"]
    assert test["queries"] == 10  # the one without a token counts, too
    assert test["ndcg@10"]["low"] <= test["ndcg@10"]["difference"] <= test["ndcg@10"]["high"]


def test_it_learns_what_helps(run):
    _, summary, _ = run
    assert summary["dev_gain"]["kept"] > 0.02
    assert summary["test"]["ndcg@10"]["difference"] > 0.02
    assert summary["dev_gain"]["kept"] == pytest.approx(summary["evaluation"]["return_mean"])


def test_phases_are_shown_and_profiled(run):
    _, summary, lines = run
    text = "\n".join(lines)
    for words in (
        "pre-computation: indexing",
        "parallel preparation: mining",
        "warm start: pass 1",
        "batched collection and update: ",
    ):
        assert words in text
    rows = summary["profile"]
    loop = {"forward", "search and reward", "update", "transfers", "idle", "compilation"}
    assert {"reading", "embedding", "mining", "warm start", "test", "other"} | loop <= set(rows)
    assert sum(row["share"] for row in rows.values()) == pytest.approx(1.0, abs=0.01)
    assert min(row["seconds"] for row in rows.values()) >= 0 < rows["search and reward"]["seconds"]
    program = sum(rows[name]["seconds"] for name in ("forward", "search and reward", "update"))
    speed = summary["env_steps_per_second"]
    assert program + rows["idle"]["seconds"] == pytest.approx(summary["env_steps"] / speed)
    assert summary["embedding_cache"]["hits"] > 0
    printed = "\n".join(lines_of(summary))
    assert all(f"  {name}" in printed for name in loop) and "Device utilisation in" in printed


def test_tensorboard_has_the_profile(run):
    folder, summary, _ = run
    events = EventAccumulator(str(folder)).Reload()

    def written(tag):
        (point,) = events.Tensors(tag)
        assert point.step == summary["env_steps"]
        return float(tf.make_ndarray(point.tensor_proto))

    for name, row in summary["profile"].items():
        seconds = written(f"profile_seconds/{name.replace(' ', '_')}")
        assert seconds == pytest.approx(row["seconds"])
    rate = written("profile/embedding_cache_hit_rate")
    assert rate == pytest.approx(summary["embedding_cache"]["hit_rate"])
    assert 0.0 < written("profile/device_utilisation") <= 1.0


def test_the_best_network_is_the_one_that_is_kept(run, collection):
    folder, summary, _ = run
    side = SearchSide.prepared(make_options(collection), ("dev",))
    env = QueryEnvironment(side.table(side.queries("dev")), in_order=True)
    gains = greedy_actions(keras.models.load_model(folder / "best.keras"), env)[1]
    assert gains.mean() == pytest.approx(summary["dev_gain"]["kept"], abs=1e-5)


def test_test_judgements_do_not_touch_training(run, collection, tmp_path):
    folder, summary, _ = run
    other = write_collection(tmp_path / "tiny")
    (other / "qrels" / "test.tsv").unlink()
    again = train(make_options(other), log_dir=tmp_path / "b")
    assert again["dev_gain"] == summary["dev_gain"]
    networks = [keras.models.load_model(p / "best.keras") for p in (folder, tmp_path / "b")]
    for one, same in zip(*(network.get_weights() for network in networks), strict=True):
        np.testing.assert_array_equal(one, same)


def test_a_test_split_that_is_missing_is_found_before_training(collection, tmp_path):
    other = write_collection(tmp_path / "tiny")
    (other / "qrels" / "test.tsv").unlink()
    with pytest.raises(ValueError, match="no judgements of a test split"):
        train(make_options(other), log_dir=tmp_path / "c", test=True)
    assert not (tmp_path / "c").exists()


def test_a_query_is_reformulated_with_reasons(reformulator):
    found = reformulator.reformulate("key12 noise1", top=4)
    assert found.reason is None and len(found.before) == len(found.after) == 4
    assert 1 <= len(found.added) <= 2
    term = found.added[0]
    assert found.weights == {"key12": 1.0, "noise1": 1.0, **{t.term: 0.3 for t in found.added}}
    assert found.lucene == " ".join(["key12", "noise1", *(f"{t.surface}^0.3" for t in found.added)])
    assert {"idf", "cosine to query"} <= set(term.features) and term.rank >= 1
    scores = reformulator.side.index.scores(found.weights)
    docs = reformulator.side.collection.doc_index
    for hit in found.after:
        assert hit.score == pytest.approx(float(scores[docs[hit.doc_id]]))
    assert json.loads(json.dumps(found.as_dict()))["query"] == "key12 noise1"
    text = "\n".join(found.lines())
    assert "of the feedback documents" in text and f"Lucene: {found.lucene}" in text


@pytest.mark.parametrize("text", ["", "the of and", "zzz"])
def test_a_query_without_a_token_comes_back_unchanged(reformulator, text):
    found = reformulator.reformulate(text)
    assert found.added == () and found.reason == "no token that any document contains"
    assert found.before == found.after == ()
    assert "no document" in "\n".join(found.lines())


def test_many_queries_are_what_each_alone_is(reformulator, monkeypatch):
    texts = {"x": "key12 noise1", "y": "of", "z": "key13", "bad0.0": "key0 key1"}
    alone = [reformulator.reformulate(text) for text in texts.values()]
    monkeypatch.setattr("reformulator.TOGETHER", 2)
    together = reformulator.reformulate_all(texts)
    assert [one.query_id for one in together] == list(texts)
    for one, other in zip(alone, together, strict=True):
        assert dataclasses.replace(other, query_id="") == one


def test_a_query_that_is_a_document_does_not_find_it(reformulator):
    side = reformulator.side
    text = side.collection.texts[0]
    name = side.collection.doc_ids[0]
    ids = [
        {hit.doc_id for hit in reformulator.reformulate_all({key: text})[0].after}
        for key in (name, "other")
    ]
    assert name not in ids[0] and name in ids[1]


def test_reformulating_needs_no_judgement_and_no_test(run, collection, tmp_path):
    bare = tmp_path / "bare"
    shutil.copytree(collection, bare)
    shutil.rmtree(bare / "qrels")
    found = Reformulator.load(run[0], bare).reformulate("key12 noise1")
    assert found == Reformulator.load(run[0]).reformulate("key12 noise1")


def test_lucene_syntax():
    assert lucene_query({"glacier": 1.0, "cave": 2.0, "ice": 0.3}) == "glacier cave^2 ice^0.3"
    assert escaped('a+b:(c)"d"\\e/f') == 'a\\+b\\:\\(c\\)\\"d\\"\\\\e\\/f'
    assert escaped("OR") == "\\OR" and escaped("order") == "order"
    assert escaped("two words") == "two\\ words"
    assert number(0.30000001) == "0.3" and number(1e-5) == "0.00001" and number(12.0) == "12"


def test_options_come_back_from_their_file(collection, tmp_path):
    options = make_options(collection, epochs=3)
    write_options(tmp_path / "o.yaml", options)
    assert read_options(tmp_path / "o.yaml") == options


@pytest.mark.parametrize(
    "values, words",
    [
        ({"trainin": {}}, "'trainin' is no section or setting.*Did you mean 'training'"),
        ({"training": {"epoch": 3}}, "'epoch' is not a setting.*Did you mean 'epochs'"),
        ({"rl_agent": 3}, "rl_agent is 3, expected settings below it"),
        ({"retrieval": {"weight": 0}}, "weight is 0.0, expected above 0"),
    ],
)
def test_unknown_settings_are_errors(values, words):
    with pytest.raises(ValueError, match=words):
        options_from(values)


def test_ppo_gets_minibatches_that_divide_its_rollout():
    for queries in (1, 3, 7, 100, 1001):
        for batch in (2, 5, 1000):
            options = make_options("x", batch_size=batch)
            cfg = ppo_config(options, queries, 4)
            assert cfg.num_envs <= min(queries, 8) and cfg.num_envs * cfg.rollout_steps >= 1


def test_a_run_keeps_the_index_of_its_documents(run, collection, tmp_path, monkeypatch):
    folder = tmp_path / "run"
    shutil.copytree(run[0], folder)
    made, real = [], reformulation.BM25Index.__init__

    def indexed(self, *args):
        made.append(len(args[0]))
        real(self, *args)

    monkeypatch.setattr(reformulation.BM25Index, "__init__", indexed)
    saved = Reformulator.load(folder)
    before = saved.reformulate("key12 noise1")
    assert made == [] and before.added
    other = write_collection(tmp_path / "other")
    text = (other / "corpus.jsonl").read_text()
    (other / "corpus.jsonl").write_text(text.replace("noise1 ", "noise2 "))
    assert Reformulator.load(folder, other).side.index.digest != saved.side.index.digest
    assert made == [112]  # other documents are indexed anew
    options = (folder / "reformulation.yaml").read_text()
    (folder / "reformulation.yaml").write_text(options.replace("k1: 1.5", "k1: 1.2"))
    assert Reformulator.load(folder).side.index.parameters[0] == 1.2
    (folder / "reformulation.yaml").write_text(options)
    (folder / "index.npz").write_bytes(b"damaged")
    assert Reformulator.load(folder).reformulate("key12 noise1") == before
    (folder / "index.npz").unlink()
    assert Reformulator.load(folder).reformulate("key12 noise1") == before
    assert made == [112] * 4


def test_phases_within_phases_count_once():
    lines = []
    phases = Phases(lines.append)
    with phases.measured("mining"), phases.measured("embedding"):
        pass
    with phases.measured("embedding"):
        pass
    assert lines == ["parallel preparation: mining", "pre-computation: embedding"]
    assert set(phases.seconds) == {"mining", "embedding"} and min(phases.seconds.values()) >= 0


def test_too_little_memory_halves_what_is_collected_at_once(collection, tmp_path, monkeypatch):
    copies, lines = [], []
    real = reformulation_training.Trainer.train_ppo

    def scarce(self, cfg, *args, **options):
        copies.append(cfg.num_envs)
        if cfg.num_envs > 4:
            (self.log_dir / "half-made").touch()
            raise tf.errors.ResourceExhaustedError(None, None, "out of memory")
        return real(self, cfg, *args, **options)

    monkeypatch.setattr(reformulation_training.Trainer, "train_ppo", scarce)
    options = make_options(collection, epochs=1, warm_start_epochs=0, collect_batch_size=16)
    summary = train(options, log_dir=tmp_path / "d", say=lines.append)
    assert copies == [16, 8, 4] and summary["collect_batch_size"] == 4
    assert "out of memory with collect_batch_size 16: PPO begins anew with 8" in lines
    assert not (tmp_path / "d" / "half-made").exists()


def test_wide_and_hopeless_queries_are_left_out_of_training_alone(collection, tmp_path):
    lines = []
    options = make_options(collection, max_pool_documents=64)
    prepared = reformulation_training.prepare(options, lines.append)
    assert prepared.counts["train_too_wide"] + len(prepared.table.number) == 24
    assert prepared.dev.queries == 9
    assert f"{prepared.counts['train_too_wide']} with more than 64 documents" in "\n".join(lines)


def test_the_agent_sees_the_same_with_and_without_judgements(collection):
    side = SearchSide.prepared(make_options(collection), ("dev",))
    judged = side.queries("dev")
    blind = [query._replace(relevant=np.zeros(0, np.int64)) for query in judged]
    envs = [QueryEnvironment(side.table(part), in_order=True) for part in (judged, blind)]
    network = make_scorer(envs[0], side.options)
    one, other = (greedy_actions(network, env)[0] for env in envs)
    np.testing.assert_array_equal(one, other)
    assert len(make_pool(judged[0], side.index, side.episode).documents)


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


def test_the_command_writes_a_run_for_a_file_of_queries(run, capsys, tmp_path):
    folder, _, _ = run
    source = read_options(folder / "reformulation.yaml").collection
    out = tmp_path / "out.run"
    argv = ["reformulate", folder, "--queries", f"{source}/queries.jsonl", "--run-file", out]
    assert cli.main([str(part) for part in argv]) == 0
    assert "no token that any document contains" in capsys.readouterr().out
    judged, every = read_run(folder / "test_reformulated.run"), read_run(out)
    assert {query: every[query] for query in judged} == judged


def test_bad_input_of_the_command(run, capsys, tmp_path):
    folder, _, _ = run
    assert "nowhere is no run" in complaint(["reformulate", "nowhere", "x"], capsys)
    assert "either the text" in complaint(["reformulate", folder], capsys)
    assert "belong together" in complaint(["reformulate", folder, "--queries", "f"], capsys)
    assert "does not exist" in complaint(
        ["reformulate", folder, "x", "--collection", tmp_path / "no"], capsys
    )
    (tmp_path / "config.yaml").write_text("a: 1")
    assert "expected a run of train_optimized.py" in complaint(
        ["reformulate", tmp_path, "x"], capsys
    )
