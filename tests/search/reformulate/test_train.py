"""From a collection to a trained run: what is on disk, what is said, and what is learned."""

import dataclasses
import json

import keras
import numpy as np
import pytest
import tensorflow as tf
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from kytolly.callback.base import Evaluation, TrainState
from kytolly.search.index import training_queries
from kytolly.search.reformulate import ppo_training, selection
from kytolly.search.reformulate import train as train_module
from kytolly.search.reformulate.choice import UNTESTED, USES, Choice, Choices, read_choices
from kytolly.search.reformulate.ppo_training import ppo_config
from kytolly.search.reformulate.query import CANDIDATE_FEATURES
from kytolly.search.reformulate.reformulator import Reformulator
from kytolly.search.reformulate.report import lines as report_lines
from kytolly.search.reformulate.search import SearchContext
from kytolly.search.reformulate.table import row_bytes
from kytolly.search.reformulate.train import prepare, train
from tests.search.reformulate.tiny_collection import make_options, write_collection

LOOP_PARTS = {"forward", "search and reward", "update", "transfers", "idle", "compilation"}


def test_a_run_on_disk_is_complete(run, collection):
    folder, summary, _ = run
    names = {path.name for path in folder.iterdir()}
    assert {"config.yaml", "reformulation.yaml", "best.keras", "index.npz"} <= names
    assert {"result.json", "choice.json", "vectors.npz"} <= names
    assert {"metrics.csv", "checkpoints", "test_bm25.run", "test_agent_fused.run"} <= names
    assert "calibration.png" in names
    assert json.loads((folder / "result.json").read_text()) == summary
    assert summary["queries"]["train"] == 25 and summary["queries"]["train_skipped"] == 1
    assert summary["test"]["queries"] == 10  # the one without a token counts, too


def test_it_learns_what_helps(run):
    folder, summary, lines = run
    fused = summary["choices"]["fused"]
    assert fused["scale"] > 0 and fused["dev_gain"] > 0.2 and fused["changed"] > 0.5
    assert fused["tried"] == 2 * len(USES) and summary["network"] in ("warm start", "ppo")
    systems = summary["test"]["systems"]
    assert systems["agent_fused"]["ndcg@10"]["over_bm25"]["difference"] > 0.2
    assert systems["agent_fused"] == {  # there are no cosines, so both are the same
        metric: {**row, "over_fused": row["over_bm25"]} for metric, row in systems["agent"].items()
    }
    choice = Choice(0.0, fused["scale"], fused["margin"])
    found = read_choices(folder)
    assert found == Choices(0.0, {0.0: choice}, found.digest) and len(found.digest) == 64
    assert summary["choices"]["plain"] == fused and summary["fusion"] == 0.0
    assert any("only 42 held-out queries" in line for line in lines)


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


def test_neither_test_judgments_nor_a_profile_change_training(run, tmp_path, monkeypatch):
    monkeypatch.setattr("kytolly.loop.profile.MAX_CALLS", 2)
    folder, summary, _ = run
    other = write_collection(tmp_path / "tiny")
    (other / "qrels" / "test.tsv").unlink()
    again = train(make_options(other), log_dir=tmp_path / "b", profile=True)
    assert again["choices"] == summary["choices"] and again["network"] == summary["network"]
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
            assert cfg.num_envs * cfg.rollout_steps % cfg.num_minibatches == 0
            assert cfg.total_env_steps == 2 * queries and cfg.evaluation_episodes == 4


def test_the_last_rollout_does_not_pass_the_total_that_is_shown(tmp_path):
    cfg, lines = ppo_config(make_options("x"), 25, 4), []
    assert (cfg.total_env_steps, cfg.env_steps_per_iteration) == (50, 16)
    first = TrainState(tmp_path, cfg, "queries", "device", "cpu", wall_seconds=9.0)
    evaluation = Evaluation.of_episodes([0.25], [1])
    for done in (48, 64):
        state = dataclasses.replace(first, env_steps=done, evaluation=evaluation)
        ppo_training.EvaluationLines(lines.append, "ndcg@10").on_evaluation(state)
    assert "48 of 64 env steps" in lines[0] and "at most 3 s left" in lines[0]
    assert "64 of 64 env steps" in lines[1] and "at most 0 s left" in lines[1]


