import numpy as np
import pytest
import tensorflow as tf

from kytolly.policy import advantages, targets

both = pytest.mark.parametrize("compiled", [False, True], ids=["eager", "xla"])


@both
def test_q_target_evaluates_the_next_state_at_its_best_action(maybe_compile, compiled):
    target = maybe_compile(targets.q_target, compiled)(
        tf.constant([1.0, -1.0]), tf.constant([0.5, 0.0]), tf.constant([[2.0, 8.0], [30.0, 40.0]])
    )
    # row 0: 1 + 0.5 * 8 = 5 (a mean would give 3.5); row 1 terminated.
    np.testing.assert_allclose(target, [5.0, -1.0])


@both
def test_double_q_target_evaluates_the_online_choice_by_the_target_network(maybe_compile, compiled):
    next_q_online = tf.constant([[1.0, 3.0], [5.0, 2.0]])  # picks action 1, then action 0
    next_q_target = tf.constant([[20.0, 10.0], [30.0, 40.0]])
    target = maybe_compile(targets.double_q_target, compiled)(
        tf.constant([1.0, -1.0]), tf.constant([0.5, 0.0]), next_q_online, next_q_target
    )
    # row 0: 1 + 0.5 * 10 = 6 (plain DQN would give 11, swapped networks 2.5); row 1 terminated.
    np.testing.assert_allclose(target, [6.0, -1.0])


@pytest.mark.parametrize("rule", ["q", "double"])
def test_no_gradient_passes_through_a_target(rule):
    q = tf.Variable([[1.0, 2.0]])
    one = tf.constant([1.0])
    with tf.GradientTape() as tape:
        if rule == "q":
            target = targets.q_target(one, one, q)
        else:
            target = targets.double_q_target(one, one, q, q)
    assert tape.gradient(target, q) is None


def backward_recursion(td_error, discount, last, gae_lambda):
    advantage, following = np.zeros_like(td_error), np.zeros(td_error.shape[1])
    for time in reversed(range(len(td_error))):
        following = np.where(last[time], 0.0, gae_lambda * discount[time] * following)
        following = advantage[time] = td_error[time] + following
    return advantage


@both
def test_advantages_sum_temporal_differences_up_to_an_episodes_end(maybe_compile, compiled):
    # Two copies, five steps. Copy 0 terminates at step 1, copy 1 is cut off at step 2.
    td_error = tf.transpose(tf.constant([[1.0, 2.0, 4.0, 8.0, 16.0], [1.0, -2.0, 3.0, 5.0, -1.0]]))
    discount = tf.transpose(tf.constant([[0.5, 0.0, 0.5, 0.5, 0.5], [0.5] * 5]))
    last = tf.transpose(tf.constant([[0, 1, 0, 0, 0], [0, 0, 1, 0, 0]]) > 0)
    found = maybe_compile(
        lambda *args: advantages.generalized_advantage(*args, gae_lambda=0.8), compiled
    )(td_error, discount, last)
    # weight 0.5 * 0.8 = 0.4. Copy 0: 16; 8 + 0.4 * 16 = 14.4; 4 + 0.4 * 14.4 = 9.76; then the end:
    # 2; 1 + 0.4 * 2 = 1.8. Copy 1: -1; 5 - 0.4 = 4.6; 3, not 3 + 0.4 * 4.6, though its discount
    # is 0.5; -2 + 0.4 * 3 = -0.8; 1 - 0.32 = 0.68.
    expected = [[1.8, 2.0, 9.76, 14.4, 16.0], [0.68, -0.8, 3.0, 4.6, -1.0]]
    np.testing.assert_allclose(np.transpose(found), expected, rtol=1e-6)


@pytest.mark.parametrize("steps", [1, 2, 3, 7, 13, 16, 31, 128])
def test_doubling_equals_the_plain_recursion_for_any_number_of_steps(steps):
    rng = np.random.default_rng(steps)
    td_error = rng.normal(size=(steps, 6))
    terminated = rng.random((steps, 6)) < 0.1
    last = terminated | (rng.random((steps, 6)) < 0.1)
    discount = np.where(terminated, 0.0, 0.97)
    expected = backward_recursion(td_error, discount, last, 0.9)
    found = advantages.generalized_advantage(
        *(tf.constant(x, tf.float32) for x in (td_error, discount)), tf.constant(last), 0.9
    )
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_explained_variance_is_one_for_the_truth_and_zero_for_a_constant():
    target = tf.constant([1.0, 2.0, 6.0])  # mean 3, variance (4 + 1 + 9) / 3 = 14 / 3
    assert float(advantages.explained_variance(target, target)) == 1.0
    assert (
        float(advantages.explained_variance(target + 5.0, target)) == 1.0
    )  # an offset is no error
    np.testing.assert_allclose(
        advantages.explained_variance(tf.fill([3], 9.0), target), 0.0, atol=1e-6
    )
    # errors 0, 0, 3: mean 1, variance (1 + 1 + 4) / 3 = 2, and 1 - 2 / (14 / 3) = 4 / 7
    estimate = tf.constant([1.0, 2.0, 3.0])
    np.testing.assert_allclose(advantages.explained_variance(estimate, target), 4 / 7, rtol=1e-6)
    assert np.isnan(advantages.explained_variance(estimate, tf.ones(3)))
