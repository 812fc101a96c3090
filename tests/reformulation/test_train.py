"""From a collection to a trained run: what is on disk, what is said, and what is learned."""

import json

import keras
import numpy as np
import pytest
import tensorflow as tf
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from kytolly.reformulation import ppo_training, profile
from kytolly.reformulation import train as train_module
from kytolly.reformulation.device_env import DeviceQueries
from kytolly.reformulation.network import make_scorer
from kytolly.reformulation.phases import Phases
from kytolly.reformulation.pool import make_pool
from kytolly.reformulation.ppo_training import ppo_config
from kytolly.reformulation.reformulator import Reformulator
from kytolly.reformulation.report import lines as report_lines
from kytolly.reformulation.search import SearchSide
from kytolly.reformulation.table import make_table
from kytolly.reformulation.train import improvable_queries, train
from kytolly.retrieval.corpus import load_collection
from kytolly.retrieval.metrics import report
from kytolly.retrieval.trec import read_run
from tests.reformulation.tiny_collection import make_options, write_collection

LOOP_PARTS = {"forward", "search and reward", "update", "transfers", "idle", "compilation"}


def device_queries(side, queries):
    return DeviceQueries(make_table(queries, side.index, side.episode), in_order=True)


def test_a_run_on_disk_is_complete(run, collection):
    folder, summary, _ = run
    names = {path.name for path in folder.iterdir()}
    assert {"config.yaml", "reformulation.yaml", "best.keras", "index.npz"} <= names
    assert "result.json" in names
    assert {"metrics.csv", "checkpoints", "test_bm25.run", "test_reformulated.run"} <= names
    assert json.loads((folder / "result.json").read_text()) == summary
    assert summary["queries"]["train"] == 25 and summary["queries"]["train_skipped"] == 1
    # The rankings on disk are those of the metrics.
    qrels = load_collection(collection, ("test",)).judgments["test"]
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


def test_phases_are_shown_and_timed(run):
    _, summary, lines = run
    text = "\n".join(lines)
    for words in (
        "pre-computation: indexing",
        "parallel preparation: mining",
        "warm start: pass 1",
        "batched collection and update: ",
    ):
        assert words in text
    rows = summary["phases"]
    assert {"reading", "embedding", "mining", "warm start", "test", "other"} <= set(rows)
    assert ppo_training.COLLECTION in rows
    assert not LOOP_PARTS & set(rows) and "loop_profile" not in summary
    assert sum(row["share"] for row in rows.values()) == pytest.approx(1.0, abs=0.01)
    assert min(row["seconds"] for row in rows.values()) >= 0
    assert summary["embedding_cache"]["hits"] > 0
    assert "Device utilization in the loop" in "\n".join(report_lines(summary))


def test_tensorboard_has_the_phases(run):
    folder, summary, _ = run
    events = EventAccumulator(str(folder)).Reload()

    def written(tag):
        (point,) = events.Tensors(tag)
        assert point.step == summary["env_steps"]
        return float(tf.make_ndarray(point.tensor_proto))

    for name, row in summary["phases"].items():
        seconds = written(f"phase_seconds/{name.replace(' ', '_')}")
        assert seconds == pytest.approx(row["seconds"])
    rate = written("rates/embedding_cache_hit_rate")
    assert rate == pytest.approx(summary["embedding_cache"]["hit_rate"])
    assert 0.0 < written("rates/device_utilization") <= 1.0


def test_the_best_network_is_the_one_that_is_kept(run, collection):
    folder, summary, _ = run
    side = SearchSide.load(make_options(collection), ("dev",))
    dev = device_queries(side, side.queries("dev"))
    play = dev.greedy_player(keras.models.load_model(folder / "best.keras"), xla=False)
    assert play().gains.mean() == pytest.approx(summary["dev_gain"]["kept"], abs=1e-5)


def test_neither_test_judgments_nor_a_profile_change_training(run, tmp_path, monkeypatch):
    monkeypatch.setattr(profile, "TURNS", 2)
    folder, summary, _ = run
    other = write_collection(tmp_path / "tiny")
    (other / "qrels" / "test.tsv").unlink()
    again = train(make_options(other), log_dir=tmp_path / "b", profile=True)
    assert again["dev_gain"] == summary["dev_gain"]
    networks = [keras.models.load_model(p / "best.keras") for p in (folder, tmp_path / "b")]
    for one, same in zip(*(network.get_weights() for network in networks), strict=True):
        np.testing.assert_array_equal(one, same)
    rows = again["phases"]
    assert set(rows) >= LOOP_PARTS | {"profile"} and ppo_training.COLLECTION not in rows
    assert min(row["seconds"] for row in rows.values()) >= 0 < rows["search and reward"]["seconds"]
    program = sum(rows[name]["seconds"] for name in ("forward", "search and reward", "update"))
    loop_seconds = again["env_steps"] / again["env_steps_per_second"]
    assert program + rows["idle"]["seconds"] == pytest.approx(loop_seconds)
    printed = "\n".join(report_lines(again))
    assert all(f"  {name}" in printed for name in LOOP_PARTS)