@pytest.mark.parametrize("queries", [4, 100, 1001])
@pytest.mark.parametrize("batch", [2, 5, 1000])
def test_ppo_gets_the_training_aids_of_the_options(queries, batch):
    aids = {"gradient_accumulation": 4, "warmup_ratio": 0.1, "weight_decay": 0.01}
    options = make_options("x", batch_size=batch, **aids)
    agent = dataclasses.replace(options.rl_agent, max_grad_norm=None)
    training = dataclasses.replace(options.training, patience=3, min_improvement=0.01)
    options = dataclasses.replace(options, rl_agent=agent, training=training)
    cfg = ppo_config(options, queries, 4)
    assert (cfg.early_stop_patience, cfg.early_stop_min_improvement) == (3, 0.01)
    assert {name: getattr(cfg, name) for name in aids} == aids and cfg.max_grad_norm is None
    assert cfg.env_steps_per_iteration % cfg.num_minibatches == 0
    plain = ppo_config(make_options("x", batch_size=batch), queries, 4)
    assert cfg.env_steps_per_iteration == plain.env_steps_per_iteration


def test_parts_that_do_not_divide_a_rollout_are_refused():
    with pytest.raises(ValueError, match=r"gradient_accumulation \(5\) does not divide the 16 env"):
        ppo_config(make_options("x", gradient_accumulation=5), 1001, 4)


@pytest.mark.learning
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
    few = {"epochs": 1, "warm_start_epochs": 0, "held_out_folds": 0}
    options = make_options(collection, collect_batch_size=16, **few)
    summary = train(options, log_dir=tmp_path / "d", say=lines.append)
    assert num_envs == [16, 8] and summary["collect_batch_size"] == 8
    assert "out of memory with collect_batch_size 16: PPO starts again with 8" in lines
    assert not (tmp_path / "d" / "half-made").exists()


@pytest.fixture
def forbid_pretrained(monkeypatch):
    message = "the network of the package was looked at"
    monkeypatch.setattr(train_module, "load_pretrained", lambda: pytest.fail(message))


def learn_quickly(collection, folder, lines=None, retrieval=None, **training):
    """A run without PPO."""
    short = {"epochs": 0, "warm_start_epochs": 2, "held_out_folds": 0, **training}
    say = (lambda line: None) if lines is None else lines.append
    return train(make_options(collection, retrieval, **short), log_dir=folder, say=say)


def test_without_ppo_a_run_is_complete(collection, tmp_path, forbid_pretrained):
    """The encoder hashes words, so the network of the package is not used."""
    summary = learn_quickly(collection, tmp_path / "run", warm_start_epochs=60)
    assert summary["env_steps"] == 0 and summary["network"] == "warm start"
    assert json.loads((tmp_path / "run" / "result.json").read_text()) == summary
    assert "0 env steps of PPO" in "\n".join(report_lines(summary))
    assert Reformulator.load(tmp_path / "run").reformulate("key12 noise1").added


@pytest.mark.learning
def test_the_network_of_the_package_is_one_of_those_that_are_tried(
    collection, tmp_path, monkeypatch
):
    monkeypatch.setattr(train_module.SearchContext, "encoder_name", "wordllama")
    summary = learn_quickly(collection, tmp_path / "a", warm_start_epochs=0)
    assert summary["choices"]["fused"]["tried"] == 2 * len(USES)
    message = "the network of the package was looked at"
    monkeypatch.setattr(train_module, "load_pretrained", lambda: pytest.fail(message))
    summary = learn_quickly(collection, tmp_path / "b", pretrained=False)
    assert summary["choices"]["fused"]["tried"] == len(USES)


def test_a_weight_of_cosines_that_was_asked_for_is_not_chosen_again(
    collection, tmp_path, monkeypatch
):
    monkeypatch.setattr(selection, "select_fusion", lambda *_: pytest.fail("it was chosen"))
    folder, lines = tmp_path / "run", []
    summary = learn_quickly(collection, folder, lines, {"fusion": 0.5})
    assert summary["fusion"] == 0.5 and "cosines with 0.5 beside" in str(lines)
    assert set(read_choices(folder).by_fusion) == {0.0, 0.5}
    assert Reformulator.load(folder).fusion == 0.5
    printed = "\n".join(report_lines(summary))
    assert printed.count("ndcg@10 over BM25: ") == 1
    assert "over BM25 + 0.5 cosines:" in printed


