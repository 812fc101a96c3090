"""The gains that a run expects of its changes: fitted on train queries that were held out."""

import dataclasses

import numpy as np
import pytest

from kytolly.search.reformulate import run_gains
from kytolly.search.reformulate.choice import LOWEST, Choice, read_choices
from kytolly.search.reformulate.gain_fitting import Change
from kytolly.search.reformulate.gain_model import (
    DOCUMENT_FEATURES,
    GainModel,
    RankedDocuments,
    discounts,
)
from kytolly.search.reformulate.reformulator import Reformulator
from kytolly.search.reformulate.report import lines as report_lines
from kytolly.search.reformulate.run_gains import (
    Expectation,
    cross_calibrated,
    cross_fitted,
    fit_run_gains,
    paying_margin,
)
from kytolly.search.reformulate.train import train
from tests.search.reformulate.tiny_collection import make_options

WIDE = 2 * len(DOCUMENT_FEATURES)


def changes(count, seed=0):
    """Relevance depends on one feature."""
    rng, made = np.random.default_rng(seed), []
    for _ in range(count):
        features = rng.standard_normal((6, WIDE)).astype(np.float32)
        relevant = features[:, 3] > 0.5
        before, after = (discounts(rng.permutation(6)) for _ in range(2))
        ranked = RankedDocuments(np.arange(6), features, before, after)
        made.append(Change(ranked, relevant, float(relevant @ (after - before)) / 2))
    return made


def test_no_query_is_expected_by_a_model_that_has_seen_its_part():
    made, part = changes(60), np.arange(60) % 3
    (expected,) = cross_fitted([made], part)
    gain = np.array([change.gain for change in made])
    assert np.corrcoef(expected, gain)[0, 1] > 0.6
    # The judgments of part 0 say nothing about what is expected of part 0.
    other = [
        change._replace(relevant=~change.relevant) if number % 3 == 0 else change
        for number, change in enumerate(made)
    ]
    (again,) = cross_fitted([other], part)
    np.testing.assert_array_equal(again[part == 0], expected[part == 0])
    assert (again[part != 0] != expected[part != 0]).all()
    calibrated = cross_calibrated(expected, gain, part)
    changed = cross_calibrated(expected, np.where(part == 0, -gain, gain), part)
    np.testing.assert_array_equal(changed[part == 0], calibrated[part == 0])
    assert (changed[part != 0] != calibrated[part != 0]).any()


def test_the_margin_leaves_most_of_the_gain_and_no_more_queries_than_that_takes():
    gain = np.array([1.0, 1.0, 1.0, -0.5, -0.5, 0.0])
    sure = np.array([0.9, 0.8, 0.7, -0.3, 0.2, 0.1])

    def margin(expected, gain, times):
        return Expectation(expected, gain, times * gain.mean())

    assert paying_margin([margin(sure, gain, 1.0)]) == 0.7  # two gains of 1 are as much as all
    assert paying_margin([margin(sure, gain, 1.05)]) == 0.7
    assert paying_margin([margin(sure, gain, 1.1)]) == 0.2  # it takes all three, and no other
    assert paying_margin([margin(sure, gain, 2.0)]) == LOWEST
    assert paying_margin([margin(-sure, gain, 1.0)]) == LOWEST
    assert paying_margin([margin(sure, -gain, 1.0)]) == 0.9  # nothing is gained: nothing is changed
    # Two splits count together: 0.9, 0.8 and 0.7 of the one and 0.55 of the other are 4 of 4.
    both = [margin(sure, gain, 1.0), margin(sure - 0.35, gain, 1.0)]
    assert paying_margin(both) == pytest.approx(0.45)
    assert paying_margin([margin(sure, gain, 1.0), margin(-sure, gain, 1.0)]) == LOWEST


@pytest.fixture(scope="module")
def gated(collection, tmp_path_factory):
    """A run that gates by a model of gains, and its summary."""
    folder = tmp_path_factory.mktemp("gated") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KYTOLLY_XLA", "off")
        patch.setattr(run_gains, "FEW_QUERIES", 20)
        options = make_options(collection, {"fusion": 0.5}, epochs=0)
        return folder, train(options, log_dir=folder, test=True)


def test_a_run_holds_what_it_expects(gated):
    folder, summary = gated
    model, choices = GainModel.of_run(folder), read_choices(folder)
    assert summary["gains"].keys() == {"plain", "fused"} and model is not None
    for kind, fusion in (("plain", 0.0), ("fused", 0.5)):
        row = summary["gains"][kind]
        for split, queries in (("train", 24), ("dev", 18)):
            assert row[split]["margin"] == model.margin(fusion)
            assert row[split]["queries"] == queries
            assert row[split]["kept_gain"] >= 0.95 * row[split]["gain"] > 0.1
        assert (folder / f"expected_gains_{kind}.png").stat().st_size > 10_000
        assert sum(row["bins"]["queries"]) == 24
        assert model.margin(fusion) == LOWEST or choices.at(fusion).margin == LOWEST
    printed = "\n".join(report_lines(summary))
    for split in ("train", "dev"):
        assert printed.count(f", {split}: correlation") == 2
    assert printed.count("Expected gains of agent") == 2


def test_a_loaded_run_changes_where_it_pays(gated):
    folder, summary = gated
    agent = Reformulator.load(folder)
    tested = summary["test"]["gains"]["agent_fused"]
    assert tested["queries"] == 9 and tested["margin"] == agent.gains.margin(0.5)
    systems = summary["test"]["systems"]["agent_fused"]["ndcg@10"]
    assert tested["kept_gain"] * 9 / 10 == pytest.approx(systems["over_fused"]["difference"])
    assert agent.reformulate("key12 noise1").added
    agent.gains = agent.gains._replace(margins=np.full(2, 9.0))
    left = agent.reformulate("key12 noise1")
    assert not left.added and left.after == left.before
    assert left.expected_gain == Reformulator.load(folder).reformulate("key12 noise1").expected_gain


def test_few_queries_and_no_change_have_no_model(gated):
    folder, _ = gated
    context = Reformulator.load(folder).context
    assert fit_run_gains(context, [], None) is None
    unused = [dataclasses.make_dataclass("One", ["choice"])(Choice(0.0))]
    assert fit_run_gains(context, unused, None) is None
