"""PQN: what it makes of a rollout, and its updates."""

import numpy as np
import pytest
import tensorflow as tf

from kytolly.agent.make_agent import make_agent
from kytolly.config.pqn import PQNConfig
from kytolly.environment.tensor.cartpole import CartPole
from kytolly.policy.batch import Rollout
from kytolly.policy.pqn import PQNBatch
from tests.helpers.cases import learning


def make(**settings):
    small = {"num_envs": 2, "rollout_steps": 3, "num_minibatches": 2, "hidden_units": (8,)}
    small["normalize_rewards"] = False
    return make_agent(PQNConfig(**{**small, "learning_rate": 0.02, **settings}), CartPole().spec)


@pytest.fixture
def batch():
    rng = np.random.default_rng(0)
    obs = tf.constant(rng.normal(size=(4, 4)), tf.float32)
    target = tf.constant([1.0, -1.0, 0.5, 0.0])
    return PQNBatch(obs, tf.constant([0, 1, 0, 1]), target, tf.zeros(4))


def rollout(policy, **changes):
    rng = np.random.default_rng(1)
    obs, next_obs = (tf.constant(rng.normal(size=(3, 2, 4)), tf.float32) for _ in range(2))
    obs = tf.concat([obs[:1], next_obs[:-1]], axis=0)  # each follows the one before
    reward = tf.constant(rng.normal(size=(3, 2)), tf.float32)
    rows = Rollout(
        obs, tf.zeros([3, 2], tf.int32), reward, tf.fill([3, 2], 0.9), next_obs, reward > 9.0
    )
    value = policy.outputs(tf.reshape(obs, [6, 4]), policy.current_weights())[1]
    return rows._replace(value=tf.reshape(value, [3, 2]))._replace(**changes)


def test_targets_are_lambda_returns_of_the_best_actions():
    agent = make(td_lambda=0.7)
    policy = agent.policy
    last = tf.constant([[False, False], [False, True], [False, False]])
    rows = rollout(policy, last=last)
    opened, _ = agent.memory.open(rows, policy)
    best = policy.network(tf.reshape(rows.next_obs, [6, 4])).numpy().max(axis=1).reshape(3, 2)
    reward, expected = rows.reward.numpy(), np.zeros((3, 2))
    expected[2] = reward[2] + 0.9 * best[2]
    for time in (1, 0):
        following = np.where(last[time], best[time], 0.7 * expected[time + 1] + 0.3 * best[time])
        expected[time] = reward[time] + 0.9 * following
    np.testing.assert_allclose(opened.target, expected.ravel(), rtol=1e-5)
    np.testing.assert_allclose(opened.value, np.ravel(rows.value), rtol=1e-6)


def test_values_kept_while_acting_are_those_that_are_computed_later():
    agent = make()
    rows = rollout(agent.policy)
    kept, _ = agent.memory.open(rows, agent.policy)
    computed, _ = agent.memory.open(rows._replace(value=None), agent.policy)
    for one, other in zip(kept, computed, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5)


def test_fit_step_traces_once_and_learns_the_targets(batch):
    policy = make().policy
    first = policy.fit_step(batch)
    q = policy.network(batch.obs).numpy()
    for _ in range(300):
        loss = policy.fit_step(batch)
    assert policy.fit_step.experimental_get_tracing_count() == 1
    taken = policy.network(batch.obs).numpy()[range(4), batch.action]
    np.testing.assert_allclose(taken, batch.target, atol=0.1)
    assert not np.allclose(policy.network(batch.obs), q)
    metrics = dict(zip(policy.metric_names, first.metrics.numpy(), strict=True))
    error = first.td_error.numpy()
    np.testing.assert_allclose(metrics["loss"], 0.5 * np.mean(error**2), rtol=1e-5)
    np.testing.assert_allclose(metrics["td_error"], np.abs(error).mean(), rtol=1e-5)
    assert np.abs(loss.td_error.numpy()).max() < np.abs(error).max()


def test_parts_of_a_batch_give_the_gradient_of_the_whole(batch):
    whole, parts = make().policy, make(gradient_accumulation=2).policy
    parts.set_weights(whole.network.get_weights())
    (one, first), (other, second) = whole.gradient(batch), parts.gradient(batch)
    np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(first.td_error, second.td_error, rtol=1e-5)


def test_no_weight_is_counted_that_no_output_needs():
    network = make_agent(PQNConfig(), CartPole().spec).policy.network
    # 4 x 128 + 128, 128 x 128 + 128, two norms of 2 x 128, 128 x 2 + 2
    assert network.count_params() == 640 + 16_512 + 512 + 258


@pytest.mark.parametrize("precision", [learning("mixed_float16"), "mixed_bfloat16"])
def test_half_precision_learns(precision, batch):
    policy = make(precision=precision).policy
    first = float(policy.fit_step(batch).metrics[1])
    for _ in range(200):
        last = float(policy.fit_step(batch).metrics[1])
    assert last < 0.3 * first