def test_the_weight_of_cosines_that_judgments_prefer_is_taken(collection, monkeypatch):
    monkeypatch.setattr(selection, "select_fusion", lambda judged, usual, seed: usual + 0.25)
    found = prepare(make_options(collection), lambda line: None)
    assert selection.judged_fusion(found.context, found.train, found.dev) == 0.25
    assert selection.judged_fusion(found.context, None, None) == 0.0


@pytest.mark.learning
def test_without_dev_queries_train_queries_test_what_helps(tmp_path):
    other, lines = write_collection(tmp_path / "tiny"), []
    (other / "qrels" / "dev.tsv").unlink()
    longer = {"warm_start_epochs": 60, "held_out_folds": 3}
    summary = learn_quickly(other, tmp_path / "run", lines, **longer)
    fused = summary["choices"]["fused"]
    assert summary["network"] == "warm start" and fused["scale"] > 0 and fused["dev_gain"] > 0.2
    assert "held-out queries: part 3 of 3" in lines


def test_without_held_out_queries_a_fixed_share_of_the_weights_is_used(tmp_path):
    other, lines = write_collection(tmp_path / "tiny"), []
    (other / "qrels" / "dev.tsv").unlink()
    summary = learn_quickly(other, tmp_path / "run", lines, warm_start_epochs=60)
    assert f"no dev queries: weights are used at {UNTESTED:g}" in "\n".join(lines)
    assert summary["choices"]["fused"]["scale"] == UNTESTED
    assert summary["queries"]["dev"] == 0 and list(report_lines(summary))
    assert Reformulator.load(tmp_path / "run").reformulate("key12 noise1").added


def test_parts_of_documents_are_learned_from_where_there_is_no_judgment(tmp_path, monkeypatch):
    monkeypatch.setattr(training_queries, "REST_WORDS", 3)  # the documents are short
    other, lines = write_collection(tmp_path / "tiny"), []
    (other / "qrels" / "train.tsv").unlink()
    summary = learn_quickly(other, tmp_path / "run", lines, synthetic_queries=6)
    said = [line for line in lines if line.startswith("synthetic queries: ")]
    assert len(said) == 1 and said[0].endswith(" of 6") and not said[0].startswith("0")
    assert any(line.startswith("warm start, synthetic queries: pass 2") for line in lines)
    assert summary["network"] == "warm start" and summary["queries"]["train"] == 0
    assert Reformulator.load(tmp_path / "run").reformulate("key12 noise1").before


def test_without_training_queries_the_network_of_the_package_is_used(tmp_path, monkeypatch):
    other, lines = write_collection(tmp_path / "tiny"), []
    (other / "qrels" / "train.tsv").unlink()
    with pytest.raises(ValueError, match=r"no query of the train split .* set pretrained: true"):
        learn_quickly(other, tmp_path / "run")
    assert not (tmp_path / "run").exists()
    monkeypatch.setattr(train_module.SearchContext, "encoder_name", "wordllama")
    summary = learn_quickly(other, tmp_path / "run", lines)
    assert "no query to learn from: the network that comes with the package is used" in str(lines)
    assert summary["network"] == "pretrained" and summary["choices"]["fused"]["tried"] == len(USES)
    kept = keras.models.load_model(tmp_path / "run" / "best.keras").get_weights()
    for one, same in zip(kept, train_module.load_pretrained().get_weights(), strict=True):
        np.testing.assert_array_equal(one, same)
    assert Reformulator.load(tmp_path / "run").reformulate("key12 noise1").before


def test_no_judgment_at_all_needs_none(tmp_path, every_change_pays):
    pytest.importorskip("wordllama")
    other, lines = write_collection(tmp_path / "tiny"), []
    for path in (other / "qrels").iterdir():
        path.unlink()
    summary = learn_quickly(other, tmp_path / "run", lines, {"encoder": "wordllama"})
    assert summary["network"] == "pretrained" and summary["fusion"] == 1.0
    found = Reformulator.load(tmp_path / "run")
    assert found.choices.at(1.0) == Choice(1.0, UNTESTED)
    package = Reformulator.pretrained(other)
    one, other = (each.reformulate("key12 noise1") for each in (found, package))
    assert one.added and {term.term for term in one.added} <= {term.term for term in other.added}


