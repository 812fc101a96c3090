import numpy as np
import tensorflow as tf

from kytolly.agent.n_step import n_step_return

REWARD = tf.constant([[1.0, 10.0, 100.0]])


def fold(discount, last):
    total, weight, used = n_step_return(REWARD, tf.constant([discount]), tf.constant([last]))
    return float(total[0]), float(weight[0]), int(used[0])


def test_a_whole_window_sums_all_rewards():
    # 1 + 0.5*10 + 0.25*100 = 31, bootstrap with 0.125
    assert fold([0.5, 0.5, 0.5], [False, False, False]) == (31.0, 0.125, 2)


def test_a_termination_in_the_middle_ends_the_sum_and_the_future():
    assert fold([0.5, 0.0, 0.5], [False, True, False]) == (6.0, 0.0, 1)


def test_a_time_limit_in_the_middle_ends_the_sum_but_not_the_future():
    assert fold([0.5, 0.5, 0.5], [False, True, False]) == (6.0, 0.25, 1)


def test_an_end_at_the_first_step_leaves_one_reward():
    assert fold([0.0, 0.5, 0.5], [True, False, False]) == (1.0, 0.0, 0)


def test_an_end_at_the_last_step_keeps_the_whole_window():
    assert fold([0.5, 0.5, 0.0], [False, False, True]) == (31.0, 0.0, 2)


def test_rows_are_folded_apart():
    total, _, used = n_step_return(
        tf.constant([[1.0, 1.0], [1.0, 1.0]]),
        tf.constant([[0.5, 0.5], [0.0, 0.5]]),
        tf.constant([[False, False], [True, False]]),
    )
    np.testing.assert_allclose(total, [1.5, 1.0])
    np.testing.assert_array_equal(used, [1, 0])
