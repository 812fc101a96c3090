"""A rewriter learns by PPO which terms help BM25."""

import json
import shutil

import numpy as np
import pytest
import tensorflow as tf

pytest.importorskip("wordllama")

from kytolly.record.checkpoint import BEST
from kytolly.record.metrics_file import read_rows
from kytolly.record.network_file import load_network
from kytolly.search.config.rewriter import RewriterConfig
from kytolly.search.config.rewriting_ppo import RewritingPPOConfig
from kytolly.search.text.fine_tune_rewriter import FineTuning, fine_tune_rewriter, lines
from kytolly.search.text.rewriter import Rewriter
from kytolly.search.text.rewriting_env import allowed_tokens
from kytolly.search.text.train_rewriter import train_rewriter
from kytolly.search.text.vocabulary import END, SPECIAL
from tests.search.text.collection_files import write_animals, write_collection_files

ANIMALS = "cat dog horse bird fish snake cow pig".split()
COST = 0.05
PLAIN = RewriterConfig(
    total_updates=1,
    learning_rate=1e-6,
    batch_size=4,
    num_buckets=1,
    units=8,
    max_target_length=3,
    pretrained=False,
    held_out_folds=0,
    xla=False,
)


def write_helpful(folder):
    """The relevant document of a query has "good" and comes second, until the query has it too."""
    docs, rows = [], []
    qrels = {"train": [], "dev": [], "test": []}
    for k, animal in enumerate(ANIMALS):
        docs += [(f"a{k}", f"{animal} bad"), (f"b{k}", f"{animal} good"), (f"c{k}", "far")]
        for split, word in (("train", "see"), ("dev", "find"), ("test", "name")):
            rows.append((f"{split}{k}", f"{word} {animal}"))
            qrels[split].append((f"{split}{k}", f"b{k}"))
    return write_collection_files(folder, docs, rows, qrels)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fine_tuning")
    write_helpful(folder / "helpful")
    train_rewriter(PLAIN, folder / "helpful", folder / "plain", progress=False)
    return folder


def settings(folder, **changes):
    values = {
        "fine_tune": str(folder / "plain"),
        "term_cost": COST,
        "temperature": 1.0,
        "end_probability": 0.05,
        "kl_coef": 0.0,
        "total_env_steps": 4_096,
        "num_envs": 32,
        "rollout_steps": 8,
        "epochs": 4,
        "learning_rate": 1e-2,
        "checkpoint_interval_env_steps": 2_048,
        "xla": False,
    }
    return RewritingPPOConfig(**(values | changes))


@pytest.fixture(scope="module")
def tuned(folder):
    run = folder / "tuned"
    summary, _ = fine_tune_rewriter(settings(folder), folder / "helpful", run, progress=False)
    return run, summary


@pytest.mark.learning
def test_a_term_that_helps_is_learned_and_nothing_else_is_written(tuned):
    run, summary = tuned
    rewriter = Rewriter.load(run)
    written = [[one.term for one in row] for row in rewriter.terms_of(["name cat", "name pig"])]
    assert written == [["good"], ["good"]]
    test, perfect = summary["gains"]["test"], 1.0 - 1.0 / np.log2(3.0)
    assert test["after"]["gain"] == pytest.approx(perfect, abs=1e-5)
    assert test["after"]["gain"] > test["before"]["gain"] + 0.2
    assert test["difference"] == pytest.approx(test["after"]["gain"] - test["before"]["gain"])
    assert test["after"]["terms"] == 1.0 and summary["kept"] == "fine-tuned"
    assert json.loads((run / "result.json").read_text("utf-8")) == summary
    assert "reference_kl" in (run / "metrics.csv").read_text("utf-8").splitlines()[0]
    assert any(f"{test['after']['gain']:+.4f}" in line for line in lines(summary))


@pytest.mark.learning
def test_the_reward_of_dev_is_the_gain_of_the_written_terms(tuned):
    _, summary = tuned
    costs = COST * summary["gains"]["dev"]["after"]["terms"]
    found = summary["gains"]["dev"]["after"]
    assert found["reward"] == pytest.approx(found["gain"] - costs)
    assert summary["evaluation"]["return_mean"] == pytest.approx(found["reward"], abs=1e-5)