def test_a_test_split_that_is_missing_is_found_before_training(collection, tmp_path):
    other = write_collection(tmp_path / "tiny")
    (other / "qrels" / "test.tsv").unlink()
    with pytest.raises(ValueError, match="no judgments of a test split"):
        train(make_options(other), log_dir=tmp_path / "c", test=True)
    assert not (tmp_path / "c").exists()


def test_a_malformed_test_split_is_found_before_training(tmp_path, monkeypatch):
    other = write_collection(tmp_path / "tiny")
    with (other / "qrels" / "test.tsv").open("a") as file:
        file.write("q11.0\tgood11.0\thigh\n")
    monkeypatch.setattr(train_module, "train_network", lambda *_: pytest.fail("it trained"))
    with pytest.raises(ValueError, match=r"test\.tsv:\d+: the score is 'high'"):
        train(make_options(other), log_dir=tmp_path / "c", test=True)
    assert not (tmp_path / "c").exists()


def test_ppo_gets_minibatches_that_divide_its_rollout():
    for queries in (1, 3, 7, 100, 1001):
        for batch in (2, 5, 1000):
            options = make_options("x", batch_size=batch)
            cfg = ppo_config(options, queries, 4)
            assert cfg.num_envs <= min(queries, 8) and cfg.num_envs * cfg.rollout_steps >= 1


def test_phases_within_phases_count_once():
    lines = []
    phases = Phases(lines.append)
    with phases.measure("mining"), phases.measure("embedding"):
        pass
    with phases.measure("embedding"):
        pass
    assert lines == ["parallel preparation: mining", "pre-computation: embedding"]
    assert set(phases.seconds) == {"mining", "embedding"} and min(phases.seconds.values()) >= 0


def test_too_little_memory_halves_what_is_collected_at_once(collection, tmp_path, monkeypatch):
    num_envs, lines = [], []
    real = ppo_training.Trainer.train_ppo

    def scarce(self, cfg, *args, **options):
        num_envs.append(cfg.num_envs)
        if cfg.num_envs > 8:
            (self.log_dir / "half-made").touch()
            raise tf.errors.ResourceExhaustedError(None, None, "out of memory")
        return real(self, cfg, *args, **options)

    monkeypatch.setattr(ppo_training.Trainer, "train_ppo", scarce)
    options = make_options(collection, epochs=1, warm_start_epochs=0, collect_batch_size=16)
    summary = train(options, log_dir=tmp_path / "d", say=lines.append)
    assert num_envs == [16, 8] and summary["collect_batch_size"] == 8
    assert "out of memory with collect_batch_size 16: PPO starts again with 8" in lines
    assert not (tmp_path / "d" / "half-made").exists()


def test_the_agent_sees_the_same_with_and_without_judgments(collection):
    side = SearchSide.load(make_options(collection), ("dev",))
    judged = side.queries("dev")
    blind = [query._replace(relevant=np.zeros(0, np.int64)) for query in judged]
    both = [device_queries(side, part) for part in (judged, blind)]
    network = make_scorer(both[0], side.options)
    one, other = (queries.greedy_player(network, xla=False)().actions for queries in both)
    np.testing.assert_array_equal(one, other)
    assert len(make_pool(judged[0], side.index, side.episode).documents)


def test_a_run_on_the_host_learns_what_helps(collection, tmp_path):
    options = make_options(collection, search="host", max_pool_documents=64)
    summary = train(options, log_dir=tmp_path / "run", test=True)
    assert summary["loop"] == "host" and summary["queries"]["train_too_wide"] == 0
    assert summary["dev_gain"]["kept"] > 0.02
    assert summary["dev_gain"]["kept"] == pytest.approx(summary["evaluation"]["return_mean"])
    assert summary["test"]["ndcg@10"]["difference"] > 0.02
    search = summary["search"]
    assert search["where"] == "host" and search["hits"] > search["misses"] > 0
    assert json.loads((tmp_path / "run" / "result.json").read_text()) == summary
    assert Reformulator.load(tmp_path / "run").reformulate("key12 noise1").added


def test_queries_that_no_single_candidate_improves_are_left_out(collection):
    side = SearchSide.load(make_options(collection), ("dev",))
    queries = device_queries(side, side.queries("dev"))
    examples, lines = queries.gain_examples(1), []
    assert (examples.gain.max(axis=1) > 1e-6).all()
    assert improvable_queries(queries, examples, lines.append) is queries
    examples.gain[:4] = 0.0
    kept = improvable_queries(queries, examples, lines.append)
    np.testing.assert_array_equal(kept.arrays["number"], queries.arrays["number"][4:])
    assert lines[1] == "PPO trains with 5 of 9 queries, which a candidate improves"
    with pytest.raises(ValueError, match="no candidate improves any of the 9 training queries"):
        improvable_queries(queries, examples._replace(gain=0 * examples.gain), lines.append)
