import keras
import numpy as np
import tensorflow as tf

from kytolly.model.candidate_scorer import CandidateScorer
from kytolly.reformulation.warm_start import GainPolicy


def task(count=64, seed=0):
    """States whose candidates gain what their first feature says; the fourth is not allowed."""
    rng = np.random.default_rng(seed)
    candidates = rng.normal(size=(count, 4, 3)).astype(np.float32)
    obs = {"candidates": candidates, "state": rng.normal(size=(count, 2)).astype(np.float32)}
    mask = np.ones((count, 5), bool)
    mask[:, 3] = False
    gain = np.concatenate([0.1 * candidates[:, :, 0], np.zeros((count, 1))], axis=1)
    return obs, mask, np.where(mask, gain, 0.0).astype(np.float32)


def make_policy(network, xla=False):
    optimizer = keras.optimizers.Adam(1e-2)
    return GainPolicy(network, optimizer, temperature=0.05, max_grad_norm=10.0, xla=xla)


def test_it_learns_which_actions_gain_and_when_to_stop():
    keras.utils.set_random_seed(0)
    network = CandidateScorer((16, 16))
    obs, mask, gain = task()
    network(obs)
    policy = make_policy(network)
    first = policy.fit_step(obs, mask, gain).numpy()
    for _ in range(150):
        last = policy.fit_step(obs, mask, gain).numpy()
    assert last[1] < first[1] and policy.fit_step.experimental_get_tracing_count() == 1
    logits, value = network(obs)
    chosen = np.where(mask, logits, -np.inf).argmax(axis=1)
    gained = gain[np.arange(len(gain)), chosen]
    best = np.where(mask, gain, -np.inf).max(axis=1)
    assert gained.mean() > 0.95 * best.mean()
    stops = best < 0.005  # nothing gains: STOP is the best action
    assert stops.any() and (chosen[best < 1e-6] == 4).mean() > 0.7
    assert np.corrcoef(value, best)[0, 1] > 0.9


def test_nothing_is_compiled_where_xla_is_off():
    """The fixture of this folder sets KYTOLLY_XLA."""
    assert make_policy(CandidateScorer((8,)), xla=True).fit_step._jit_compile is None


def test_a_network_that_ends_in_half_precision_is_fitted_too():
    obs = keras.Input((3,))
    heads = [keras.layers.Dense(n, dtype="mixed_float16")(obs) for n in (5, 1)]
    _, mask, gain = task(8)
    update = make_policy(keras.Model(obs, heads)).fit_step(np.ones((8, 3), np.float32), mask, gain)
    assert update.dtype == "float32" and np.isfinite(update).all()


def test_what_is_not_allowed_teaches_nothing():
    keras.utils.set_random_seed(0)
    network = CandidateScorer((8,))
    obs, mask, gain = task(8)
    network(obs)
    weights = network.get_weights()
    losses = []
    for forbidden in (0.0, 5.0):
        network.set_weights(weights)
        changed = np.where(mask, gain, forbidden).astype(np.float32)
        losses.append(make_policy(network).fit_step(obs, mask, changed).numpy())
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-5)


def test_the_expected_gain_is_that_of_the_policy():
    network = CandidateScorer((8,))
    obs, mask, gain = task(8)
    network(obs)
    logits, _ = network(obs)
    chances = tf.nn.softmax(tf.where(mask, logits, -1e9)).numpy()
    expected = (chances * gain).sum(axis=1).mean()
    found = make_policy(network).fit_step(obs, mask, gain).numpy()[2]
    np.testing.assert_allclose(found, expected, rtol=1e-4)
