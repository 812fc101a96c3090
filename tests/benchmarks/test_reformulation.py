"""Both flows get the same rewards, and what is counted is what happens."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from kytolly.benchmarks.query_flow import OneQueryFlow
from kytolly.benchmarks.reformulation import (
    COMPILED,
    KINDS,
    ONE_QUERY,
    gain,
    gain_lines,
    make_flow,
    measure_turn,
    prepare,
)
from kytolly.reformulation import pool, ppo_training
from kytolly.reformulation.device_env import DeviceQueries
from kytolly.retrieval.bm25 import BM25Index
from kytolly.retrieval.embedding import HashEncoder
from tests.reformulation.tiny_collection import make_options, write_collection


@pytest.fixture(scope="module")
def options(tmp_path_factory):
    return make_options(write_collection(tmp_path_factory.mktemp("flows") / "tiny"))


@pytest.fixture(scope="module")
def ground(options):
    return prepare(options)


@pytest.fixture(scope="module")
def flow(ground):
    flow = make_flow(ONE_QUERY, ground, "/CPU:0")
    flow.ready()
    return flow


@pytest.mark.parametrize("metric", ["ndcg@10", "ap"])
def test_both_flows_see_and_get_the_same_for_the_same_actions(metric, options, monkeypatch):
    retrieval = dataclasses.replace(options.retrieval, metric=metric, max_terms=3)
    ground = prepare(dataclasses.replace(options, retrieval=retrieval))
    flow, stop = make_flow(ONE_QUERY, ground, "/CPU:0"), ground.side.episode.max_candidates
    env, rng, steps = DeviceQueries(ground.table, in_order=True), np.random.default_rng(0), 0
    seen = []

    def act(candidates, state, mask):
        seen.append((candidates, state, mask))
        action = stop if rng.random() < 0.2 else int(rng.choice(np.flatnonzero(mask)))
        return action, 0.0, 0.0

    monkeypatch.setattr(flow, "act", act)
    rewarded = 0
    for row, query in enumerate(ground.queries):
        seen.clear()
        flow._rows = []
        flow.episode(query)
        state = env.begin(tf.constant([row]))
        for shown, step in zip(seen, flow._rows, strict=True):
            obs = env.observe(state)
            for name, part in zip(("candidates", "state", "action_mask"), shown, strict=True):
                np.testing.assert_allclose(obs[name][0], part, atol=2e-5)
            state, reward, over = env.step(state, tf.constant([step.action]), tf.zeros([1, 0]))
            assert float(reward[0]) == pytest.approx(step.reward, abs=1e-6)
            assert bool(over[0]) == step.over
            rewarded += abs(step.reward) > 1e-3
            steps += 1
    assert steps > 40 and rewarded > 10  # else equality would say little


def test_what_is_counted_before_training_is_what_happens(options, monkeypatch):
    searches, terms, looked_up, texts = [], [], [], []
    scores, columns = BM25Index.scores, pool.candidate_columns
    encode = HashEncoder.encode

    def spied(index, weights):
        searches.append(1)
        terms.append(len(weights))
        return scores(index, weights)

    monkeypatch.setattr(BM25Index, "scores", spied)
    monkeypatch.setattr(
        pool,
        "candidate_columns",
        lambda candidates, *rest: looked_up.append(len(candidates)) or columns(candidates, *rest),
    )
    monkeypatch.setattr(
        HashEncoder, "encode", lambda self, batch: texts.extend(batch) or encode(self, batch)
    )
    ground = prepare(options)
    assert ground.counts == (len(texts), len(searches), sum(terms) + sum(looked_up))
    assert len(texts) == len(set(texts)) > 0 and len(searches) > len(ground.queries)


def test_the_one_query_flow_counts_what_happens(flow, monkeypatch):
    texts, scored = [], []
    encode, score = flow.encoder.encode, flow.engine.get_scores
    monkeypatch.setattr(flow.encoder, "encode", lambda b: texts.extend(b) or encode(b))
    monkeypatch.setattr(flow.engine, "get_scores", lambda t: scored.extend(t) or score(t))
    before = flow.counts
    flow._rows = []
    for query in flow.queries[:6]:
        flow.episode(query)
    embedded, searches, terms = (now - then for now, then in zip(flow.counts, before, strict=True))
    assert embedded == len(texts)
    added = sum(row.action < flow.side.episode.max_candidates for row in flow._rows)
    assert searches == 6 * 2 + added  # mined, typed, and after every added term
    assert terms == len(scored) + sum(len(query.weights) for query in flow.queries[:6])


def test_an_update_of_the_one_query_flow_raises_what_was_better(ground):
    flow = make_flow(ONE_QUERY, ground, "/CPU:0")
    assert isinstance(flow, OneQueryFlow)
    query = max(ground.queries, key=lambda query: len(query.candidates))
    for _ in range(24):
        flow.episode(query)
    first = [row for row in flow._rows if not row.state[-5]]  # nothing is added yet
    best = max(first, key=lambda row: row.reward)
    assert best.reward > min(row.reward for row in first)

    def chance():
        obs = {"candidates": best.candidates[np.newaxis], "state": best.state[np.newaxis]}
        logits = np.where(best.mask, flow._forward(obs)[0].numpy()[0], -1e9)
        return np.exp(logits[best.action] - logits.max()) / np.exp(logits - logits.max()).sum()

    before = chance()
    flow.update()
    assert chance() > before and not flow._rows
    flow.run(0.0)
    assert flow._fit.experimental_get_tracing_count() == 1  # no turn pays for a trace


def test_gain_is_arithmetic_on_the_turns():
    common = {"collection": "c", "documents": 5, "queries": 100, "run_episodes": 2_000}

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
    slow = [turn(2.0, 10, 200, 0, 0.0) for _ in range(3)]
    found = gain(fast, slow)
    assert found["ratio"] == 100.0  # 500 a second against 5
    assert found["ratio_with_preparation"] == 50.0  # 2,000 in 4 + 4 seconds
    row = found["calls"]["search calls"]
    assert row["one_query"] == 20_000 and row["compiled_one_pass"] == 5_000
    assert (row["saved_one_pass"], row["saved_run"]) == (0.75, 0.9875)  # 500 / 2,000 = 0.25 of 20
    assert "98.8%" in "\n".join(gain_lines(found))


def test_both_flows_are_measured_alike(ground, flow, monkeypatch):
    made = ppo_training.ppo_config
    uncompiled = lambda *args: dataclasses.replace(made(*args), xla=False)  # noqa: E731
    monkeypatch.setattr(ppo_training, "ppo_config", uncompiled)
    compiled = make_flow(COMPILED, ground, "/CPU:0")
    compiled.ready()
    rows = [
        measure_turn(COMPILED, compiled, ground, 0.02),
        measure_turn(ONE_QUERY, flow, ground, 0.02),
    ]
    assert rows[0].keys() == rows[1].keys()
    assert all(row["episodes"] > 0 and row["wall_seconds"] >= 0.02 for row in rows)
    assert not any(rows[0]["calls"].values()) and all(rows[0]["prepared"].values())
    assert all(rows[1]["calls"].values()) and not any(rows[1]["prepared"].values())
