"""The network of the agent: in NumPy as in Keras, copied, and the one of the package."""

import numpy as np
import pytest
import tensorflow as tf

from kytolly.agent.make_agent import make_agent
from kytolly.config.ppo import PPOConfig
from kytolly.loop.device import DeviceLoop
from kytolly.record.checkpoint import is_finite
from kytolly.search.model.candidate_scorer import CandidateScorer
from kytolly.search.reformulate import network as network_module
from kytolly.search.reformulate.device_env import DeviceQueries, is_query_term
from kytolly.search.reformulate.network import (
    HALF,
    NumpyScorer,
    copied_scorer,
    load_pretrained,
    make_scorer,
)
from kytolly.search.reformulate.options import AgentOptions
from kytolly.search.reformulate.query import CANDIDATE_FEATURES, STATE_FEATURES, SearchRules
from kytolly.search.reformulate.warm_start import fit_listwise
from tests.search.reformulate.made_queries import helpful_table

WIDE = len(CANDIDATE_FEATURES)


def random_scorer(hidden_units, seed=0):
    """A network whose weights and statistics are all far from where training begins."""
    rng = np.random.default_rng(seed)
    network = CandidateScorer(hidden_units, dropout=0.5)
    network.build({"candidates": (None, 6, WIDE), "state": (None, 3)})
    network.adapt(rng.normal(1.0, 2.0, (50, WIDE)), rng.normal(-1.0, 0.5, (50, 3)))
    for weight in network.trainable_variables:
        weight.assign(rng.normal(0.0, 0.4, weight.shape))
    network.mean_head.bias.assign([3.0])
    return network


def inputs(seed=1):
    """Ten queries, half of whose candidates are absent; the last query has none."""
    rng = np.random.default_rng(seed)
    candidates = rng.normal(1.0, 2.0, (10, 6, WIDE)).astype(np.float32)
    candidates[rng.random((10, 6)) < 0.5] = 0.0
    candidates[-1] = 0.0
    return candidates, rng.normal(-1.0, 0.5, (10, 3)).astype(np.float32)


@pytest.mark.parametrize("hidden_units", [(8,), (16, 8), (8, 4, 8)])
def test_numpy_gives_what_keras_gives(hidden_units, monkeypatch):
    network, (candidates, state) = random_scorer(hidden_units), inputs()
    params, expected = network({"candidates": candidates, "state": state})
    weights = np.log1p(np.exp(params.numpy()[:, :6].astype(np.float64)))
    own = is_query_term(candidates)
    assert (weights[own] > 0.9).any() and (weights[~own] > 0.9).any()
    weights[own] = np.minimum(weights[own], 0.9)  # what a term of the query loses at most
    assert weights.max() > 0.05 and expected.numpy().std() > 0.05
    for rows in (4_096, 3):
        monkeypatch.setattr(network_module, "ROWS", rows)
        found, gains = NumpyScorer(network)(candidates, state)
        assert found.dtype == gains.dtype == np.float32
        np.testing.assert_allclose(found, weights, atol=3e-5)
        np.testing.assert_allclose(gains, expected, atol=3e-5)
    assert not found[~candidates.any(axis=-1)].any()


def test_absent_candidates_and_their_order_do_not_matter():
    scorer, (candidates, state) = NumpyScorer(random_scorer((8, 8))), inputs()
    weights, gains = scorer(candidates, state)
    padded = np.concatenate([np.zeros_like(candidates), candidates[:, ::-1]], axis=1)
    other, same = scorer(padded, state)
    np.testing.assert_allclose(other[:, 6:], weights[:, ::-1], atol=1e-5)
    np.testing.assert_allclose(same, gains, atol=1e-5)


def test_a_copy_gives_the_same_also_in_half_precision():
    network, (candidates, state) = random_scorer((8, 8)), inputs()
    seen = {"candidates": candidates, "state": state}
    params, gain = network(seen)
    copy = copied_scorer(network, 0.0)
    np.testing.assert_array_equal(copy(seen, training=True)[0], params)  # without dropout
    half = copied_scorer(network, 0.0, half=True)
    assert half.own.compute_dtype == "float16" and copy.own.compute_dtype == "float32"
    rough = half(seen)
    assert rough[0].dtype == rough[1].dtype == "float32"
    np.testing.assert_allclose(rough[0], params, atol=0.05)
    np.testing.assert_allclose(rough[1], gain, atol=0.05)
    np.testing.assert_array_equal(rough[0][:, 6:], params[:, 6:])  # log deviations stay as they are
    back = copied_scorer(half, 0.0)
    np.testing.assert_array_equal(back(seen)[0], params)


