import numpy as np
import pytest
import tensorflow as tf

from kytolly.policy.value_learning import double_q_target, huber, huber_delta, q_target

both = pytest.mark.parametrize("compiled", [False, True], ids=["eager", "xla"])


@both
def test_q_target_evaluates_the_next_state_at_its_best_action(maybe_compile, compiled):
    target = maybe_compile(q_target, compiled)(
        tf.constant([1.0, -1.0]), tf.constant([0.5, 0.0]), tf.constant([[2.0, 8.0], [30.0, 40.0]])
    )
    # row 0: 1 + 0.5 * 8 = 5 (a mean would give 3.5); row 1 terminated.
    np.testing.assert_allclose(target, [5.0, -1.0])


@both
def test_double_q_target_evaluates_the_online_choice_by_the_target_network(maybe_compile, compiled):
    next_q_online = tf.constant([[1.0, 3.0], [5.0, 2.0]])  # picks action 1, then action 0
    next_q_target = tf.constant([[20.0, 10.0], [30.0, 40.0]])
    target = maybe_compile(double_q_target, compiled)(
        tf.constant([1.0, -1.0]), tf.constant([0.5, 0.0]), next_q_online, next_q_target
    )
    # row 0: 1 + 0.5 * 10 = 6 (plain DQN would give 11, swapped networks 2.5); row 1 terminated.
    np.testing.assert_allclose(target, [6.0, -1.0])


@pytest.mark.parametrize("rule", ["q", "double"])
def test_no_gradient_passes_through_a_target(rule):
    q = tf.Variable([[1.0, 2.0]])
    one = tf.constant([1.0])
    with tf.GradientTape() as tape:
        target = q_target(one, one, q) if rule == "q" else double_q_target(one, one, q, q)
    assert tape.gradient(target, q) is None


def test_huber_is_quadratic_then_linear():
    # delta 2: 0.5 * 0.25 = 0.125; 2 * 3 - 0.5 * 4 = 4
    np.testing.assert_allclose(huber(tf.constant([0.5, -3.0]), 2.0), [0.125, 4.0], rtol=1e-6)


def test_an_error_as_large_as_a_large_reward_of_its_row_is_no_outlier():
    # a row's penalty of 10: 0.5 * 36; none that is large: 1 * 6 - 0.5
    delta = huber_delta(None, tf.constant([-10.0, 4.9, -4.9]))
    np.testing.assert_allclose(delta, [10.0, 1.0, 1.0])
    np.testing.assert_allclose(huber(tf.fill([3], -6.0), delta), [18.0, 5.5, 5.5], rtol=1e-6)


def test_the_gradient_of_huber_is_the_clipped_error():
    td_error = tf.Variable([0.5, -3.0, 7.0])
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(huber(td_error, 2.0))
    np.testing.assert_allclose(
        tape.gradient(loss, td_error), np.array([0.5, -2.0, 2.0]) / 3, rtol=1e-5
    )
