import numpy as np
import pytest
import tensorflow as tf

from kytolly.agent.factory import make_agent
from kytolly.config.dqn import DQNConfig
from kytolly.environment.tensor.cartpole import CartPole
from kytolly.policy.batch import Transition


def make_policy(**settings):
    defaults = {
        "batch_size": 4,
        "hidden_units": (8,),
        "warmup_env_steps": 10,
        "replay_capacity": 100,
        "train_interval_env_steps": 4,
        "target_sync_updates": 3,
        "learning_rate": 0.01,
    }
    return make_agent(DQNConfig(**{**defaults, **settings}), CartPole().spec).policy


@pytest.fixture(scope="module")
def policy():
    return make_policy(target_sync_updates=1_000)


@pytest.fixture
def batch():
    obs = np.random.default_rng(0).normal(size=(4, 4)).astype(np.float32)
    return Transition(
        tf.constant(obs),
        tf.constant([0, 1, 0, 1]),
        tf.constant([1.0, -1.0, 0.5, 0.0]),
        tf.constant([0.0, 0.0, 0.0, 0.0]),
        tf.constant(obs),
    )


def test_fit_step_traces_once_and_learns_a_constant_reward(policy, batch):
    first = policy.fit_step(batch, tf.ones(4)).loss
    for _ in range(400):
        last = policy.fit_step(batch, tf.ones(4)).loss
    assert policy.fit_step.experimental_get_tracing_count() == 1
    assert last < 1e-3 < first


def test_one_compiled_update_equals_one_eager_update(batch):
    eager, compiled = make_policy(), make_policy()
    compiled.online.set_weights(eager.online.get_weights())
    eager.update(batch, tf.ones(4))
    compiled.fit_step(batch, tf.ones(4))
    for one, other in zip(eager.online.weights, compiled.online.weights, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)


def test_only_the_action_taken_is_taught(batch):
    policy = make_policy()
    rows = batch._replace(action=tf.constant([1, 1, 1, 1]))
    grads, _ = policy.gradients(rows, tf.ones(4))
    output_bias = grads[-1].numpy()
    assert output_bias[0] == 0 and output_bias[1] != 0


def test_gradients_are_clipped_over_all_weights_together(batch):
    policy = make_policy(max_grad_norm=0.01)
    grads, result = policy.gradients(batch, tf.ones(4))
    assert float(result.grad_norm) > 0.01
    np.testing.assert_allclose(tf.linalg.global_norm(grads), 0.01, rtol=1e-4)


def test_target_network_follows_only_when_due(batch):
    policy = make_policy(target_sync_updates=3)
    before = policy.target.get_weights()
    for _ in range(2):
        policy.fit_step(batch, tf.ones(4))
    for old, now in zip(before, policy.target.get_weights(), strict=True):
        np.testing.assert_array_equal(old, now)
    policy.fit_step(batch, tf.ones(4))
    for online, now in zip(policy.online.get_weights(), policy.target.get_weights(), strict=True):
        np.testing.assert_array_equal(online, now)


def test_polyak_sync_moves_by_its_share(batch):
    policy = make_policy(target_sync_updates=1, target_mix=0.25)
    before = policy.target.get_weights()[0]
    policy.fit_step(batch, tf.ones(4))
    online = policy.online.get_weights()[0]
    expected = 0.75 * before + 0.25 * online
    np.testing.assert_allclose(policy.target.get_weights()[0], expected, atol=1e-6)


def test_double_dqn_differs_where_the_networks_disagree(batch):
    plain, double = make_policy(), make_policy(algorithm="ddqn")
    for policy in (plain, double):
        for position, network in enumerate((policy.online, policy.target)):
            network.set_weights([0 * weight for weight in network.get_weights()])
            # online: q = (3, 1), target: q = (5, 9): plain takes 9, double picks 0 and takes 5
            network.weights[-1].assign([[3.0, 1.0], [5.0, 9.0]][position])
    rows = batch._replace(discount=tf.ones(4), reward=tf.zeros(4))
    np.testing.assert_allclose(plain.bootstrap(rows), [9.0] * 4)
    np.testing.assert_allclose(double.bootstrap(rows), [5.0] * 4)


@pytest.mark.parametrize("precision", ["mixed_float16", "mixed_bfloat16"])
def test_mixed_precision_learns_and_keeps_float32_weights(precision, batch):
    policy = make_policy(precision=precision, target_sync_updates=1_000)
    first = policy.fit_step(batch, tf.ones(4)).loss
    for _ in range(300):
        last = policy.fit_step(batch, tf.ones(4)).loss
    assert policy.online.weights[0].dtype == "float32"
    assert policy.online.hidden.compute_dtype == precision.removeprefix("mixed_")
    assert last < 0.1 * first
