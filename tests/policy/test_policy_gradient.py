import numpy as np
import pytest
import tensorflow as tf

from kytolly.policy import losses, returns

both = pytest.mark.parametrize("compiled", [False, True], ids=["eager", "xla"])


@both
def test_clipped_surrogate_gains_nothing_beyond_the_range_and_loses_without_limit(
    maybe_compile, compiled
):
    # clip range 0.2; one row each of: inside, above, below, for either sign of the advantage
    ratio = tf.constant([1.1, 1.5, 0.5, 1.1, 1.5, 0.5])
    advantage = tf.constant([2.0, 2.0, 2.0, -2.0, -2.0, -2.0])
    # min(ratio A, clipped A): 2.2, 2.4, 1.0, -2.2, -3.0, -1.6; their sum is -1.2
    loss = maybe_compile(lambda r, a: losses.clipped_surrogate(r, a, 0.2), compiled)
    np.testing.assert_allclose(loss(ratio, advantage), 1.2 / 6, rtol=1e-5)


def test_clipped_surrogate_has_no_gradient_where_the_clip_holds():
    ratio = tf.Variable([1.1, 1.5, 0.5, 1.1, 1.5, 0.5])
    with tf.GradientTape() as tape:
        loss = losses.clipped_surrogate(ratio, tf.constant([2.0, 2.0, 2.0, -2.0, -2.0, -2.0]), 0.2)
    # -A / 6, but 0 for a good action above the range and for a bad one below it
    expected = np.array([-2.0, 0.0, -2.0, 2.0, 2.0, 0.0]) / 6
    np.testing.assert_allclose(tape.gradient(loss, ratio), expected, rtol=1e-6)


@both
def test_value_loss_takes_the_worse_of_the_value_and_the_clipped_value(maybe_compile, compiled):
    value, old_value = tf.constant([5.0, 5.0, 1.2]), tf.constant([1.0, 1.0, 1.0])
    target = tf.constant([6.0, 1.0, 3.0])
    plain = maybe_compile(lambda *rows: losses.value_loss(*rows, None), compiled)
    clipped = maybe_compile(lambda *rows: losses.value_loss(*rows, 0.5), compiled)
    # errors -1, 4, -1.8: squares 1, 16, 3.24
    np.testing.assert_allclose(plain(value, old_value, target), 20.24 / 3, rtol=1e-6)
    # clipped values 1.5, 1.5, 1.2 have errors -4.5, 0.5, -1.8: the larger squares 20.25, 16, 3.24
    np.testing.assert_allclose(clipped(value, old_value, target), 39.49 / 3, rtol=1e-6)


def test_a_value_that_moved_beyond_its_range_is_not_pulled_further():
    value = tf.Variable([5.0, 5.0])
    with tf.GradientTape() as tape:
        loss = losses.value_loss(value, tf.constant([1.0, 1.0]), tf.constant([6.0, 1.0]), 0.5)
    # towards its target it is held (the clipped error is the larger), away from it it comes back
    np.testing.assert_allclose(tape.gradient(loss, value), [0.0, 2 * 4.0 / 2])


def test_approximate_kl_is_close_to_the_divergence_and_never_negative():
    # exp(x) - 1 - x of ratios 2, 1/2 and 1: 2 - 1 - ln 2 = 0.307; ln 2 - 0.5 = 0.193; 0
    log_ratio = tf.math.log(tf.constant([2.0, 0.5, 1.0]))
    np.testing.assert_allclose(losses.approximate_kl(log_ratio), 0.5 / 3, rtol=1e-6)
    # Rows drawn from the old policy (0.5, 0.5), now (0.4, 0.6): in the mean the divergence.
    rows = tf.math.log(tf.constant([0.4 / 0.5, 0.6 / 0.5]))
    divergence = 0.5 * np.log(0.5 / 0.4) + 0.5 * np.log(0.5 / 0.6)
    np.testing.assert_allclose(losses.approximate_kl(rows), divergence, rtol=1e-5)


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
        lambda *args: returns.generalized_advantage(*args, gae_lambda=0.8), compiled
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
    found = returns.generalized_advantage(
        *(tf.constant(x, tf.float32) for x in (td_error, discount)), tf.constant(last), 0.9
    )
    np.testing.assert_allclose(found, expected, atol=1e-5)


