import keras
import numpy as np
import pytest

from kytolly.search.model.candidate_scorer import NO_WEIGHT, CandidateScorer


@pytest.fixture(scope="module")
def network():
    keras.utils.set_random_seed(3)
    network = CandidateScorer((16, 8), dropout=0.5)
    obs = observations()
    network(obs)
    network.adapt(obs["candidates"].reshape(-1, 4), obs["state"])
    for weight in network.trainable_weights:  # heads begin near 0
        weight.assign(weight + np.random.default_rng(0).normal(size=weight.shape) * 0.2)
    return network


def observations(rows=5, candidates=6, seed=0):
    rng = np.random.default_rng(seed)
    return {
        "candidates": rng.normal(size=(rows, candidates, 4)).astype(np.float32),
        "state": rng.normal(size=(rows, 3)).astype(np.float32),
    }


def test_a_mean_and_a_deviation_for_each_candidate_and_a_gain(network):
    params, gain = network(observations())
    assert params.shape == (5, 12) and gain.shape == (5,)
    assert np.ptp(params[:, :6]) > 0.1 and np.ptp(params[:, 6:]) == 0.0


def test_the_order_of_the_candidates_does_not_matter(network):
    obs, order = observations(), np.array([3, 0, 5, 1, 4, 2])
    params, gain = network(obs)
    turned = {**obs, "candidates": obs["candidates"][:, order]}
    other, same = network(turned)
    np.testing.assert_allclose(np.asarray(params)[:, order], other[:, :6], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(gain, same, rtol=1e-4, atol=1e-5)


def test_padding_does_not_matter(network):
    obs = observations()
    wide = {**obs, "candidates": np.pad(obs["candidates"], ((0, 0), (0, 4), (0, 0)))}
    params, gain = network(obs)
    other, same = network(wide)
    np.testing.assert_allclose(params[:, :6], other[:, :6], rtol=1e-4, atol=1e-5)
    assert (np.asarray(other)[:, 6:10] == NO_WEIGHT).all()
    np.testing.assert_allclose(gain, same, rtol=1e-4, atol=1e-5)


def test_a_set_without_candidates_has_finite_outputs(network):
    obs = observations()
    params, gain = network({**obs, "candidates": np.zeros_like(obs["candidates"])})
    assert np.isfinite(params).all() and np.isfinite(gain).all()


def test_a_candidate_sees_the_state_and_the_others(network):
    obs = observations()
    params = np.asarray(network(obs)[0])
    state = np.asarray(network({**obs, "state": obs["state"] + 1.0})[0])
    assert np.abs(np.diff(state - params)).max() > 1e-3  # not the same shift for all
    changed = obs["candidates"].copy()
    changed[:, 0] += 1.0
    others = np.asarray(network({**obs, "candidates": changed})[0])[:, 1:6]
    assert np.abs(others - params[:, 1:6]).max() > 1e-3


def test_dropout_only_while_training(network):
    obs = observations()
    np.testing.assert_array_equal(network(obs)[0], network(obs)[0])
    assert np.abs(np.asarray(network(obs, training=True)[0]) - network(obs)[0]).max() > 1e-3


def test_it_comes_back_from_its_file(network, tmp_path):
    network.save(tmp_path / "scorer.keras")
    loaded = keras.models.load_model(tmp_path / "scorer.keras")
    for one, other in zip(network(observations()), loaded(observations()), strict=True):
        np.testing.assert_array_equal(one, other)
