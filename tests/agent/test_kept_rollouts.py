"""Rollouts that are kept: their order, their weights, and the rows that updates get of them."""

import math

import numpy as np
import pytest
import tensorflow as tf

from kytolly import PPOConfig
from kytolly.agent.kept_rollouts import KeptRollouts
from kytolly.agent.make_agent import make_agent
from kytolly.agent.randomness import RandomStream
from kytolly.agent.rollout_buffer import RolloutBuffer
from kytolly.environment.spec import Discrete, EnvSpec
from kytolly.policy.batch import Rollout

STEPS, ENVS = 4, 2
SPEC = EnvSpec("Kept-v1", tf.TensorSpec([3], tf.float32), Discrete(2), None)


def kept_rollouts(count):
    return KeptRollouts(count, STEPS, ENVS, SPEC)


def make_rollout(number):
    """A rollout whose rewards are 10 times its number, plus the row's."""
    generator = np.random.default_rng(number)
    shape = STEPS, ENVS
    reward = 10.0 * number + np.arange(8.0).reshape(shape)
    obs, next_obs = generator.normal(size=(2, *shape, 3))
    numbers = (tf.constant(x, tf.float32) for x in (obs, reward, np.full(shape, 0.9), next_obs))
    obs, reward, discount, next_obs = numbers
    action = tf.constant(generator.integers(2, size=shape), tf.int32)
    return Rollout(obs, action, reward, discount, next_obs, tf.zeros(shape, tf.bool))


def test_rollouts_stand_beside_each_other_the_newest_first_and_the_oldest_goes():
    kept = kept_rollouts(2)
    found = [kept.add(make_rollout(number)).reward for number in (1, 2, 3)]
    np.testing.assert_array_equal(found[0][1], [12, 13, 0, 0])  # nothing came before
    np.testing.assert_array_equal(found[1][1], [22, 23, 12, 13])
    np.testing.assert_array_equal(found[2][1], [32, 33, 22, 23])


def test_a_weight_is_how_much_more_probable_the_action_is_than_when_it_was_taken():
    kept = KeptRollouts(2, 1, 1, SPEC)
    first = kept.weights(tf.constant([[math.log(0.5), 0.0]]))
    np.testing.assert_allclose(first[:, :1], [[1.0]])
    # taken with 0.5, now 0.25; then taken with 0.1, now 0.9, which counts twice at most
    second = kept.weights(tf.constant([[math.log(0.1), math.log(0.25)]]))
    np.testing.assert_allclose(second, [[1.0, 0.5]], rtol=1e-6)
    third = kept.weights(tf.constant([[math.log(0.7), math.log(0.9)]]))
    np.testing.assert_allclose(third, [[1.0, 2.0]], rtol=1e-6)


@pytest.mark.parametrize("added, there", [(1, {0, 1}), (2, {0, 1, 2, 3}), (5, set(range(6)))])
def test_rows_come_of_rollouts_that_are_there_alone_and_as_often(added, there):
    kept = kept_rollouts(3)
    kept.added.assign(added)
    slots = kept.filled(tf.range(3 * STEPS * ENVS)).numpy()
    assert set(slots % kept.width) == there
    np.testing.assert_array_equal(slots // kept.width, np.repeat(np.arange(STEPS), kept.width))
    counts = np.unique(slots, return_counts=True)[1]
    assert added == 2 or len(set(counts)) == 1


def test_an_epoch_passes_over_every_row_that_is_kept():
    cfg = PPOConfig(
        num_envs=ENVS, rollout_steps=STEPS, num_minibatches=2, epochs=4, kept_rollouts=3
    )
    buffer = RolloutBuffer.for_config(cfg, SPEC)
    assert buffer.kept is not None and buffer.updates == cfg.updates_per_iteration
    buffer.kept.added.assign(3)
    bits = RandomStream(0).random_bits(buffer.num_random_words)
    numbers = (tf.range(3 * STEPS * ENVS),)
    for epoch in range(4):
        updates = [buffer.batch(numbers, 2 * epoch + part, bits)[0] for part in range(2)]
        assert [update.shape for update in updates] == [12, 12]
        assert set(np.concatenate(updates)) == set(range(24))


def opened(kept, numbers):
    """Rows of several rollouts in turn, learned from by a policy that never changes."""
    cfg = PPOConfig(num_envs=ENVS, rollout_steps=STEPS, num_minibatches=1)
    agent = make_agent(cfg, SPEC)
    buffer = RolloutBuffer(STEPS * ENVS, 1, 1, kept=kept)
    return [buffer.open(make_rollout(number), agent.policy) for number in numbers]


def test_one_rollout_that_is_kept_gives_the_rows_of_a_rollout_that_is_not():
    for found, expected in zip(opened(kept_rollouts(1), [1, 2]), opened(None, [1, 2]), strict=True):
        tf.nest.map_structure(np.testing.assert_array_equal, found, expected)


def test_older_rows_are_learned_from_by_the_present_estimates():
    found, metrics = opened(kept_rollouts(2), [1, 2])[1]
    apart = opened(None, [2, 1])
    for column, parts in zip(found, zip(*(rows for rows, _ in apart), strict=True), strict=True):
        joined = tf.concat([tf.reshape(part, [STEPS, ENVS, -1]) for part in parts], axis=1)
        np.testing.assert_allclose(tf.reshape(column, joined.shape), joined, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(metrics, apart[0][1], rtol=1e-5)  # of the newest alone
