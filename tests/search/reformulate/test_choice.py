"""What of a network's proposals is used: no more false choices than chance allows."""

import itertools
import json
import math

import keras
import numpy as np
import pytest

from kytolly.search.reformulate import selection
from kytolly.search.reformulate.choice import (
    CHANCE,
    UNTESTED,
    USES,
    Choice,
    Choices,
    HeldOut,
    Selection,
    best_row,
    cross_validated_gain,
    proposals,
    read_choices,
    select,
    select_fusion,
    write_choices,
)
from kytolly.search.reformulate.device_env import DeviceQueries, used_proposals
from kytolly.search.reformulate.network import NumpyScorer, make_scorer
from kytolly.search.reformulate.options import AgentOptions
from kytolly.search.reformulate.query import SearchRules
from kytolly.search.reformulate.selection import make_choice
from kytolly.search.reformulate.warm_start import fit_listwise
from tests.search.reformulate.made_queries import helpful_table

RULES = SearchRules("ndcg@10", 2, 4, 64)


def noise(seed, rows=12, queries=40):
    """Gains of choices that do nothing; they resemble each other, as scales of one network do."""
    rng = np.random.default_rng((7, seed))
    own, shared = rng.normal(size=(rows, queries)), rng.normal(size=queries)
    return 0.1 * (own + shared) * (rng.random(queries) < 0.7)


def test_noise_is_chosen_about_as_often_as_it_may_be():
    found = sum(best_row(noise(seed), CHANCE, seed)[0] is not None for seed in range(200))
    assert 5 <= found <= 30  # 20 are expected


def test_a_clear_gain_is_found_and_the_largest_of_them_taken():
    for seed in range(10):
        gains = noise(seed)
        gains[3] += 0.2
        gains[8] += 0.3
        assert best_row(gains, CHANCE, seed)[0] == 8
        assert best_row(noise(seed) - 0.3, CHANCE, seed)[0] is None


def test_the_chance_is_that_of_the_largest_statistic_over_all_signs():
    gains = np.random.default_rng(0).normal(0.3, 1.0, (3, 9))

    def largest(rows):
        return max(
            row.mean() / math.sqrt(max(np.mean(row**2) - row.mean() ** 2, 1e-12)) for row in rows
        )

    statistic = largest(gains)
    signs = itertools.product((-1.0, 1.0), repeat=9)
    exact = np.mean([largest(gains * np.array(one)) >= statistic - 1e-12 for one in signs])
    assert 0.02 < exact < 0.9
    assert best_row(gains, CHANCE)[1] == pytest.approx(exact, abs=0.04)


def test_one_query_and_no_change_say_nothing():
    assert best_row(np.array([[5.0], [9.0]]), CHANCE) == (None, 1.0)
    assert best_row(np.zeros((3, 50)), CHANCE) == (None, 1.0)
    assert best_row(np.full((1, 3), 0.2), CHANCE)[0] is None  # one sign pattern of eight


def test_the_cross_validated_gain_of_noise_is_about_0_and_the_largest_is_not():
    largest, honest = [], []
    for seed in range(60):
        gains = noise(seed)
        largest.append(gains.mean(axis=1).max())
        honest.append(cross_validated_gain([gains[:6], gains[6:]], [None, None], seed))
    assert np.mean(largest) > 0.02
    assert abs(np.mean(honest)) < 0.2 * np.mean(largest)


def test_the_cross_validated_gain_of_what_always_helps_is_that():
    gains = noise(0) * 0.1
    gains[5] = np.linspace(0.3, 0.5, 40)
    assert cross_validated_gain([gains[:6], gains[6:]], [None, None]) == pytest.approx(0.4)
    assert cross_validated_gain([np.full((6, 1), 0.5)], [None]) == 0.0
    nothing = np.zeros((6, 0))  # no dev queries: those beside them are used
    found = cross_validated_gain([nothing, nothing], [None, gains[:6]])
    assert found == pytest.approx(0.4)