def test_a_run_that_was_interrupted_is_usable(collection, tmp_path):
    lines = []

    def say(line):
        lines.append(line)
        if line.startswith(f"{ppo_training.COLLECTION}: 16 of"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt, match=r"The run is saved in .*kytolly reformulate"):
        train(make_options(collection, held_out_folds=0), log_dir=tmp_path / "run", say=say)
    assert not (tmp_path / "run" / "choice.json").exists()
    with pytest.warns(UserWarning, match="was stopped before dev queries chose which changes help"):
        found = Reformulator.load(tmp_path / "run")
    assert found.choices == Choices(None, {}) and found.reformulate("key12 noise1").added


def test_an_interrupt_before_ppo_leaves_nothing(collection, tmp_path):
    def say(line):
        if line.startswith("warm start: pass 2"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt, match="nothing is saved"):
        train(make_options(collection), log_dir=tmp_path / "run", say=say)
    assert not (tmp_path / "run").exists()


def test_tables_hold_the_usable_queries_in_order(collection):
    lines = []
    found = prepare(make_options(collection), lines.append)
    context = found.context
    for split, table, count in (("train", found.train, 24), ("dev", found.dev, 18)):
        assert table.number.tolist() == context.collection.split(split)[:count]
        assert table.columns.shape == (count, 20, 64)
        assert found.counts[split] == count + 1 and found.counts[f"{split}_skipped"] == 1
        said = next(line for line in lines if line.startswith(f"{split} queries"))
        assert f"{count} of {count + 1}; 1 query skipped: 1 no token" in said
    assert set(context.phases.seconds) == {"reading", "indexing", "embedding", "mining", "tables"}
    assert "test" not in context.collection.judgments


def test_a_split_without_judgments_has_no_table(collection):
    lines = []
    found = prepare(make_options(collection), lines.append, ("train",))
    assert found.dev is None and found.train is not None and found.counts["dev"] == 0
    assert "dev queries: none, the collection has no judgments of this split" in lines


def test_a_split_whose_queries_are_all_unusable_has_no_table(tmp_path):
    other = write_collection(tmp_path / "tiny")
    text = "query-id\tcorpus-id\tscore\nempty-dev\tgood0.0\t1\nq8.0\tgood8.0\t0\n"
    (other / "qrels" / "dev.tsv").write_text(text)
    found = prepare(make_options(other), lambda line: None)
    assert found.dev is None and found.counts["dev"] == 2
    assert found.counts["dev_skipped"] == found.counts["dev_without_relevant"] == 1


def test_a_query_whose_only_relevant_document_is_itself_is_left_out(tmp_path):
    other = write_collection(tmp_path / "tiny")
    first = (other / "corpus.jsonl").read_text().splitlines()[0]
    assert '"_id": "good0.0"' in first
    with (other / "queries.jsonl").open("a") as file:
        file.write(first + "\n")  # a query with the id and the text of a document
    with (other / "qrels" / "dev.tsv").open("a") as file:
        file.write("good0.0\tgood0.0\t1\n")
    found = prepare(make_options(other), lambda line: None)
    assert found.counts["dev_without_relevant"] == 1 and len(found.dev.number) == 18


def test_of_many_queries_some_are_drawn_by_the_seed(collection):
    lines, options = [], make_options(collection, max_queries=10)
    found = prepare(options, lines.append)
    assert found.counts["train"] == 25 and len(found.train.number) in (9, 10)
    assert "train queries: 10 of 25 are drawn, which max_queries allows" in lines
    assert any(
        line.startswith(f"train queries: {len(found.train.number)} of 10;") for line in lines
    )
    assert (np.diff(found.train.number) > 0).all()
    seeds = [dataclasses.replace(options, seed=seed) for seed in range(4)]
    drawn = [prepare(one, lambda line: None).train.number.tolist() for one in seeds]
    assert drawn[0] == found.train.number.tolist() and any(one != drawn[0] for one in drawn)


def test_the_size_of_tables_is_checked_before_they_are_made(collection, monkeypatch):
    context = SearchContext.load(make_options(collection), ())
    size = 24 * row_bytes(context.rules, len(CANDIDATE_FEATURES))
    monkeypatch.setattr(train_module, "check_memory", lambda needed, *_: sizes.append(needed))
    sizes = []
    prepare(make_options(collection), lambda line: None)
    assert sizes == [size, 18 * size // 24]
