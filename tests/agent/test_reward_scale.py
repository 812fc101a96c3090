import numpy as np
import pytest
import tensorflow as tf

from kytolly.agent.largest_reward import LargestReward
from kytolly.agent.make_agent import make_agent
from kytolly.agent.reward_scale import ReturnScale
from kytolly.config.dqn import DQNConfig
from kytolly.environment.tensor.cartpole import CartPole
from kytolly.policy.action_values import reward_scale
from kytolly.policy.batch import Rollout


def rollout(reward, last):
    return Rollout(None, None, tf.constant(reward), None, None, tf.constant(last))


def test_the_scale_is_one_over_the_root_of_the_mean_square_of_discounted_sums():
    scale = ReturnScale(num_envs=2, gamma=0.5)
    assert scale.factor(rollout([[0.0, 0.0]], [[False, False]])) == 1.0
    first = scale.factor(rollout([[4.0, 0.0], [2.0, 8.0]], [[False, False], [True, False]]))
    # Sums: 4, 0; 2 + 2 = 4, 8. With the two zeros before: (16 + 16 + 64) / 6 = 16.
    np.testing.assert_allclose(first, 1 / 4)
    second = scale.factor(rollout([[2.0, 0.0]], [[False, True]]))
    # The first environment begins anew, the second has 0.5 x 8: (96 + 4 + 16) / 8 = 14.5.
    np.testing.assert_allclose(second, 14.5**-0.5)


def test_a_table_learns_from_shares_of_the_largest_reward():
    scale = LargestReward()
    assert scale.factor(rollout([[0.0, 0.0]], [[False, False]])) == 1.0
    assert scale.factor(rollout([[-1.0, 0.5], [0.0, -4.0]], [[True, False]] * 2)) == 1 / 4
    assert scale.factor(rollout([[2.0, 0.0]], [[False, False]])) == 1 / 4
    again = LargestReward()
    again.begin_at(0.125)
    assert again.factor(rollout([[2.0, 0.0]], [[False, False]])) == 1 / 8


@pytest.mark.parametrize(("factor", "tolerance"), [(1_000.0, 1e-4), (0.001, 1e-4), (2.0**-10, 0)])
def test_updates_do_not_depend_on_the_unit_of_rewards(factor, tolerance):
    """The same rollout in another unit gives the same weights, and values in that unit.

    Of a power of 2 nothing is rounded.
    """
    found = []
    for unit in (1.0, factor):
        cfg = DQNConfig(hidden_units=(8,), warmup_env_steps=256, batch_size=32, xla=False)
        agent = make_agent(cfg, CartPole().spec)
        numbers = np.random.default_rng(0)
        obs = tf.constant(numbers.standard_normal((32, 1, 4)), tf.float32)
        rewards = tf.constant(unit * numbers.standard_normal((32, 1)), tf.float32)
        actions = tf.constant(numbers.integers(2, size=(32, 1)), tf.int32)
        never, discount = tf.zeros([32, 1], tf.bool), tf.fill([32, 1], 0.99)
        rows = Rollout(obs, actions, rewards, discount, obs, never, explored=never)
        opened, _ = agent.observe(rows)
        bits = agent.random_stream.random_bits(agent.memory.num_random_words)
        agent.policy.update(agent.memory.batch(opened, 0, bits), agent.hyper())
        agent.policy.publish()
        scale = float(reward_scale(cfg, agent.policy.network))
        found.append((agent.policy.weights.vector.numpy(), agent.q_values(np.ones(4)), scale))
    (weights, values, scale), (others, other_values, other_scale) = found
    np.testing.assert_allclose(weights, others, rtol=tolerance, atol=tolerance / 100)
    np.testing.assert_allclose(values * factor, other_values, rtol=1e-3)
    np.testing.assert_allclose(scale / factor, other_scale, rtol=1e-5)
