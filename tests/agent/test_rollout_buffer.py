import numpy as np
import pytest
import scipy.stats
import tensorflow as tf

from kytolly.agent.randomness import RandomStream
from kytolly.agent.rollout_buffer import RolloutBuffer, minibatch, order_keys
from kytolly.environment.probe.on_policy import ContinuousAction, MaskedKinds
from kytolly.environment.spec import Discrete, EnvSpec
from kytolly.policy.batch import PPOBatch, Rollout


def rows_of(steps, copies):
    """A batch whose every column tells the row, time-major: row = time * copies + copy."""
    row = tf.range(steps * copies)
    number = tf.cast(row, tf.float32)
    obs = {"time": row // copies, "copy": tf.stack([row % copies] * 2, axis=-1)}
    return PPOBatch(obs, row, number, number + 0.25, number + 0.5, number + 0.75)


def dealer(batch, parts):
    """A function from keys to the parts of one pass."""
    rows = int(batch.value.shape[0]) // parts
    take = tf.function(
        lambda index, keys: minibatch(batch, index, rows, keys), jit_compile=True, autograph=False
    )
    return lambda keys: [take(tf.constant(part), keys) for part in range(parts)]


def test_each_pass_visits_every_row_once_and_no_two_passes_are_alike():
    deal, epochs = dealer(rows_of(12, 5), 6), 4
    keys = tf.reshape(RandomStream(0).bits(order_keys(epochs)), [epochs, -1])
    orders = []
    for epoch in range(epochs):
        parts = deal(keys[epoch])
        assert all(part.value.shape == [10] for part in parts)
        orders.append(np.concatenate([part.action for part in parts]))
        np.testing.assert_array_equal(np.sort(orders[-1]), np.arange(60))
    assert len({tuple(found) for found in orders}) == epochs
    # nor are the same rows together
    assert len({frozenset(found[:10].tolist()) for found in orders}) == epochs


def test_the_columns_of_a_row_stay_together():
    for part in dealer(rows_of(8, 4), 4)(RandomStream(1).bits(order_keys(1))):
        row = part.action.numpy()
        for column, offset in zip(part[2:], (0.0, 0.25, 0.5, 0.75), strict=True):
            np.testing.assert_array_equal(column, row + offset)
        np.testing.assert_array_equal(part.obs["time"], row // 4)
        np.testing.assert_array_equal(part.obs["copy"], np.stack([row % 4] * 2, axis=-1))


@pytest.mark.parametrize("steps, copies", [(128, 4), (16, 48), (512, 1)])
def test_minibatches_mix_copies_and_times(steps, copies):
    eighth = np.arange(steps) * 8 // steps
    tables, deal = np.zeros((2, 4, 8)), dealer(rows_of(steps, copies), 4)
    for number in range(30):
        for place, part in enumerate(deal(RandomStream(number).bits(order_keys(1)))):
            time = part.obs["time"].numpy()
            counts = np.bincount(eighth[time], minlength=8)
            # an eighth of the rollout is a part of 1/8 of a minibatch, give or take five deviations
            mean = len(time) / 8
            assert abs(counts - mean).max() < 5 * np.sqrt(mean), number
            tables[0, place] += counts
            tables[1, place] += np.bincount(part.obs["copy"][:, 0] * 8 // copies, minlength=8)
    assert scipy.stats.chi2_contingency(tables[0]).pvalue > 1e-4
    spread = tables[1][:, tables[1].sum(axis=0) > 0]
    assert copies == 1 or scipy.stats.chi2_contingency(spread).pvalue > 1e-4


def step_of(spec, value):
    return tf.nest.map_structure(lambda leaf: tf.cast(tf.fill(leaf.shape, value), leaf.dtype), spec)


@pytest.mark.parametrize(
    "spec, obs, action",
    [
        (EnvSpec("vector", tf.TensorSpec([3]), Discrete(2)), (5, 2, 3), (5, 2)),
        (ContinuousAction.spec, (5, 2, 1), (5, 2, 2)),
        (MaskedKinds.spec, (5, 2, 3), (5, 2, 2)),
    ],
    ids=["vector", "box", "dict"],
)
def test_steps_are_written_time_major_within_a_program(spec, obs, action):
    buffer = RolloutBuffer(spec, 2, 5)

    @tf.function(jit_compile=True, autograph=False)
    def collect():
        columns = buffer.empty()
        for time in range(5):
            step = step_of(buffer.step_spec, time)
            columns = buffer.written(columns, tf.constant(time), step)
        return buffer.rollout(columns)

    rollout = collect()
    assert isinstance(rollout, Rollout)
    assert tf.nest.map_structure(lambda x: x.shape, rollout) == tf.nest.map_structure(
        lambda x: x.shape, buffer.rollout_spec
    )
    first = rollout.obs["place"] if isinstance(rollout.obs, dict) else rollout.obs
    assert first.shape == obs and rollout.action.shape == action
    np.testing.assert_array_equal(rollout.reward, np.repeat(np.arange(5.0)[:, None], 2, axis=1))
    if spec.masked:
        assert rollout.obs["action_mask"].dtype == tf.bool


def test_without_log_probabilities_there_is_no_column_for_them():
    buffer = RolloutBuffer(ContinuousAction.spec, 2, 5, keeps_log_prob=False)
    assert buffer.rollout_spec.log_prob == ()
