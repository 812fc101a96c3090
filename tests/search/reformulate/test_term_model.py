import sys

import numpy as np
import pytest

from kytolly.search.index.bm25 import BM25Index
from kytolly.search.reformulate.baselines import evaluate
from kytolly.search.reformulate.query import Query
from kytolly.search.reformulate.term_model import (
    TermExamples,
    TermModel,
    boosted_trees,
    fit_term_model,
    term_examples,
    term_features,
    with_threshold,
)
from tests.search.reformulate.test_baselines import TEXTS, Words


@pytest.fixture(scope="module")
def index():
    return BM25Index(TEXTS, Words())


def query(hint=(0.0, 0.0, 0.0), relevant=(2,), number=0):
    return Query(
        number=number,
        weights={"q": 1.0},
        candidates=["a", "b", "c"],
        candidate_features=np.array(hint, np.float32)[:, np.newaxis],
        state_features=np.array([7.0], np.float32),
        vector=np.zeros(1, np.float32),
        relevant=np.array(relevant, np.int64),
    )


class Hint:
    """Takes the candidate's own feature for the gain."""

    def predict(self, features):
        return features[:, 0]


def test_features_are_the_candidates_and_the_querys():
    np.testing.assert_array_equal(term_features(query((1, 2, 3))), [[1, 7], [2, 7], [3, 7]])


def test_it_adds_the_best_that_are_worth_it():
    model = TermModel(Hint(), weight=0.3, threshold=0.15)
    assert model(query((0.2, 0.1, 0.4))) == {"q": 1.0, "c": 0.3, "a": 0.3}
    assert model(query((0.1, 0.15, 0.0))) == {"q": 1.0}
    most = TermModel(Hint(), terms=2)
    assert list(most(query((0.2, 0.1, 0.4)))) == ["q", "c", "a"]


def test_examples_are_the_changes_of_the_metric(index):
    examples = term_examples([query((1, 2, 3))], index, "mrr@10", weight=3.0)
    # Typed: documents 1, 0, 2. "a" at weight 3 puts document 0 or 2 first.
    rows = {row[0]: gain for row, gain in zip(examples.features, examples.gain, strict=True)}

    def value(weights):
        return evaluate(lambda _: weights, [query()], index, "mrr@10")[0]

    for hint, term in zip((1.0, 2.0, 3.0), "abc", strict=True):
        expected = value({"q": 1.0, term: 3.0}) - value({"q": 1.0})
        assert rows[hint] == pytest.approx(expected, abs=1e-6)
    assert examples.features.shape == (3, 2)


def test_the_threshold_is_tuned_on_dev(index):
    # "a" helps the first query. In the second "b" lifts document 0 above the relevant one.
    dev = [query((0.04, 0.01, 0.01), relevant=(2,)), query((0.0, 0.01, 0.01), relevant=(1,))]
    model = with_threshold(TermModel(Hint(), weight=3.0), dev, index)
    values = evaluate(model, dev, index)
    assert values.mean() > evaluate(TermModel(Hint(), weight=3.0), dev, index).mean()
    assert model.threshold == 0.03  # the highest that lets "a" pass


def test_trees_find_which_feature_matters():
    pytest.importorskip("lightgbm")
    generator = np.random.default_rng(0)
    features = generator.uniform(-1, 1, (3000, 4)).astype(np.float32)
    gain = 0.1 * (features[:, 2] > 0.2) - 0.05
    predicted = boosted_trees(TermExamples(features, gain)).predict(features)
    assert np.corrcoef(predicted, gain)[0, 1] > 0.95


def test_a_model_fitted_on_small_data_runs_whole(index):
    pytest.importorskip("lightgbm")
    train = [query((1, 0, 0), number=number) for number in range(400)]
    model = fit_term_model(train, train[:2], index, weight=3.0)
    assert (
        evaluate(model, train[:2], index).mean()
        > evaluate(lambda q: q.weights, train[:2], index)[0]
    )


def test_a_missing_lightgbm_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "lightgbm", None)
    with pytest.raises(ModuleNotFoundError, match=r"kytolly\[benchmark\]"):
        boosted_trees(TermExamples(np.zeros((1, 1)), np.zeros(1)))
