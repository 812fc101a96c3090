"""All flows get the same rewards, and what is counted is what happens."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from kytolly.search.benchmark.query_flow import inverse_softplus, metric_value
from kytolly.search.benchmark.reformulation import (
    COMPILED,
    KINDS,
    ONE_QUERY,
    SEQUENTIAL,
    TITLES,
    gain,
    gain_lines,
    make_flow,
    measure_turn,
    prepare,
)
from kytolly.search.index.bm25 import BM25Index
from kytolly.search.index.embedding import HashEncoder
from kytolly.search.index.rank_metrics import metric
from kytolly.search.model.candidate_scorer import NO_WEIGHT
from kytolly.search.reformulate import ppo_training
from kytolly.search.reformulate.device_env import DeviceQueries, QueryState
from tests.search.reformulate.tiny_collection import make_options, write_collection


@pytest.fixture(autouse=True)
def uncompiled(monkeypatch):
    """Flows without XLA; tests/command compiles them."""
    monkeypatch.setenv("KYTOLLY_XLA", "off")


@pytest.fixture(scope="module")
def options(tmp_path_factory):
    options = make_options(write_collection(tmp_path_factory.mktemp("flows") / "tiny"))
    retrieval = dataclasses.replace(options.retrieval, fusion=0.5)
    return dataclasses.replace(options, retrieval=retrieval)


@pytest.fixture(scope="module")
def ground(options):
    return prepare(options)


@pytest.mark.parametrize("name", [ONE_QUERY, SEQUENTIAL])
@pytest.mark.parametrize("metric", ["ndcg@10", pytest.param("ap", marks=pytest.mark.learning)])
def test_all_flows_see_and_get_the_same_for_the_same_actions(metric, name, options):
    retrieval = dataclasses.replace(options.retrieval, metric=metric, max_terms=3)
    ground = prepare(dataclasses.replace(options, retrieval=retrieval))
    flow, rewards = make_flow(name, ground, "/CPU:0"), []
    flow.ready()
    flow.buffer = []
    env = DeviceQueries(ground.table, ground.context.rules, ground.fusions)
    for row in range(len(ground.queries)):
        for place, fusion in enumerate(ground.fusions):
            flow.play(row, fusion)
            shown, state = flow.buffer[-1], QueryState(tf.constant([row]), tf.constant([place]))
            obs = env.observe(state)
            np.testing.assert_allclose(obs["candidates"][0], shown.candidates, atol=2e-5)
            np.testing.assert_allclose(obs["state"][0], shown.state, atol=2e-5)
            _, reward, over = env.step(state, tf.constant([shown.action]), tf.zeros([1, 0]))
            assert over[0] and float(reward[0]) == pytest.approx(shown.reward, abs=1e-6)
            rewards.append(abs(shown.reward) > 1e-3)
    assert len(rewards) == 48 and sum(rewards) > 10  # else equality would say little


@pytest.mark.parametrize("name", [ONE_QUERY, SEQUENTIAL])
def test_log_densities_are_those_of_the_network(name, ground):
    flow = make_flow(name, ground, "/CPU:0")
    flow.ready()
    flow.play(0, 0.5)
    row = flow.buffer[-1]
    params, value = flow.network(
        {"candidates": row.candidates[np.newaxis], "state": row.state[np.newaxis]}
    )
    density = flow.distribution.log_prob(params, row.action[np.newaxis])
    # Means from weights lose some digits; PPO's ratios need two.
    assert row.log_prob == pytest.approx(float(density[0]), abs=2e-3)
    assert row.value == pytest.approx(float(value[0]), abs=1e-5)


def test_means_come_back_from_weights():
    means = np.array([-12.0, -3.0, 0.0, 4.0, 19.0], np.float32)
    np.testing.assert_allclose(inverse_softplus(np.logaddexp(means, 0.0)), means, rtol=1e-4)
    assert inverse_softplus(np.zeros(1, np.float32))[0] == NO_WEIGHT


@pytest.mark.parametrize("name", ["ndcg@10", "ndcg@3", "ap", "recall@5", "mrr@10"])
def test_metrics_in_numpy_are_those_in_tensor_code(name):
    for ranks, count in (([4, 0, 12], 3), ([2], 2), ([30], 1), ([], 1), ([1, 0, 2, 3], 4)):
        padded = np.array([*ranks, 2**30], np.int32)
        expected = float(metric(name, padded[np.newaxis], np.array([count]))[0])
        assert metric_value(name, np.array(ranks), count) == pytest.approx(expected, abs=1e-6)


def test_what_is_counted_before_training_is_what_happens(options, monkeypatch):
    searches, terms, looked_up, texts = [], [], [], []
    scores, postings = BM25Index.scores, BM25Index.postings
    encode = HashEncoder.encode

    def spied(index, weights):
        searches.append(1)
        terms.append(len(weights))
        monkeypatch.setattr(BM25Index, "postings", postings)
        found = scores(index, weights)
        monkeypatch.setattr(BM25Index, "postings", lookup)
        return found

    def lookup(index, term):
        looked_up.append(term)
        return postings(index, term)

    monkeypatch.setattr(BM25Index, "scores", spied)
    monkeypatch.setattr(
        HashEncoder, "encode", lambda self, batch: texts.extend(batch) or encode(self, batch)
    )
    ground = prepare(options)
    candidates = sum(query.options for query in ground.queries)
    assert len(looked_up) >= candidates > 100
    assert ground.counts == (len(texts), len(searches), sum(terms) + candidates)
    assert len(searches) > len(ground.queries) and ground.pass_episodes == 48


def test_the_one_query_flow_counts_what_happens(ground, monkeypatch):
    flow = make_flow(ONE_QUERY, ground, "/CPU:0")
    texts, scored = [], []
    encode, score = HashEncoder.encode, flow.engine.get_scores
    monkeypatch.setattr(HashEncoder, "encode", lambda e, b: texts.extend(b) or encode(e, b))
    monkeypatch.setattr(flow.engine, "get_scores", lambda t: scored.extend(t) or score(t))
    for row in range(6):
        flow.play(row, 0.5)
    embedded, searches, terms = flow.counts
    assert embedded == len(texts) > 6
    assert searches == 6 * 3  # to mine, as it was typed, and with the added terms
    assert terms == len(scored) + sum(len(query.weights) for query in flow.queries[:6])


@pytest.mark.parametrize("name", [ONE_QUERY, SEQUENTIAL])
def test_an_update_makes_what_was_better_more_likely(name, ground):
    flow = make_flow(name, ground, "/CPU:0")
    flow.ready()
    flow.buffer = []
    for _ in range(flow.rows):
        flow.play_any()
    rows = flow.buffer
    columns = [np.stack([getattr(row, part) for row in rows]) for part in ("candidates", "state")]
    actions = np.stack([row.action for row in rows])
    advantage = np.array([row.reward - row.value for row in rows])
    advantage -= advantage.mean()
    assert advantage.std() > 1e-3

    def density():
        params, _ = flow.network(dict(zip(("candidates", "state"), columns, strict=True)))
        return flow.distribution.log_prob(params, actions).numpy()

    before = density()
    flow.update()
    assert np.mean((density() - before) * advantage) > 0.0 and not flow.buffer


def test_gain_is_arithmetic_on_the_turns():
    common = {"collection": "c", "documents": 5, "queries": 50}
    common |= {"pass_episodes": 100, "run_episodes": 2_000}

    def turn(seconds, episodes, calls, prepared, preparing):
        return {
            **common,
            "episodes": episodes,
            "wall_seconds": seconds,
            "calls": dict.fromkeys(KINDS, calls),
            "prepared": dict.fromkeys(KINDS, prepared),
            "preparation_seconds": preparing,
            "compile_seconds": 1.0,
        }

    fast = [turn(1.0, n, 0, 500, 4.0) for n in (1_000, 500, 400)]
    best = [turn(2.0, n, 0, 500, 4.0) for n in (20, 50, 80)]
    slow = [turn(2.0, 10, 200, 0, 0.0) for _ in range(3)]
    found = gain(fast, best, slow)
    assert found["ratio"] == 100.0  # 500 a second against 5
    assert found["ratio_to_sequential"] == 20.0  # 500 a second against 25
    assert found["ratio_with_preparation"] == 50.0  # 2,000 in 4 + 4 seconds
    row = found["calls"]["search calls"]
    assert row["one_query"] == 20_000 and row["compiled_one_pass"] == 5_000
    assert (row["saved_one_pass"], row["saved_run"]) == (0.75, 0.9875)  # 500 / 2,000 = 0.25 of 20
    text = "\n".join(gain_lines(found))
    assert "98.8%" in text and "20.0x the fastest flow" in text and "100x one query" in text


@pytest.mark.learning
def test_all_flows_are_measured_alike(ground, monkeypatch):
    made = ppo_training.ppo_config
    uncompiled = lambda *args: dataclasses.replace(made(*args), xla=False)  # noqa: E731
    monkeypatch.setattr(ppo_training, "ppo_config", uncompiled)
    rows = {}
    for name in TITLES:
        flow = make_flow(name, ground, "/CPU:0")
        flow.ready()
        rows[name] = measure_turn(name, flow, ground, 0.02)
    assert rows[COMPILED].keys() == rows[SEQUENTIAL].keys() == rows[ONE_QUERY].keys()
    assert all(row["episodes"] > 0 and row["wall_seconds"] >= 0.02 for row in rows.values())
    assert not any(rows[COMPILED]["calls"].values()) and all(rows[COMPILED]["prepared"].values())
    assert all(rows[ONE_QUERY]["calls"].values()) and not any(rows[ONE_QUERY]["prepared"].values())
    one, best = rows[COMPILED], rows[SEQUENTIAL]
    assert best["prepared"] == one["prepared"] and not best["calls"]["embedding calls"]
