"""A classifier from a file of texts to the predictions of its run."""

import dataclasses
import io
import json
import shutil
import zipfile
from pathlib import Path

import h5py
import numpy as np
import pytest

pytest.importorskip("sklearn")
pytest.importorskip("wordllama")

from kytolly.model.dqn_mlp import DQNMLP
from kytolly.search.config.classifier import ClassifierConfig
from kytolly.search.model.text_classifier import TokenBag
from kytolly.search.text.classifier import TextClassifier, inverse_document_frequencies
from kytolly.search.text.outputs import length_batches
from kytolly.search.text.rows import Ragged
from kytolly.search.text.train_classifier import train_classifier
from kytolly.search.text.vocabulary import BytePairs
from tests.search.text.labeled_files import write_labeled
from tests.test_examples import PYTHON_BLOCK

TINY = ClassifierConfig(
    batch_size=16,
    num_buckets=1,
    total_updates=16,
    evaluation_interval_updates=8,
    log_interval_updates=8,
    updates_per_call=8,
    learning_rate=1e-2,
    filters=8,
    max_length=16,
    train_embedding=False,
    xla=False,
    seed=3,
)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("classifier")
    data = write_labeled(folder / "a.csv")
    summary, lines = train_classifier(TINY, data, folder / "run", progress=False)
    return folder / "run", summary, lines


def test_a_run_learns_and_holds_its_report(run):
    folder, summary, lines = run
    assert summary["test"]["macro_f1"] > 0.9 and summary["evaluation"]["macro_f1"] > 0.9
    assert summary["classes"] == ["food", "traffic"] and sum(summary["texts"].values()) == 200
    assert json.loads((folder / "result.json").read_text("utf-8"))["test"] == summary["test"]
    assert lines[1].startswith("food") and lines[1].split()[-1].isdigit()
    names = ("confusion_matrix.png", "confusion_matrix.csv", "class_metrics.csv", "f1_curve.png")
    assert all((folder / name).stat().st_size for name in (*names, "best.keras", "config.yaml"))
    header = (folder / "metrics.csv").read_text("utf-8").splitlines()[0]
    assert "evaluation_macro_f1" in header and "evaluation_training_macro_f1" in header


def test_only_the_tokens_of_training_texts_learn_and_take_room(tmp_path):
    data, folder = write_labeled(tmp_path / "a.csv"), tmp_path / "run"
    cfg = dataclasses.replace(TINY, train_embedding=True, total_updates=2, pair_buckets=64)
    train_classifier(cfg, data, folder, progress=False)
    classifier = TextClassifier.load(folder)
    network, vocabulary = classifier.network, classifier.vocabulary
    assert vocabulary.size == 32_000 and network.embedding.embeddings.shape[0] < 40
    # 40 x 256 vectors, 3 x 256 x 8 products and the rest: 32,000 x 256 would be 8 million.
    assert sum(np.prod(one.shape) for one in network.trainable_variables) < 20_000
    table = vocabulary.first_vectors()
    vectors = np.asarray(network.embedding(vocabulary.encode(["sweet", "volcano"])[1]))
    expected = table[vocabulary.encode(["volcano"])[0]]
    np.testing.assert_allclose(vectors, expected, rtol=1e-3)  # in float16
    weights = [path.stat().st_size for path in folder.rglob("ckpt-*.data-*")]
    assert weights and max(weights) < 40e6


@pytest.mark.learning
def test_a_run_whose_tokens_all_learn_is_loaded_as_before_and_not_resumed(tmp_path, monkeypatch):
    data, folder = write_labeled(tmp_path / "a.csv"), tmp_path / "run"
    cfg = dataclasses.replace(TINY, train_embedding=True, total_updates=2, pair_buckets=64)
    with monkeypatch.context() as patch:
        before = classmethod(lambda cls, *texts: (cls(), None, list(texts)))
        patch.setattr(BytePairs, "seen_first", before)
        train_classifier(cfg, data, folder, progress=False)
    with zipfile.ZipFile(folder / "best.keras") as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    config = json.loads(parts["config.json"])
    del config["config"]["seen"]  # version 0.2 had no such argument, and keras.layers.Embedding
    with zipfile.ZipFile(folder / "best.keras", "w") as archive:
        for name, part in {**parts, "config.json": json.dumps(config)}.items():
            archive.writestr(name, part)
    with h5py.File(io.BytesIO(parts["model.weights.h5"])) as weights:
        assert weights["embedding/vars/0"].shape == (32_000, 256)
    assert len(TextClassifier.load(folder).predict(["the sweet apple"])) == 1
    longer = dataclasses.replace(cfg, total_updates=4)
    with pytest.raises(ValueError, match="was saved by another configuration") as refusal:
        train_classifier(longer, data, folder, resume=True, progress=False)
    assert "\n" not in str(refusal.value)


