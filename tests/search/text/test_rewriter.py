"""A rewriter from a collection to the terms of its run."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

pytest.importorskip("wordllama")

from kytolly.policy.supervised import cross_entropy
from kytolly.search.config.rewriter import RewriterConfig
from kytolly.search.index.bm25 import BM25Index
from kytolly.search.index.corpus import load_collection
from kytolly.search.index.tokens import EnglishTokenizer
from kytolly.search.text.rewriter import SAMPLING_SEED, Rewriter, RewriterTask
from kytolly.search.text.rewriting_pairs import (
    JudgedQuery,
    best_terms,
    first_words,
    frequent_terms,
    judged_queries,
    mined_terms,
    share_of_best,
)
from kytolly.search.text.rewriting_words import index_terms, word_vectors
from kytolly.search.text.teacher_forcing import decoder_inputs
from kytolly.search.text.train_rewriter import lines, train_rewriter
from kytolly.search.text.vocabulary import END, UNKNOWN, Words
from tests.search.text.collection_files import write_animals, write_collection_files
from tests.test_examples import PYTHON_BLOCK

DOCS = [
    "green parsers",
    "parsing trees parse trees green",
    "green grammars",
    "tree banks green",
    "sea",
    "a shore",
    "far",
]
TINY = RewriterConfig(
    batch_size=12,
    total_updates=60,
    num_buckets=1,
    units=16,
    max_source_length=5,
    max_target_length=2,
    learning_rate=2e-2,
    dropout=0.1,
    evaluation_interval_updates=30,
    log_interval_updates=30,
    updates_per_call=10,
    held_out_folds=0,
    xla=False,
)


@pytest.fixture(scope="module")
def animals(tmp_path_factory):
    return load_collection(write_animals(tmp_path_factory.mktemp("animals") / "a"))


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("rewriter")
    summary, _ = train_rewriter(
        TINY, write_animals(folder / "animals"), folder / "run", progress=False
    )
    return folder, summary


def test_a_run_learns_what_the_first_search_cannot_find(run):
    folder, summary = run
    assert summary["test"]["term_share"] > 0.8 > summary["test"]["share_mined"] == 0.0
    assert summary["test"]["share_mined_and_written"] == summary["test"]["term_share"]
    assert summary["queries"] == {"train": 18, "dev": 6, "test": 6}
    assert summary["held_out"] is None and not (folder / "run" / "held_out_terms.json").exists()
    assert json.loads((folder / "run" / "result.json").read_text("utf-8")) == summary
    assert f"{summary['test']['term_share']:.3f}" in lines(summary)[1]
    header = (folder / "run" / "metrics.csv").read_text("utf-8").splitlines()[0]
    assert "evaluation_term_share" in header and "token_accuracy" in header


def test_the_run_proposes_the_same_alone_and_among_others(run):
    rewriter = Rewriter.load(run[0] / "run")
    queries = ["any fish", "", "an unknown one", "the cat"]
    together = rewriter.terms_of(queries)
    assert {one.term for one in together[0]} == {"being4", "limb4"}
    assert all(one.log_probability < 0.0 for row in together for one in row)
    for query, row in zip(queries, together, strict=True):
        alone = rewriter.terms(query)
        assert [one.term for one in alone] == [one.term for one in row]
        np.testing.assert_allclose([a[1] for a in alone], [b[1] for b in row], atol=1e-4)
    assert not {"being4", "limb4"} & {one.term for one in rewriter.terms("being4 limb4 fish")}
    assert rewriter.terms_of([]) == rewriter.texts([]) == []


def test_a_run_of_another_kind_is_refused(tmp_path):
    (tmp_path / "config.yaml").write_text("settings: {}\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"rewriter\.json cannot be read"):
        Rewriter.load(tmp_path)


def test_texts_have_a_row_for_each_relevant_document_and_an_end(animals):
    cfg = RewriterConfig(target="texts", max_target_length=2, pretrained=False, units=4, xla=False)
    task = RewriterTask(animals, cfg)
    source, target = task.pairs["train"].values()
    assert len(source.lengths) == len(target.lengths) == 36
    assert task.vocabulary.decode(source.tokens[:2]) == "see cat"
    assert (target.lengths == 3).all() and (target.tokens[2::3] == END).all()  # 2 words of 2 or 3
    network = task.make_network(cfg)
    assert set(task.evaluate(network)) == {"token_accuracy", "term_share"}


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_scheduled_sampling_changes_the_loss_and_both_ways_have_gradients(animals, share):
    cfg = RewriterConfig(scheduled_sampling=share, dropout=0.0, pretrained=False, units=4)
    task = RewriterTask(animals, cfg)
    network, rows = task.make_network(cfg), task.make_rows(cfg)
    batch = {**rows.example(), "seed": tf.constant([[1, 2]])}
    with tf.GradientTape() as tape:
        loss, metrics = task.loss(network, batch, cfg)
    variables = [weight.value for weight in network.trainable_variables]
    found = tape.gradient(loss, variables)
    assert all(np.any(tf.convert_to_tensor(one).numpy()) for one in found)
    logits = network(batch["source"], tf.pad(batch["target"][:, :-1], [[0, 0], [1, 0]]) + 0)
    assert logits.shape[-1] == task.vocabulary.size and 0.0 <= metrics["token_accuracy"] <= 1.0
    plain, _ = task.loss(network, batch, RewriterConfig(scheduled_sampling=0.0, dropout=0.0))
    assert (abs(float(plain - loss)) > 1e-6) == bool(share)


def test_guesses_where_they_are_needed_are_those_of_guesses_everywhere(animals):
    share = 0.5
    cfg = RewriterConfig(scheduled_sampling=share, dropout=0.0, pretrained=False, units=4)
    task = RewriterTask(animals, cfg)
    network, seed = task.make_network(cfg), tf.constant([[1, 2]])
    source, target = (task.make_rows(cfg).example()[name] for name in ("source", "target"))
    own = tf.random.stateless_uniform(target.shape, seed[0] + [SAMPLING_SEED, 0]) < share
    guesses = tf.argmax(network(source, decoder_inputs(target)), -1, output_type=tf.int32)
    inputs = decoder_inputs(tf.where(own & (target != 0), guesses, target))
    assert tf.reduce_any(inputs != decoder_inputs(target))
    expected = cross_entropy(network(source, inputs), target, mask=target != 0)
    found, _ = task.loss(network, {"source": source, "target": target, "seed": seed}, cfg)
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_the_best_terms_are_frequent_in_the_documents_and_rare_elsewhere():
    index = BM25Index(DOCS)
    # Most documents have "green"; "bank" and the stem "pars" are in one only.
    assert best_terms(index, [1, 3], without=[], count=3) == ["tree", "green"]
    assert best_terms(index, [1, 3], without=["tree", "unknown"], count=3) == ["green"]
    assert best_terms(index, [1, 3], without=[], count=1) == ["tree"]
    assert best_terms(index, [], without=[], count=3) == []


def test_queries_leave_themselves_out_and_mining_too(tmp_path):
    texts = ["red tree", "red bird", "tree bird", "sea", "sea", "far"]
    docs = [(str(number), text) for number, text in enumerate(texts)]
    judged = [("0", "0"), ("0", "2"), ("3", "3")]  # each itself, and 0 one more
    folder = write_collection_files(tmp_path / "a", docs, docs, {"train": judged})
    collection = load_collection(folder, ["train"])
    index = BM25Index(collection.texts)
    (query,) = judged_queries(collection, index, "train", 5)  # the other one has itself only
    assert query == JudgedQuery("red tree", [2], 0, ["bird"])
    assert mined_terms(index, query, 5) == ["bird"]
    assert frequent_terms([query], index, [query._replace(best=["tree", "sea"])], 5) == [["sea"]]


def test_the_share_is_a_mean_over_queries():
    queries = [JudgedQuery("", [], None, best) for best in (["a", "b"], ["c"])]
    assert share_of_best(queries, [["b", "x", "b"], ["y"]]) == 0.25


def test_terms_of_written_words_are_those_of_the_index():
    vocabulary = Words(["parsing", "the", "parses", "trees", "end"])
    tokenizer = EnglishTokenizer()
    tokens = [4, 5, 6, 7, END, 8]
    written = np.stack([tokens, -np.arange(1.0, 7.0)], axis=-1)
    found = index_terms(vocabulary, tokenizer, "a tree", written, are_terms=False)
    assert found == [("pars", -1.0)]  # a stop word, a second form, a term of the query, the end


def test_words_begin_with_the_vectors_of_their_parts():
    vectors = word_vectors(Words(["film", "movie", "quark", "of"]))
    unit = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-9)
    assert unit[4] @ unit[5] > unit[4] @ unit[6] and not vectors[0].any()
    assert np.linalg.norm(vectors[UNKNOWN]) > 0.5 and np.isclose(vectors[4:].std(), 0.1, 1e-3)


def test_documents_are_learned_from_their_first_words(animals):
    assert first_words("What is it? A fish, in water.") == ("What is it?", "A fish, in water.")
    assert first_words("No. It has no end of a sentence") == ("No. It has no", "end of a sentence")
    long = " ".join(map(str, range(30)))
    assert first_words(long)[0] == "0 1 2 3 4 5 6 7"
    assert first_words("one") == ("", "one") and first_words("") == ("", "")
    cfg = dataclasses.replace(TINY, documents=9, pretrained=False, units=4)
    task = RewriterTask(animals, cfg)
    source, target = task.pairs["train"].values()
    assert len(source.lengths) == 18 + 9 and len(task.pairs["dev"]["source"].lengths) == 6
    assert task.vocabulary.decode(target.tokens[-1:])[:4] == "limb"  # after "being", of the same
    assert (
        task.vocabulary.decode(source.tokens[-1:])[-1]
        == task.vocabulary.decode(target.tokens[-1:])[-1]
    )
    texts = RewriterTask(animals, dataclasses.replace(cfg, target="texts"))
    assert len(texts.pairs["train"]["source"].lengths) == 36 + 9
    assert (texts.pairs["train"]["target"].tokens[-1:] == END).all()


@pytest.mark.parametrize(
    "name, value", [("class_weights", "auto"), ("units", 0), ("held_out_folds", 1)]
)
def test_settings_that_mean_nothing_are_refused(name, value):
    with pytest.raises(ValueError, match=f"{name} is "):
        RewriterConfig(**{name: value})


def test_a_collection_without_anything_to_learn_is_refused(tmp_path):
    docs = [(f"d{k}", "x") for k in range(6)]
    queries = [(f"{split}{k}", "x y") for split in ("train", "dev") for k in range(6)]
    judged = {split: [(f"{split}{k}", f"d{k}") for k in range(6)] for split in ("train", "dev")}
    folder = write_collection_files(tmp_path / "a", docs, queries, judged)
    with pytest.raises(ValueError, match="no query of the split train of a has a relevant"):
        RewriterTask(load_collection(folder, ["train", "dev"]), TINY)


def test_the_python_of_the_page_runs(run, tmp_path, monkeypatch, capsys):
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "NAME").symlink_to(run[0] / "run")
    monkeypatch.chdir(tmp_path)
    page = (Path(__file__).parents[3] / "docs" / "query_rewriter.md").read_text("utf-8")
    (block,) = PYTHON_BLOCK.findall(page)
    exec(compile(block, "query_rewriter.md", "exec"), {})
    assert "-" in capsys.readouterr().out
