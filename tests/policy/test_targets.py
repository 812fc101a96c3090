"""The formulas of the DQN family, by hand."""

import numpy as np
import pytest
import tensorflow as tf

from kytolly.policy.distributional import categorical_projection, quantile_huber
from kytolly.policy.munchausen import munchausen_bonus, soft_policy

both = pytest.mark.parametrize("compiled", [False, True], ids=["eager", "xla"])
ALWAYS = tf.constant(True)


@both
def test_soft_policy_is_the_softmax_and_its_scaled_entropy(maybe_compile, compiled):
    temperature = 2.0
    q = tf.constant([[0.0, 2.0 * np.log(3.0)], [5.0, 5.0]])
    probability, entropy = maybe_compile(soft_policy, compiled)(q, temperature)
    # row 0: weights 1 and 3, so 1/4 and 3/4 (a softmax without the temperature: 1/10 and 9/10)
    np.testing.assert_allclose(probability, [[0.25, 0.75], [0.5, 0.5]], rtol=1e-5)
    nats = -(0.25 * np.log(0.25) + 0.75 * np.log(0.75))
    np.testing.assert_allclose(entropy, [2.0 * nats, 2.0 * np.log(2.0)], rtol=1e-5)


def test_soft_policy_is_finite_where_one_action_has_no_chance():
    probability, entropy = soft_policy(tf.constant([[0.0, 1e6]]), 0.03)
    np.testing.assert_array_equal(probability, [[0.0, 1.0]])
    np.testing.assert_array_equal(entropy, [0.0])


@both
def test_munchausen_bonus_is_a_share_of_the_clipped_log_probability(maybe_compile, compiled):
    q = tf.constant([[0.0, np.log(3.0)], [np.log(3.0), 0.0], [0.0, 50.0]])
    action = tf.constant([0, 0, 0])
    found = maybe_compile(lambda q, a: munchausen_bonus(q, a, 1.0, 0.5, -1.2), compiled)(q, action)
    # log 1/4 = -1.386 is clipped to -1.2 before the share is taken (after it: -0.693);
    # log 3/4 = -0.288 is not, nor is it of the other action; -50 is clipped.
    np.testing.assert_allclose(found, [-0.6, 0.5 * np.log(0.75), -0.6], rtol=1e-5)


def test_the_temperature_multiplies_the_log_probability():
    q = tf.constant([[0.0, 0.5 * np.log(3.0)]])
    found = munchausen_bonus(q, tf.constant([1]), 0.5, 1.0, -1.0)
    np.testing.assert_allclose(found, [0.5 * np.log(0.75)], rtol=1e-5)


@both
def test_a_projection_shares_each_probability_among_its_two_neighbors(maybe_compile, compiled):
    atoms = tf.constant([-1.0, 0.0, 1.0, 2.0])
    value = tf.constant([[-3.0, 0.25, 2.0, 2.5], [0.5, 0.5, 0.5, 0.5]])
    probability = tf.constant([[0.1, 0.4, 0.2, 0.3], [0.25, 0.25, 0.25, 0.25]])
    projected, clipped = maybe_compile(categorical_projection, compiled)(
        value, probability, atoms, ALWAYS
    )
    # row 0: -3 gives 0.1 to -1; 0.25 gives 0.3 to 0 and 0.1 to 1 (swapped: 0.1 and 0.3);
    # 2 and 2.5 give 0.5 to 2, of which 0.3 came from beyond, as did the 0.1 of -3.
    np.testing.assert_allclose(projected, [[0.1, 0.3, 0.1, 0.5], [0, 0.5, 0.5, 0]], atol=1e-6)
    np.testing.assert_allclose(clipped, [0.4, 0.0], atol=1e-6)