@pytest.mark.learning
def test_a_run_goes_on_with_its_own_reference(tuned, folder):
    run, summary = tuned
    cfg = settings(folder, total_env_steps=4_608)
    again, _ = fine_tune_rewriter(cfg, folder / "helpful", run, resume=True, progress=False)
    assert again["env_steps"] == 4_608 and again["updates"] > summary["updates"]
    assert again["gains"]["test"]["after"] == summary["gains"]["test"]["after"]


@pytest.mark.learning
def test_a_large_coefficient_keeps_the_policy_near_the_rewriter(tuned, folder):
    cfg = settings(folder, kl_coef=30.0, total_env_steps=512)
    fine_tune_rewriter(cfg, folder / "helpful", folder / "near", progress=False)
    distance = {}
    for name in ("tuned", "near"):  # "tuned" has no penalty, and is the same else
        rows = read_rows(folder / name / "metrics.csv", "env_steps")
        distance[name] = {int(row["env_steps"]): float(row["reference_kl"]) for row in rows}
    # 0.243 and 0.0003 when this was written
    assert distance["tuned"][512] > 0.1 > 0.005 > distance["near"][512] > 0.0


@pytest.mark.learning
def test_where_nothing_more_is_earned_the_rewriter_stays_as_it_was(folder, tmp_path):
    cfg = settings(folder, learning_rate=1e-12, total_env_steps=256, end_probability=1e-6)
    summary, said = fine_tune_rewriter(cfg, folder / "helpful", tmp_path / "a", progress=False)
    assert summary["kept"] == "supervised" and "earned no more on dev" in said[-1]
    assert summary["gains"]["test"]["difference"] == 0.0
    before, after = (load_network(run / BEST) for run in (folder / "plain", tmp_path / "a"))
    for own, other in zip(before.get_weights(), after.get_weights(), strict=True):
        np.testing.assert_array_equal(own, other)
    assert not Rewriter.load(tmp_path / "a").settings.get("may_end")


def test_before_training_the_network_writes_as_the_rewriter_and_ends_as_asked(folder):
    cfg = settings(folder, end_probability=0.2, temperature=0.3)
    task = FineTuning(cfg, folder / "helpful")
    network, rewriter = task.network(), task.rewriter
    count = len(task.queries["train"])
    texts = [query.text for query in task.queries["train"]]
    source, tokens = task.sources[:count], task.tokens(texts)
    ends = []
    for at in range(tokens.shape[1]):
        written = np.where(np.arange(tokens.shape[1]) < at, tokens, 0)
        obs = {"source": tf.constant(source), "written": tf.constant(written)}
        allowed = allowed_tokens(obs["source"], obs["written"], network.vocabulary).numpy()
        logits = np.where(allowed, network(obs)[0], -np.inf)
        ends.append((np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True))[:, END])
        logits[:, END] = -np.inf
        np.testing.assert_array_equal(logits.argmax(axis=1), tokens[:, at])
    assert np.mean(ends) == pytest.approx(0.2, abs=1e-4)
    assert rewriter.vocabulary.size == network.vocabulary > SPECIAL


def test_what_does_not_fit_is_refused(folder, tmp_path):
    texts = shutil.copytree(folder / "plain", tmp_path / "texts")
    saved = json.loads((texts / "rewriter.json").read_text("utf-8"))
    (texts / "rewriter.json").write_text(json.dumps(saved | {"target": "texts"}))
    helpful = folder / "helpful"
    for changes, collection, message in (
        ({"fine_tune": None}, helpful, "fine_tune is None"),
        ({"fine_tune": str(tmp_path)}, helpful, "is no run"),
        ({}, write_animals(tmp_path / "animals"), "has 0 of the .* terms of animals"),
        ({"metric": "ndgc@10"}, helpful, "ndcg"),
        ({"fine_tune": str(texts)}, helpful, "writes texts"),
    ):
        with pytest.raises(ValueError, match=message):
            FineTuning(settings(folder, **changes), collection)
