"""The gain of a change as its rankings let expect it, and queries that are left as they are."""

import math
import re

import numpy as np
import pytest

from kytolly.search.reformulate.gain_fitting import (
    Change,
    calibration,
    ensemble,
    fit_relevance,
    gain_test,
    logistic_regression,
    margin_of,
)
from kytolly.search.reformulate.gain_model import (
    DOCUMENT_FEATURES,
    GainModel,
    RankedDocuments,
    discounts,
    gain_of_probabilities,
    ranked_documents,
)
from kytolly.search.reformulate.reformulator import NOTHING_HELPS, Reformulator
from kytolly.search.scripts.fit_gain_model import own_limit, separation

WIDE = 2 * len(DOCUMENT_FEATURES)


def model(margins=(0.0, 0.0), points=(-1.0, 1.0), to=(-1.0, 1.0)):
    return GainModel(
        mean=np.zeros((1, WIDE)),
        scale=np.ones((1, WIDE)),
        weights=np.eye(WIDE)[[DOCUMENT_FEATURES.index("score after")]],
        bias=np.zeros(1),
        plain_from=np.array(points),
        plain_to=np.array(to),
        fused_from=np.array([-1.0, 1.0]),
        fused_to=np.array([0.25, 0.25]),
        margins=np.array(margins),
    )


def ranked(features, before, after):
    return RankedDocuments(
        np.arange(len(features)), np.array(features), np.array(before), np.array(after)
    )


def test_the_gain_is_that_of_the_dcg_under_the_probabilities():
    second = 1.0 / math.log2(3)  # what the second place adds; the first adds 1
    np.testing.assert_allclose(
        discounts(np.array([0, 1, 9, 10])), [1, second, 1 / math.log2(11), 0]
    )
    swapped = ranked(np.zeros((2, WIDE)), [1.0, second], [second, 1.0])
    # One document is expected to be relevant: the ideal DCG is 1. 0.8 falls, 0.2 rises.
    gain = gain_of_probabilities(np.array([0.8, 0.2]), swapped)
    assert gain == pytest.approx((0.2 - 0.8) * (1.0 - second))
    # Two are: the ideal is 1 + second, and nothing changes.
    assert gain_of_probabilities(np.array([1.0, 1.0]), swapped) == pytest.approx(0.0)
    risen = ranked(np.zeros((2, WIDE)), [1.0, 0.0], [1.0, second])
    assert gain_of_probabilities(np.array([1.0, 1.0]), risen) == pytest.approx(
        second / (1 + second)
    )


def test_expected_gains_are_calibrated_for_each_kind_of_search():
    found = ranked(np.zeros((2, WIDE)), [1.0, 0.0], [1.0, 0.5])  # probabilities 0.5: gain 0.25
    calibrated = model(points=(0.0, 0.5), to=(0.0, 0.1))
    assert calibrated.uncalibrated_gain(found) == pytest.approx(0.25)
    assert calibrated.expected_gain(found, 0.0) == pytest.approx(0.05)
    assert calibrated.expected_gain(found, 1.0) == pytest.approx(0.25)
    assert model((0.1, 0.2)).margin(0.0) == 0.1 and model((0.1, 0.2)).margin(0.5) == 0.2


def test_what_regressions_disagree_on_is_expected_less_of():
    certain, doubtful = model(), model()._replace(bias=np.array([-math.log(3.0)]))
    found = ranked(np.zeros((2, WIDE)), [1.0, 0.0], [1.0, 0.5])
    # Probabilities 0.5 and 0.25, of both documents: gains 0.5 * 0.5 / 1 and 0.25 * 0.5 / 1.
    assert doubtful.uncalibrated_gain(found) == pytest.approx(0.125)
    both = ensemble([certain, doubtful])
    # Their mean is 0.1875, and their standard deviation 0.0625, half of which is lost.
    assert both.uncalibrated_gain(found) == pytest.approx(0.1875 - 0.5 * 0.0625)
    assert ensemble([doubtful] * 3).uncalibrated_gain(found) == pytest.approx(0.125)