def test_a_projection_of_what_fits_keeps_sum_and_mean():
    rng = np.random.default_rng(0)
    atoms = np.linspace(-2.0, 3.0, 11, dtype=np.float32)
    value = rng.uniform(-2.0, 3.0, (5, 7)).astype(np.float32)
    probability = rng.dirichlet(np.ones(7), 5).astype(np.float32)
    projected, clipped = categorical_projection(
        *map(tf.constant, (value, probability, atoms)), ALWAYS
    )
    np.testing.assert_allclose(projected.numpy().sum(axis=1), 1.0, rtol=1e-5)
    means = (projected.numpy() * atoms).sum(axis=1)
    np.testing.assert_allclose(means, (value * probability).sum(axis=1), rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(clipped, np.zeros(5))


@pytest.mark.parametrize(
    "low, high, count, tolerance", [(-200, 100, 1_001, 2e-3), (1_000, 1_001, 2_000, 0.15)]
)
@both
def test_a_projection_keeps_all_probability_on_wide_and_on_narrow_atoms(
    maybe_compile, compiled, low, high, count, tolerance
):
    # The difference of two neighbors, rounded, is 0.30000305 instead of 0.3, and 0.00048828125
    # instead of 0.00050025: the last atom's place is then count * 1.00001, and count * 1.0245.
    atoms = np.linspace(low, high, count, dtype=np.float32)
    probability = np.full([2, count], 1.0 / count, np.float32)
    project = maybe_compile(categorical_projection, compiled)
    projected, clipped = project(
        *map(tf.constant, (np.tile(atoms, [2, 1]), probability, atoms)), ALWAYS
    )
    np.testing.assert_allclose(projected, probability, rtol=tolerance)
    np.testing.assert_allclose(projected.numpy().sum(axis=1), 1.0, rtol=1e-4)
    np.testing.assert_allclose(clipped, 0.0, atol=1e-6)


@both
def test_quantile_huber_by_hand(maybe_compile, compiled):
    estimate, target = tf.constant([[1.0, 2.0]]), tf.constant([[1.5, 4.0, -2.0]])
    level = tf.constant([0.25, 0.75])
    loss = maybe_compile(lambda *rows: quantile_huber(*rows, 2.0), compiled)
    # errors of 1: 0.5, 3, -3; Huber (delta 2): 0.125, 4, 4; weights 1/4, 1/4, 3/4 -> 4.03125 / 3
    # errors of 2: -0.5, 2, -4; Huber 0.125, 2, 6; weights 1/4, 3/4, 1/4 -> 3.03125 / 3
    # both over delta: 7.0625 / 6. Levels the wrong way round give 9.1875 / 6.
    np.testing.assert_allclose(loss(estimate, target, level), [7.0625 / 6.0], rtol=1e-6)
    by_row = loss(estimate, target, tf.constant([[0.25, 0.75]]))
    np.testing.assert_allclose(by_row, [7.0625 / 6.0], rtol=1e-6)


def test_quantile_huber_is_least_at_the_quantiles():
    """Of 0, 1, ..., 9 the quantile at 0.25 is 2 and that at 0.85 is 8."""
    sample = tf.range(10.0)[tf.newaxis]
    places = tf.range(0.0, 10.0, 0.5)
    for level, place in ((0.25, 2.0), (0.85, 8.0)):
        estimates = [tf.reshape(x, [1, 1]) for x in places]
        loss = [quantile_huber(x, sample, tf.constant([level]), 1e-3)[0] for x in estimates]
        assert places[int(np.argmin(loss))] == place


@pytest.mark.parametrize("delta", [0.5, 2.0])
def test_its_gradient_is_bounded_by_the_levels_alone(delta):
    estimate = tf.Variable([[0.0, 0.0]])
    with tf.GradientTape() as tape:
        loss = quantile_huber(estimate, tf.constant([[100.0]]), tf.constant([0.1, 0.9]), delta)
    np.testing.assert_allclose(tape.gradient(loss, estimate), [[-0.1, -0.9]], rtol=1e-5)