def test_the_run_predicts_the_same_alone_and_among_others(run):
    classifier = TextClassifier.load(run[0])
    texts = ["the sweet apple", "a wheel on the road", "", "fruit tree " * 50, "half a \ud800"]
    found = classifier.predict(texts)
    assert [one.label for one in found[:2]] == ["food", "traffic"] and found[3].label == "food"
    together = classifier.probabilities(texts)
    np.testing.assert_allclose(together.sum(axis=1), 1.0, atol=1e-5)
    for place, text in enumerate(texts):
        np.testing.assert_allclose(classifier.probabilities([text])[0], together[place], atol=1e-5)
    assert classifier.predict([]) == []


def test_only_the_first_tokens_are_read(run):
    classifier = TextClassifier.load(run[0])
    text = "fruit " * 40  # 16 tokens are read
    np.testing.assert_array_equal(
        classifier.probabilities([text]), classifier.probabilities([text + "engine road " * 40])
    )


def test_a_run_of_another_kind_or_tokenizer_is_refused(run, tmp_path):
    (tmp_path / "config.yaml").write_text("settings: {}\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"classifier\.json cannot be read"):
        TextClassifier.load(tmp_path)
    for name in ("best.keras", "classifier.json"):
        (tmp_path / name).write_bytes((run[0] / name).read_bytes())
    vocabulary = json.loads((run[0] / "vocabulary.json").read_text("utf-8"))
    (tmp_path / "vocabulary.json").write_text(json.dumps(vocabulary | {"identity": "b"}), "utf-8")
    with pytest.raises(ValueError, match="is the vocabulary of another tokenizer"):
        TextClassifier.load(tmp_path)


@pytest.mark.parametrize(
    "classes, max_length",
    [("ab", 16), (["a", 1], 16), ([], 16), ({"a": 1, "b": 2}, 16), (None, 16), (["a"], 16)]
    + [(["a", "b"], one) for one in (-1, 0, "16", 1.5, 10**400, None, [16], True)],
    ids=lambda value: f"{value!s:.20}",
)
def test_what_is_no_description_of_classes_is_refused(run, classes, max_length, tmp_path):
    folder = shutil.copytree(run[0], tmp_path / "run")
    text = json.dumps({"classes": classes, "max_length": max_length})
    (folder / "classifier.json").write_text(text)
    with pytest.raises(ValueError, match=r"classifier\.json") as error:
        TextClassifier.load(folder)
    assert "\n" not in str(error.value)


def test_the_network_of_another_kind_of_run_is_refused(run, tmp_path):
    folder = shutil.copytree(run[0], tmp_path / "run")
    network = DQNMLP(2, (8,))
    network.build((None, 4))
    network.save(folder / "best.keras")
    with pytest.raises(ValueError, match="DQNMLP, expected a TextClassifierNetwork"):
        TextClassifier.load(folder)


def test_the_python_of_the_page_runs(run, tmp_path, monkeypatch, capsys):
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "NAME").symlink_to(run[0])
    monkeypatch.chdir(tmp_path)
    page = (Path(__file__).parents[3] / "docs" / "text_classifier.md").read_text("utf-8")
    blocks = PYTHON_BLOCK.findall(page)
    assert len(blocks) == 2
    for block in blocks:
        exec(compile(block, "text_classifier.md", "exec"), {})
    assert "name='german'" in capsys.readouterr().out


def test_batches_hold_every_row_once_and_fit():
    lengths = np.array([0, 1, 33, 32, 64, 65, 200])
    batches = [(rows.tolist(), length) for rows, length in length_batches(lengths)]
    assert batches == [([0, 1, 3], 32), ([2, 4], 64), ([5], 96), ([6], 224)]


def test_idf_counts_texts_and_not_occurrences():
    found = inverse_document_frequencies(TokenBag(10, 8, 2), Ragged.of([[3, 7, 7], [3], []]))
    expected = np.zeros(18)
    expected[3] = 1 + np.log(4 / 3)  # in 2 of 3 texts
    expected[[7, 10, 14]] = 1 + np.log(4 / 2)  # in one: 7, and the pairs (7, 7) and (3, 7)
    np.testing.assert_allclose(found, expected, rtol=1e-6)