def test_a_model_is_saved_whole(tmp_path):
    model().save(tmp_path / "gains.npz")
    for one, other in zip(GainModel.read(tmp_path / "gains.npz"), model(), strict=True):
        np.testing.assert_array_equal(one, other)
    packaged = GainModel.read()
    assert packaged.weights.shape == (10, WIDE) and (packaged.margins >= 0).all()
    for points in (packaged.plain_from, packaged.plain_to, packaged.fused_from, packaged.fused_to):
        assert (np.diff(points) >= 0).all()


def test_a_model_of_an_earlier_version_had_one_regression(tmp_path):
    earlier = [part[0] for part in model()[:4]]
    GainModel(*earlier, *model()[4:]).save(tmp_path / "gains.npz")
    for one, other in zip(GainModel.read(tmp_path / "gains.npz"), model(), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    "damage",
    [
        {"weights": np.zeros((1, WIDE - 1))},
        {"weights": np.zeros((2, WIDE))},
        {"bias": np.array([np.nan])},
        {"scale": np.zeros((1, WIDE))},
        {"fused_from": np.array([1.0, 0.0])},
        {"plain_to": np.array([0.0])},
        {"margins": np.zeros(3)},
    ],
)
def test_a_damaged_model_is_refused_in_one_line(tmp_path, damage):
    assert GainModel.of_run(tmp_path) is None
    model()._replace(**damage).save(tmp_path / "gains.npz")
    with pytest.raises(ValueError, match=r"gains\.npz cannot be used \(.*: train again") as error:
        GainModel.of_run(tmp_path)
    assert "\n" not in str(error.value)


def test_the_features_are_those_of_both_rankings(reformulator):
    context, text = reformulator.context, "key12 noise1"
    collection = context.collection.with_queries(("",), (text,))
    (query,) = context.mine(collection, [0], [])
    changed = {**query.weights, query.candidates[0]: 0.5}
    for fusion in (0.0, 0.7):
        found = ranked_documents(context, query, text, changed, fusion)
        before, after = context.rank_all(collection, [0], ([query.weights], [changed]), fusion, 10)
        for hits, discount in ((before, found.discount_before), (after, found.discount_after)):
            places = [context.collection.doc_index[hit.doc_id] for hit in hits[0]]
            by_document = dict(zip(found.documents.tolist(), discount.tolist(), strict=True))
            expected = {doc: 1 / math.log2(place + 2) for place, doc in enumerate(places)}
            assert by_document == pytest.approx({d: expected.get(d, 0.0) for d in by_document})
            assert expected.keys() <= by_document.keys()
        features = dict(zip(DOCUMENT_FEATURES, found.features.T, strict=False))
        held = [set(context.index.tokenizer(context.collection.texts[d])) for d in found.documents]
        assert features["all typed words"].tolist() == [{"key12", "noise1"} <= h for h in held]
        assert features["rare typed words"].tolist() == ["key12" in h for h in held]
        assert np.isfinite(found.features).all() and found.features.shape[1] == WIDE


def test_a_query_is_changed_only_where_it_pays(reformulator):
    def reformulated(gains):
        changed = Reformulator(
            reformulator.context, reformulator.scorer, reformulator.choices, gains=gains
        )
        return changed.reformulate("key12 noise1")

    usual = reformulated(None)
    paying = reformulated(model((-9.0, -9.0), (-9.0, 9.0), (0.125, 0.125)))
    assert paying.added == usual.added and paying.expected_gain == 0.125
    left = reformulated(model((0.125, 9.0), (-9.0, 9.0), (0.125, 0.125)))
    assert left.reason == NOTHING_HELPS and left.added == () and left.expected_gain == 0.125
    assert left.after == left.before == usual.before