def lambda_rows():
    """Reward, discount, last and next value [4, 3], each environment a list of four steps."""
    reward = [[1.0, 2.0, 3.0, 4.0]] * 3
    # Environment 0 goes on, 1 terminates at step 1, 2 is truncated there.
    discount = [[0.5] * 4, [0.5, 0.0, 0.5, 0.5], [0.5] * 4]
    last = [[False] * 4, [False, True, False, False], [False, True, False, False]]
    next_value = [[10.0, 20.0, 40.0, 80.0]] * 3
    return [tf.transpose(tf.constant(column)) for column in (reward, discount, last, next_value)]


@both
def test_lambda_returns_by_hand(maybe_compile, compiled):
    found = maybe_compile(lambda *rows: returns.lambda_return(*rows, td_lambda=0.8), compiled)(
        *lambda_rows()
    )
    # Step 3: 4 + 0.5 * 80 = 44. Step 2: 3 + 0.5 (0.8 * 44 + 0.2 * 40) = 24.6; with the value of
    # the last state in the place of the next one's, as purejaxql begins, 28.6.
    # Step 1: 2 + 0.5 (0.8 * 24.6 + 0.2 * 20) = 13.84; one step late, as rejax stores it, 15.84.
    # Step 0: 1 + 0.5 (0.8 * 13.84 + 0.2 * 10) = 7.536.
    # Terminated: 2, then 1 + 0.5 (0.8 * 2 + 0.2 * 10) = 2.8.
    # Truncated: 2 + 0.5 * 20 = 12, then 1 + 0.5 (0.8 * 12 + 0.2 * 10) = 6.8.
    expected = [[7.536, 13.84, 24.6, 44.0], [2.8, 2.0, 24.6, 44.0], [6.8, 12.0, 24.6, 44.0]]
    np.testing.assert_allclose(np.transpose(found), expected, rtol=1e-6)


def wrong_targets(kind, reward, discount, last, next_value, td_lambda):
    """What two public implementations, and two plain mistakes, compute."""
    following = reward[-1] + discount[-1] * next_value[-1]
    targets, value = [following], next_value[-1]
    for time in reversed(range(len(reward) - 1)):
        keeps = discount[time] * td_lambda * (1.0 if kind == "uncut" else ~last[time])
        late = {"purejaxql": value, "rejax": next_value[time + 1]}.get(kind, next_value[time])
        if kind == "after reset":
            late = np.where(last[time], 99.0, late)
        following = reward[time] + discount[time] * late + keeps * (following - late)
        targets, value = [following, *targets], next_value[time]
    return np.transpose(targets)


@pytest.mark.parametrize("kind", ["purejaxql", "rejax", "uncut", "after reset"])
def test_wrong_lambda_returns_differ_from_ours(kind):
    rows = lambda_rows()
    ours = np.transpose(returns.lambda_return(*rows, td_lambda=0.8))
    right = wrong_targets("none", *(row.numpy() for row in rows), 0.8)
    np.testing.assert_allclose(right, ours, rtol=1e-6)
    assert not np.allclose(wrong_targets(kind, *(row.numpy() for row in rows), 0.8), ours)


@pytest.mark.parametrize("td_lambda, steps", [(0.0, 1), (1.0, 4)])
def test_lambda_0_looks_one_step_ahead_and_lambda_1_to_the_end(td_lambda, steps):
    found = returns.lambda_return(*lambda_rows(), td_lambda=td_lambda)[0, 0]
    # 1 + 0.5 * 10; 1 + 0.5 * 2 + 0.25 * 3 + 0.125 * 4 + 0.0625 * 80
    np.testing.assert_allclose(found, {1: 6.0, 4: 8.25}[steps])


def test_explained_variance_is_one_for_the_truth_and_zero_for_a_constant():
    target = tf.constant([1.0, 2.0, 6.0])  # mean 3, variance (4 + 1 + 9) / 3 = 14 / 3
    assert float(returns.explained_variance(target, target)) == 1.0
    assert float(returns.explained_variance(target + 5.0, target)) == 1.0  # an offset is no error
    np.testing.assert_allclose(
        returns.explained_variance(tf.fill([3], 9.0), target), 0.0, atol=1e-6
    )
    # errors 0, 0, 3: mean 1, variance (1 + 1 + 4) / 3 = 2, and 1 - 2 / (14 / 3) = 4 / 7
    estimate = tf.constant([1.0, 2.0, 3.0])
    np.testing.assert_allclose(returns.explained_variance(estimate, target), 4 / 7, rtol=1e-6)
    assert np.isnan(returns.explained_variance(estimate, tf.ones(3)))