@pytest.fixture(scope="module")
def trained():
    """A network that has learned what helps, and one that has learned nothing."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KYTOLLY_XLA", "off")
        keras.utils.set_random_seed(0)
        table, made = helpful_table(30), []
        for epochs in (150, 0):
            network = make_scorer(table, AgentOptions(hidden_units=(8,), dropout=0.0))
            rows = [np.arange(30)]
            fit_listwise(network, DeviceQueries(table, RULES), rows, epochs, 3e-2, 0)
            made.append(network)
    return made


@pytest.fixture(scope="module")
def dev():
    return DeviceQueries(helpful_table(24, seed=1), RULES)


def test_the_network_that_helps_is_selected(trained, dev):
    good, bad = (NumpyScorer(network) for network in trained)
    found = select([bad, good], dev, 0.0)
    assert found.network == 1 and found.choice.scale > 0 and found.tried == 2 * len(USES)
    assert found.chance <= CHANCE and found.dev_gain > 0.2 and found.changed > 0.5
    alone = select([good], dev, 0.5)
    assert alone.network == 0 and alone.choice.scale > 0 and alone.choice.fusion == 0.5


class Wrong:
    """Weighs the candidates that do not help."""

    def __call__(self, candidates, state):
        weights = np.where(candidates[..., 0] < 0.5, np.float32(1.0), np.float32(0.0))
        return weights, np.zeros(len(candidates), np.float32)


def test_what_harms_is_not_used(dev):
    found = select([Wrong()], dev, 0.0)
    assert found.choice == Choice(0.0) and found.changed == 0.0 and found.dev_gain == 0.0


def test_more_queries_that_a_network_has_not_seen_count_too(trained):
    good, few = NumpyScorer(trained[0]), DeviceQueries(helpful_table(3, seed=2), RULES)
    assert select([good], few, 0.0).choice.scale == 0.0  # three queries are too few
    queries = DeviceQueries(helpful_table(24, seed=1), RULES)
    unseen = HeldOut(queries, [good], np.zeros(24, np.int64))
    assert select([good], few, 0.0, [unseen]).choice.scale > 0.0
    harmful = unseen._replace(networks=[Wrong()])
    assert select([Wrong(), good], few, 0.0, [harmful]).choice.scale == 0.0
    alone = select([Wrong(), good], None, 0.0, [None, unseen])
    assert alone.network == 1 and alone.choice.scale > 0.0 and alone.dev_gain > 0.2


def test_a_query_counts_with_the_network_that_did_not_learn_from_it(trained):
    good, queries = NumpyScorer(trained[0]), DeviceQueries(helpful_table(24, seed=1), RULES)
    fold = np.arange(24) % 2
    both = [HeldOut(queries, [one], np.zeros(24, np.int64)).gains(0.0) for one in (Wrong(), good)]
    found = HeldOut(queries, [Wrong(), good], fold).gains(0.0)
    np.testing.assert_array_equal(found, np.where(fold == 0, *both))


@pytest.mark.filterwarnings("error")
def test_a_single_dev_query_is_none_to_validate_with(trained):
    good, one = NumpyScorer(trained[0]), DeviceQueries(helpful_table(1, seed=2), RULES)
    assert select([good], one, 0.0).dev_gain == 0.0
    queries = DeviceQueries(helpful_table(24, seed=1), RULES)
    found = select([good], one, 0.0, [HeldOut(queries, [good], np.zeros(24, np.int64))])
    assert found.choice.scale > 0.0 and np.isfinite(found.dev_gain)


def test_another_weight_of_cosines_is_taken_where_it_is_better_beyond_chance():
    table = helpful_table(30)
    assert select_fusion(DeviceQueries(table, RULES), 0.0) == 0.0  # cosines are random
    places = np.zeros_like(table.cosine)
    np.put_along_axis(places, table.relevant, 1.0, axis=1)
    perfect = DeviceQueries(table._replace(cosine=places), RULES)
    assert select_fusion(perfect, 0.0) == 2.0
    assert select_fusion(perfect, 2.0) == 2.0


def test_without_dev_queries_the_last_network_is_used_at_a_fixed_scale(trained):
    lines = []
    found = make_choice(trained, None, [None, None], 1.0, 0, lines.append)
    assert found["fused"].choice == Choice(1.0, UNTESTED) and found["fused"].network == 1
    assert found["plain"].choice == Choice(0.0, UNTESTED)
    assert lines == ["no dev queries: weights are used at 0.5 of what the network proposes"]


def test_both_kinds_of_search_use_one_network(trained, dev):
    lines = []
    found = make_choice(trained[::-1], dev, [None, None], 1.0, 0, lines.append)
    assert found["fused"].network == found["plain"].network == 1
    assert found["fused"].choice.fusion == 1.0 and found["plain"].choice.fusion == 0.0
    assert "only 24 held-out queries" in lines[0] and "at least 50" in lines[0]
    assert lines[1].startswith("over BM25 + 1 cosines: gain +")
    assert lines[2].startswith("over BM25: gain +")
    (evidence,) = found["plain"].evidence
    assert f"{evidence.gain:+.4f} on 24 dev queries that its network did not learn from" in lines[2]
    assert f"with probability {found['plain'].chance:.3f}" in lines[2]
    weights, _ = proposals(NumpyScorer(trained[0]), dev, 0.0)
    scale = found["plain"].choice.scale
    table = dev.table
    features, state = table.candidate_features, table.state_features
    used = used_proposals(weights * np.float32(scale), features, state, dev.rules, 0.0)
    gain = dev.values(0.0, used) - dev.values(0.0, np.zeros_like(used))
    assert evidence.gain == pytest.approx(gain.mean(), abs=1e-6) and evidence.split == "dev"


def test_where_nothing_helps_with_cosines_any_network_may_help_without(trained, dev, monkeypatch):
    asked = []

    def scripted(scorers, queries, fusion, held_out, seed):
        asked.append((len(scorers), fusion, len(held_out)))
        scale, network = (0.0, 0) if fusion else (0.5, 1)
        return Selection(Choice(fusion, scale), network, 3, 0.5, 0.0, 0.0)

    monkeypatch.setattr(selection, "select", scripted)
    found = make_choice(trained, dev, [None, None], 1.0, 0, lambda line: None)
    assert asked == [(2, 1.0, 2), (2, 0.0, 2)]
    assert found["plain"].network == found["fused"].network == 1
    assert found["fused"].choice == Choice(1.0) and found["plain"].choice == Choice(0.0, 0.5)


def test_choices_come_back_from_their_file(tmp_path):
    assert read_choices(tmp_path) == Choices(None, {})
    choices = [Choice(0.5, 0.25, 0.0), Choice(0.0, 1.0), Choice(0.5, 0.25, 0.0)]
    write_choices(tmp_path, 0.5, choices, "d1")
    found = read_choices(tmp_path)
    assert found == Choices(0.5, {0.5: choices[0], 0.0: choices[1]}, "d1")
    assert found.at(0.0) == choices[1] and found.at(2.0) == Choice(2.0, UNTESTED)


ROW = {"fusion": 1, "scale": 0.5, "margin": 0}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        '{"fusion": NaN, "choices": [], "digest": ""}',
        json.dumps({"fusion": -1, "choices": [], "digest": ""}),
        json.dumps({"fusion": 1, "choices": [{**ROW, "scale": 2.5}], "digest": ""}),
        json.dumps({"fusion": 1, "choices": [{**ROW, "margin": "0"}], "digest": ""}),
        json.dumps({"fusion": 1, "choices": [{**ROW, "more": 0}], "digest": ""}),
        json.dumps({"fusion": 1, "choices": [{"fusion": 1}], "digest": ""}),
        json.dumps({"fusion": 1, "choices": [ROW]}),
        json.dumps({"fusion": 1, "choices": [ROW], "digest": 3}),
        json.dumps({"fusion": 1, "choices": [ROW] * 9, "digest": ""}),
        "[" * 100_000,
    ],
)
def test_a_damaged_file_of_choices_is_refused_in_one_line(tmp_path, text):
    (tmp_path / "choice.json").write_text(text)
    with pytest.raises(ValueError, match=r"choice\.json cannot be read \(.*: train again") as error:
        read_choices(tmp_path)
    assert "\n" not in str(error.value)
