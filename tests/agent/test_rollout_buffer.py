import numpy as np
import pytest
import scipy.stats
import tensorflow as tf

from kytolly.agent.randomness import RandomStream
from kytolly.agent.rollout_buffer import RolloutBuffer
from kytolly.policy.ppo import PPOBatch


def rows_of(steps, num_envs):
    """A batch whose every column tells the row, time-major: row = time * num_envs + env."""
    row = tf.range(steps * num_envs)
    number = tf.cast(row, tf.float32)
    obs = {"time": row // num_envs, "env": tf.stack([row % num_envs] * 2, axis=-1)}
    return PPOBatch(obs, row, number, number + 0.25, number + 0.5, number + 0.75)


def make_dealer(batch, parts, epochs=1):
    """A function from a stream's number to the parts of every pass, [epochs][parts]."""
    buffer = RolloutBuffer(int(batch.value.shape[0]) // parts, parts, epochs)
    take = tf.function(
        lambda index, bits: buffer.batch(batch, index, bits), jit_compile=True, autograph=False
    )

    def deal(number):
        bits = RandomStream(number).random_bits(buffer.num_random_words)
        found = [take(tf.constant(index), bits) for index in range(buffer.updates)]
        return [found[epoch * parts : (epoch + 1) * parts] for epoch in range(epochs)]

    return deal


def test_each_pass_visits_every_row_once_and_no_two_passes_are_alike():
    orders = []
    for parts in make_dealer(rows_of(12, 5), 6, epochs=4)(0):
        assert all(part.value.shape == [10] for part in parts)
        orders.append(np.concatenate([part.action for part in parts]))
        np.testing.assert_array_equal(np.sort(orders[-1]), np.arange(60))
    assert len({tuple(found) for found in orders}) == 4
    # nor are the same rows together
    assert len({frozenset(found[:10].tolist()) for found in orders}) == 4


def test_the_columns_of_a_row_stay_together():
    for part in make_dealer(rows_of(8, 4), 4)(1)[0]:
        row = part.action.numpy()
        for column, offset in zip(part[2:], (0.0, 0.25, 0.5, 0.75), strict=True):
            np.testing.assert_array_equal(column, row + offset)
        np.testing.assert_array_equal(part.obs["time"], row // 4)
        np.testing.assert_array_equal(part.obs["env"], np.stack([row % 4] * 2, axis=-1))


@pytest.mark.parametrize("steps, num_envs", [(128, 4), (16, 48), (512, 1)])
def test_minibatches_mix_environments_and_times(steps, num_envs):
    eighth = np.arange(steps) * 8 // steps
    tables, deal = np.zeros((2, 4, 8)), make_dealer(rows_of(steps, num_envs), 4)
    for number in range(30):
        for place, part in enumerate(deal(number)[0]):
            time = part.obs["time"].numpy()
            counts = np.bincount(eighth[time], minlength=8)
            # an eighth of the rollout is a part of 1/8 of a minibatch, give or take five deviations
            mean = len(time) / 8
            assert abs(counts - mean).max() < 5 * np.sqrt(mean), number
            tables[0, place] += counts
            tables[1, place] += np.bincount(part.obs["env"][:, 0] * 8 // num_envs, minlength=8)
    assert scipy.stats.chi2_contingency(tables[0]).pvalue > 1e-4
    spread = tables[1][:, tables[1].sum(axis=0) > 0]
    assert num_envs == 1 or scipy.stats.chi2_contingency(spread).pvalue > 1e-4
