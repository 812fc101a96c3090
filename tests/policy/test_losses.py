import numpy as np
import pytest
import tensorflow as tf

from kytolly.policy import losses, ppo_losses

both = pytest.mark.parametrize("compiled", [False, True], ids=["eager", "xla"])


def test_weighted_huber_is_quadratic_then_linear_and_weighted():
    td_error = tf.constant([0.5, -3.0, 1.0])
    weight = tf.constant([1.0, 2.0, 0.0])
    # delta 2: 0.5*0.25 = 0.125; 2*3 - 0.5*4 = 4, times 2 = 8; weight 0. Mean over three rows.
    np.testing.assert_allclose(losses.weighted_huber(td_error, weight, 2.0), 8.125 / 3, rtol=1e-6)


def test_weighted_huber_gradient_is_the_clipped_error():
    td_error = tf.Variable([0.5, -3.0, 7.0])
    with tf.GradientTape() as tape:
        loss = losses.weighted_huber(td_error, tf.ones(3), 2.0)
    np.testing.assert_allclose(
        tape.gradient(loss, td_error), np.array([0.5, -2.0, 2.0]) / 3, rtol=1e-5
    )


@both
def test_clipped_surrogate_gains_nothing_beyond_the_range_and_loses_without_limit(
    maybe_compile, compiled
):
    # clip range 0.2; one row each of: inside, above, below, for either sign of the advantage
    ratio = tf.constant([1.1, 1.5, 0.5, 1.1, 1.5, 0.5])
    advantage = tf.constant([2.0, 2.0, 2.0, -2.0, -2.0, -2.0])
    # min(ratio A, clipped A): 2.2, 2.4, 1.0, -2.2, -3.0, -1.6; their sum is -1.2
    loss = maybe_compile(lambda r, a: ppo_losses.clipped_surrogate(r, a, 0.2), compiled)
    np.testing.assert_allclose(loss(ratio, advantage), 1.2 / 6, rtol=1e-5)


def test_clipped_surrogate_has_no_gradient_where_the_clip_holds():
    ratio = tf.Variable([1.1, 1.5, 0.5, 1.1, 1.5, 0.5])
    with tf.GradientTape() as tape:
        loss = ppo_losses.clipped_surrogate(
            ratio, tf.constant([2.0, 2.0, 2.0, -2.0, -2.0, -2.0]), 0.2
        )
    # -A / 6, but 0 for a good action above the range and for a bad one below it
    expected = np.array([-2.0, 0.0, -2.0, 2.0, 2.0, 0.0]) / 6
    np.testing.assert_allclose(tape.gradient(loss, ratio), expected, rtol=1e-6)


@both
def test_value_loss_takes_the_worse_of_the_value_and_the_clipped_value(maybe_compile, compiled):
    value, old_value = tf.constant([5.0, 5.0, 1.2]), tf.constant([1.0, 1.0, 1.0])
    target = tf.constant([6.0, 1.0, 3.0])
    plain = maybe_compile(lambda *rows: ppo_losses.value_loss(*rows, None), compiled)
    clipped = maybe_compile(lambda *rows: ppo_losses.value_loss(*rows, 0.5), compiled)
    # errors -1, 4, -1.8: squares 1, 16, 3.24
    np.testing.assert_allclose(plain(value, old_value, target), 20.24 / 3, rtol=1e-6)
    # clipped values 1.5, 1.5, 1.2 have errors -4.5, 0.5, -1.8: the larger squares 20.25, 16, 3.24
    np.testing.assert_allclose(clipped(value, old_value, target), 39.49 / 3, rtol=1e-6)


def test_a_value_that_moved_beyond_its_range_is_not_pulled_further():
    value = tf.Variable([5.0, 5.0])
    with tf.GradientTape() as tape:
        loss = ppo_losses.value_loss(value, tf.constant([1.0, 1.0]), tf.constant([6.0, 1.0]), 0.5)
    # towards its target it is held (the clipped error is the larger), away from it it comes back
    np.testing.assert_allclose(tape.gradient(loss, value), [0.0, 2 * 4.0 / 2])


def test_approximate_kl_is_close_to_the_divergence_and_never_negative():
    # exp(x) - 1 - x of ratios 2, 1/2 and 1: 2 - 1 - ln 2 = 0.307; ln 2 - 0.5 = 0.193; 0
    log_ratio = tf.math.log(tf.constant([2.0, 0.5, 1.0]))
    np.testing.assert_allclose(ppo_losses.approximate_kl(log_ratio), 0.5 / 3, rtol=1e-6)
    # Rows drawn from the old policy (0.5, 0.5), now (0.4, 0.6): in the mean the divergence.
    rows = tf.math.log(tf.constant([0.4 / 0.5, 0.6 / 0.5]))
    divergence = 0.5 * np.log(0.5 / 0.4) + 0.5 * np.log(0.5 / 0.6)
    np.testing.assert_allclose(ppo_losses.approximate_kl(rows), divergence, rtol=1e-5)
