"""Rollouts that are kept: their order, their weights, and the rows that updates get of them."""

import math

import numpy as np
import pytest
import tensorflow as tf

from kytolly import PPOConfig
from kytolly.agent.kept_rollouts import KeptRollouts
from kytolly.agent.make_agent import make_agent
from kytolly.agent.randomness import RandomStream
from kytolly.agent.reward_scale import RewardScale
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


@pytest.mark.parametrize("added, times", [(1, [3, 3]), (2, [2, 2, 1, 1]), (5, [1] * 6)])
def test_rows_come_only_from_rollouts_that_are_there_the_newest_most_often(added, times):
    kept = kept_rollouts(3)
    kept.added.assign(added)
    slots = kept.filled(tf.range(3 * STEPS * ENVS)).numpy()
    np.testing.assert_array_equal(slots // kept.width, np.repeat(np.arange(STEPS), kept.width))
    columns, counts = np.unique(slots % kept.width, return_counts=True)
    np.testing.assert_array_equal(columns, np.arange(len(times)))
    np.testing.assert_array_equal(counts, STEPS * np.array(times))


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
    buffer, policy = RolloutBuffer(STEPS * ENVS, 1, 1, kept=kept), make_policy()
    return [buffer.open(make_rollout(number), policy) for number in numbers]


def make_policy():
    cfg = PPOConfig(num_envs=ENVS, rollout_steps=STEPS, num_minibatches=1)
    return make_agent(cfg, SPEC).policy


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


def test_advantages_of_actions_that_were_more_probable_once_count_less():
    kept, policy = kept_rollouts(2), make_policy()
    buffer = RolloutBuffer(STEPS * ENVS, 1, 1, kept=kept)
    buffer.open(make_rollout(1), policy)
    kept.log_prob.assign_add(tf.fill(kept.log_prob.shape, math.log(2.0)))
    found, _ = buffer.open(make_rollout(2), policy)
    expected, _ = opened(kept_rollouts(2), [1, 2])[1]
    ratio = tf.reshape(found.advantage / expected.advantage, [STEPS, 2 * ENVS])
    np.testing.assert_allclose(ratio, [[1.0, 1.0, 0.5, 0.5]] * STEPS, rtol=1e-5)
    np.testing.assert_allclose(found.target, expected.target, rtol=1e-5)


def test_rewards_of_all_rollouts_are_in_present_units_and_counted_once():
    kept, scale = kept_rollouts(2), RewardScale(ENVS, gamma=0.0, clip=100.0)
    for number in (1, 2):
        found = kept.add(make_rollout(number), scale).reward
    rewards = [make_rollout(number).reward.numpy() for number in (2, 1)]
    np.testing.assert_allclose(found, np.hstack(rewards) / np.std(rewards), rtol=1e-3)
    assert float(scale.count) == 2 * STEPS * ENVS
