import numpy as np
import pytest
import tensorflow as tf

from kytolly.agent.randomness import RandomStream
from kytolly.agent.replay_buffer import ReplayBuffer
from kytolly.policy.value_learning import n_step_return
from tests.helpers.replay_rows import SPEC, none_last, ops_of_size, rows


def test_the_oldest_rows_are_overwritten_across_the_border():
    buffer = ReplayBuffer(5, SPEC)
    for start in (0, 3, 6):
        batch = rows(range(start, start + 3))
        buffer.add(batch, none_last(batch))
    assert int(buffer.size) == 5
    np.testing.assert_array_equal(buffer.columns.reward, [5, 6, 7, 8, 4])


def test_sampling_reaches_every_row_and_only_written_ones():
    buffer = ReplayBuffer(100, SPEC)
    batch = rows(range(1, 8))
    buffer.add(batch, none_last(batch))
    found = buffer.sample(RandomStream(0).random_bits(7_000))
    values, counts = np.unique(found.reward.numpy(), return_counts=True)
    np.testing.assert_array_equal(values, np.arange(1, 8))
    assert abs(counts - 1_000).max() < 150
    np.testing.assert_array_equal(found.obs[:, 0] + 1, found.next_obs[:, 0])


def test_n_step_rows_follow_their_own_copy_through_the_border_of_the_ring():
    buffer = ReplayBuffer(11, SPEC, stride=2, n_step=3)  # 11 is no multiple of 2 on purpose
    for time_step in range(9):
        batch = rows([time_step], copies=2)
        buffer.add(batch, none_last(batch))
    found = buffer.sample(RandomStream(0).random_bits(500))
    start, copy = found.obs[:, 0].numpy(), found.obs[:, 1].numpy()
    np.testing.assert_allclose(found.reward, start + 0.5 * (start + 1) + 0.25 * (start + 2))
    np.testing.assert_allclose(found.discount, 0.125)
    np.testing.assert_allclose(found.next_obs[:, 0], start + 3)
    np.testing.assert_allclose(found.next_obs[:, 1], copy)
    # 11 rows hold times 4 to 8 of both copies and one row of time 3; a window needs three times
    assert set(start) == {3, 4, 5, 6} and set(copy) == {0, 1}


def test_n_step_stops_at_the_end_of_an_episode():
    buffer = ReplayBuffer(20, SPEC, n_step=3)
    batch = rows(range(1, 7))
    last = tf.constant([False, True, False, False, False, False])  # a time limit at time 2
    buffer.add(batch, last)
    found = buffer.rows(tf.constant([0, 1, 2]))
    np.testing.assert_allclose(found.reward, [1 + 0.5 * 2, 2, 3 + 0.5 * 4 + 0.25 * 5])
    np.testing.assert_allclose(found.discount, [0.25, 0.5, 0.125])
    np.testing.assert_allclose(found.next_obs[:, 0], [3, 3, 6])


def test_n_step_stops_before_a_random_action_and_goes_on_from_there():
    buffer = ReplayBuffer(20, SPEC, n_step=3, cuts_explored=True)
    batch = rows(range(1, 7))
    explored = tf.constant([True, False, True, True, False, False])
    buffer.add(batch, none_last(batch), explored)
    found = buffer.rows(tf.constant([0, 1, 2, 3]))
    # The own action may be random; the rewards end before the next one that is.
    np.testing.assert_allclose(found.reward, [1 + 0.5 * 2, 2, 3, 4 + 0.5 * 5 + 0.25 * 6])
    np.testing.assert_allclose(found.discount, [0.25, 0.5, 0.5, 0.125])
    np.testing.assert_allclose(found.next_obs[:, 0], [3, 3, 4, 7])


def test_images_stay_uint8():
    image = tf.TensorSpec([8, 8, 3], tf.uint8)
    assert ReplayBuffer(4, image).columns.obs.dtype == tf.uint8


def test_an_unknown_number_of_rows_is_refused():
    buffer = ReplayBuffer(5, SPEC)
    batch = rows(range(6))
    with pytest.raises(ValueError, match="6 rows for a buffer of 5"):
        buffer.add(batch, none_last(batch))


@pytest.mark.parametrize("in_place", [True, False])
def test_adding_and_sampling_do_not_copy_the_buffer(in_place):
    """Only what writes in place makes a result of the buffer's size; the other case is a trap."""
    buffer, stream, batch = ReplayBuffer(20_011, SPEC), RandomStream(0), rows(range(16))

    def once(done, total):
        if in_place:
            buffer.add(batch, none_last(batch))
        else:
            whole = tf.concat([batch.reward, buffer.columns.reward[16:]], axis=0)
            buffer.columns.reward.assign(whole)
        return done + 1, total + buffer.sample(stream.random_bits(32)).reward[0]

    def work():
        return tf.while_loop(lambda done, _: done < 300, once, (0, 0.0))[1]

    program = tf.function(work, jit_compile=True, autograph=False)
    found = ops_of_size(program, 20_011)
    writes = {"parameter", "get-tuple-element", "scatter", "fusion"}
    # Compilers differ in which of these appear; anything else copies the column.
    assert ("scatter" in found and found <= writes) if in_place else (found - writes), found


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