def test_the_regression_is_scikit_learns():
    linear_model = pytest.importorskip("sklearn.linear_model")
    rng = np.random.default_rng(0)
    features, weight = rng.standard_normal((200, 3)), rng.random(200) + 0.5
    labels = features[:, 0] - features[:, 1] + rng.standard_normal(200) > 0.7
    known = linear_model.LogisticRegression(C=0.1, tol=1e-8).fit(features, labels, weight)
    weights, bias = logistic_regression(features, labels.astype(float), weight, 10.0)
    np.testing.assert_allclose(weights, known.coef_[0], atol=1e-3)
    assert bias == pytest.approx(known.intercept_[0], abs=1e-3)


def test_what_a_margin_leaves_is_counted():
    # Above 0.15 are +1 and -1 (hurt); the other hurt query and +3 are left.
    found = gain_test(np.array([0.1, 0.2, 0.3, 0.0]), np.array([3.0, 1, -1, -2]), 0.15)
    assert (found.gain, found.hurt, found.kept_gain, found.kept_hurt) == (0.25, 0.5, 0.0, 0.25)
    assert found.changed == 0.5 and found.correlation == pytest.approx(0.0, abs=0.2)
    assert "gain +0.2500 -> +0.0000, hurt 50.0% -> 25.0% where 50%" in found.text()
    assert gain_test(np.zeros(2), np.ones(2), 0.0).correlation == 0.0


def random_changes(rng, noise=0.3):
    """60 changes; documents are relevant by their third feature and so much noise."""
    changes = []
    for _ in range(60):
        features = rng.standard_normal((6, WIDE)).astype(np.float32)
        relevant = features[:, 3] + noise * rng.standard_normal(6) > 0.5
        before, after = (discounts(rng.permutation(6)) for _ in range(2))
        gain = float(relevant @ (after - before)) / 2
        documents = RankedDocuments(np.arange(6), features, before, after)
        changes.append(Change(documents, relevant, gain))
    return changes


def test_what_features_could_tell_of_relevance_is_known_for_a_collection():
    # Of 2 relevant and 2 other documents, 3 of 4 pairs are in order.
    scores, relevant = np.array([0.1, 0.7, 0.3, 0.9]), np.array([False, False, True, True])
    assert separation(scores, relevant) == pytest.approx(0.75)
    found = []
    for noise in (0.1, 100.0):
        text = own_limit(random_changes(np.random.default_rng(0), noise))
        correlation = float(re.search(r"correlation ([+-][\d.]+);", text)[1])
        found.append((correlation, float(text.rpartition(" ")[2])))
    (told, apart), (untold, together) = found
    assert told > 0.7 and apart > 0.9
    assert abs(untold) < 0.3 and 0.4 < together < 0.6
    same = [change._replace(gain=0.0) for change in random_changes(np.random.default_rng(0))]
    assert own_limit(same) == "of its own other queries: no change matters"


def test_relevance_is_learned_and_half_of_the_hurt_queries_are_left():
    rng = np.random.default_rng(0)
    parts = [random_changes(rng) for _ in range(2)]
    learned = fit_relevance(parts[:1])
    expected = np.array([learned.uncalibrated_gain(change.ranked) for change in parts[1]])
    gain = np.array([change.gain for change in parts[1]])
    assert np.corrcoef(expected, gain)[0, 1] > 0.6
    at, to = calibration(expected, gain, np.ones(60))
    assert (np.diff(to) >= 0).all() and to[0] < 0 < to[-1] and len(at) == 2
    # From the top: 0.4, 0.3 (hurt), 0.2, 0.1 (hurt), -0.1: above 0.1 one of two is hurt.
    found = margin_of(
        np.array([0.1, 0.4, 0.3, -0.1, 0.2]), np.array([-1, 1, -1, 1, 1.0]), np.ones(5)
    )
    assert found == pytest.approx(0.1)
    assert margin_of(np.array([0.3, 0.2]), np.ones(2), np.ones(2)) == 0.0  # nobody is hurt