def test_ppo_learns_in_half_precision():
    table, rules = helpful_table(8), SearchRules("ndcg@10", 2, 4, 64)
    env = DeviceQueries(table, rules)
    network = copied_scorer(make_scorer(table, AgentOptions(hidden_units=(8,))), 0.0, half=True)
    before = network.get_weights()
    cfg = PPOConfig(
        num_envs=8, rollout_steps=1, num_minibatches=1, epochs=2, xla=False, precision=HALF
    )
    loop = DeviceLoop(make_agent(cfg, env.spec, network), env)
    assert int(loop.run(16).updates) == 4
    loop.agent.policy.publish()
    pairs = zip(network.get_weights(), before, strict=True)
    assert is_finite(network) and max(np.abs(one - old).max() for one, old in pairs) > 0


def test_statistics_are_those_of_the_candidates_that_are_there():
    table = helpful_table(12)
    table.candidate_features[:, 2:] = 0.0
    network = make_scorer(table, AgentOptions(hidden_units=(8,)))
    there = table.candidate_features[:, :2].reshape(-1, WIDE)
    np.testing.assert_allclose(network.normalize_candidates.mean, there.mean(axis=0), atol=1e-5)
    variance = there.var(axis=0)
    variance[variance == 0.0] = 1.0  # what is the same everywhere is not scaled
    np.testing.assert_allclose(network.normalize_candidates.variance, variance, atol=1e-5)
    state = table.state_features
    np.testing.assert_allclose(network.normalize_state.mean[:-1], state.mean(axis=0), atol=1e-5)
    # Of the weight of the cosines, which is 0 or 1.
    assert float(network.normalize_state.mean[-1]) == pytest.approx(0.5)
    assert float(network.normalize_state.variance[-1]) == pytest.approx(0.25)


def test_the_network_of_the_package_is_for_the_features_of_this_version(monkeypatch, tmp_path):
    network = load_pretrained()
    assert network.normalize_candidates.mean.shape == (len(CANDIDATE_FEATURES),)
    assert network.normalize_state.mean.shape == (len(STATE_FEATURES) + 1,)
    assert is_finite(network)
    monkeypatch.setattr(network_module, "PRETRAINED", tmp_path / "none.keras")
    assert load_pretrained() is None


NEW = [CANDIDATE_FEATURES.index(name) for name in ("is generated", "log-probability")]


def assert_ready_for_a_rewriter(network, candidates, state):
    """Its features change nothing yet, pass unscaled, and have gradients."""
    assert np.asarray(network.normalize_candidates.mean)[NEW].tolist() == [0.0, 0.0]
    assert np.asarray(network.normalize_candidates.variance)[NEW].tolist() == [1.0, 1.0]
    there, generated = candidates.any(axis=-1), candidates.copy()
    assert not candidates[..., NEW].any()
    generated[..., NEW] = there[..., np.newaxis] * np.array([1.0, 0.5], np.float32)
    plain, seen = (NumpyScorer(network)(one, state) for one in (candidates, generated))
    for first, second in zip(plain, seen, strict=True):
        np.testing.assert_array_equal(first, second)
    with tf.GradientTape() as tape:
        params, gain = network({"candidates": generated, "state": state})
        loss = tf.reduce_sum(params[:, : there.shape[1]] * there) + tf.reduce_sum(gain)
    kernels = [layer.kernel.value for layer in (network.own, network.beside, network.critic)]
    found = tape.gradient(loss, kernels)
    first = state.shape[1]
    for gradient, places in zip(found, (NEW, *2 * [[first + p for p in NEW]]), strict=True):
        assert all(np.any(gradient.numpy()[place]) for place in places)


def test_a_network_made_without_a_rewriter_begins_sanely_with_one():
    table = helpful_table(12)
    network = make_scorer(table, AgentOptions(hidden_units=(8, 8), dropout=0.0))
    network.mean_head.kernel.assign(np.full((8, 1), 0.7, np.float32))
    network.gain_head.kernel.assign(np.full((8, 1), 0.7, np.float32))
    fusion = np.ones((12, 1), np.float32)
    state = np.concatenate([table.state_features, fusion], axis=1)
    assert_ready_for_a_rewriter(network, table.candidate_features, state)
    fit_listwise(
        network, DeviceQueries(table, SearchRules("ndcg@10", 2, 4, 64)), [np.arange(12)], 3, 1e-2, 0
    )
    assert_ready_for_a_rewriter(
        network, table.candidate_features, state
    )  # as pre-training leaves it


def test_the_network_of_the_package_begins_sanely_with_a_rewriter():
    network, rng = load_pretrained(), np.random.default_rng(0)
    scale = [
        np.sqrt(one.variance) for one in (network.normalize_candidates, network.normalize_state)
    ]
    candidates = rng.normal(size=(20, 9, WIDE)) * scale[0] + network.normalize_candidates.mean
    candidates[..., NEW] = 0.0
    candidates[:, 6:] = 0.0
    state = rng.normal(size=(20, len(STATE_FEATURES) + 1)) * scale[1] + network.normalize_state.mean
    assert_ready_for_a_rewriter(network, candidates.astype(np.float32), state.astype(np.float32))
