import keras
import numpy as np
import pytest
import tensorflow as tf

from kytolly.agent.make_agent import make_agent
from kytolly.config.dqn import DQNConfig
from kytolly.environment.tensor.cartpole import CartPole
from kytolly.policy.batch import Transition
from tests.helpers.cases import learning


def make_policy(model=None, **settings):
    defaults = {
        "batch_size": 4,
        "hidden_units": (8,),
        "warmup_env_steps": 10,
        "replay_capacity": 100,
        "train_interval_env_steps": 4,
        "target_sync_updates": 3,
        "target_mix": 1.0,
        "learning_rate": 0.01,
        "reward_scale": 1.0,
    }
    return make_agent(DQNConfig(**{**defaults, **settings}), CartPole().spec, model).policy


def target_of(policy, batch):
    return policy.bootstrap(batch, policy.current_weights(), policy.hyper)


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
    compiled.set_weights(eager.network.get_weights())
    eager.update(batch)
    compiled.fit_step(batch, tf.ones(4))
    np.testing.assert_allclose(eager.weights.vector, compiled.weights.vector, atol=1e-6)
    published = np.concatenate([np.ravel(weight) for weight in compiled.network.weights])
    np.testing.assert_array_equal(published, compiled.weights.vector)


@pytest.mark.parametrize(
    "settings, largest",
    [
        ({"reward_scale": None}, [40.0, 1.0, 1.0, 1.0]),
        ({"reward_scale": None, "huber_delta": 3.0}, [3.0] * 4),
        ({"reward_scale": 1.0}, [1.0] * 4),  # in the environment's units no reward is large
    ],
    ids=str,
)
def test_a_rare_large_reward_is_learned_in_full(batch, settings, largest):
    policy = make_policy(**settings)
    rewards = tf.constant([-40.0, 4.0, -4.0, 4.0])
    loss = policy.loss(batch._replace(reward=rewards), policy.current_weights(), policy.hyper)
    error, largest = np.abs(loss.td_error), np.array(largest)
    small = np.minimum(error, largest)
    by_hand = 0.5 * small**2 + largest * (error - small)
    np.testing.assert_allclose(loss.loss, by_hand.mean(), rtol=1e-5)


@pytest.mark.parametrize("settings", [{}, {"gradient_accumulation": 2, "batch_size": 2}])
def test_reward_scale_multiplies_the_rewards_and_not_what_follows(batch, settings):
    batch = batch._replace(discount=tf.fill([4], 0.9))
    plain, scaled = make_policy(**settings), make_policy(reward_scale=0.25, **settings)
    plain.set_weights(scaled.network.get_weights())
    expected, _ = plain.gradient(batch._replace(reward=tf.constant([0.25, -0.25, 0.125, 0.0])))
    found, loss = scaled.gradient(batch)
    np.testing.assert_array_equal(found, expected)
    assert np.abs(found - plain.gradient(batch)[0]).max() > 0.01
    q = scaled.network(batch.obs).numpy()
    target = np.array([0.25, -0.25, 0.125, 0.0]) + 0.9 * q.max(axis=1)
    np.testing.assert_allclose(loss.td_error, target - q[range(4), [0, 1, 0, 1]], atol=1e-6)


def test_only_the_action_taken_is_taught(batch):
    policy = make_policy()
    rows = batch._replace(action=tf.constant([1, 1, 1, 1]))
    output_bias = policy.gradient(rows)[0][-2:]
    assert output_bias[0] == 0 and output_bias[1] != 0


def test_gradients_are_clipped_over_all_weights_together(batch):
    (clipped, result), (whole, unclipped) = (
        make_policy(max_grad_norm=limit).gradient(batch) for limit in (0.01, 1e9)
    )
    norm = np.linalg.norm(whole)
    assert norm > 0.01
    np.testing.assert_allclose([result.metrics[-1], unclipped.metrics[-1]], norm, rtol=1e-4)
    np.testing.assert_allclose(clipped, whole * 0.01 / norm, rtol=1e-4, atol=1e-8)


def test_target_network_follows_only_when_due(batch):
    policy = make_policy(target_sync_updates=3)
    before = policy.target_vector.numpy()
    for _ in range(2):
        policy.fit_step(batch, tf.ones(4))
    np.testing.assert_array_equal(policy.target_vector, before)
    assert not np.array_equal(policy.weights.vector, before)
    policy.fit_step(batch, tf.ones(4))
    np.testing.assert_array_equal(policy.target_vector, policy.weights.vector)


def test_polyak_sync_moves_by_its_share(batch):
    policy = make_policy(target_sync_updates=1, target_mix=0.25)
    before = policy.target_vector.numpy()
    policy.fit_step(batch, tf.ones(4))
    expected = 0.75 * before + 0.25 * policy.weights.vector.numpy()
    np.testing.assert_allclose(policy.target_vector, expected, atol=1e-6)
    policy.sync()
    expected = 0.75 * expected + 0.25 * policy.weights.vector.numpy()
    np.testing.assert_allclose(policy.target_vector, expected, atol=1e-6)


def test_the_average_is_of_a_share_of_the_targets_so_far(batch):
    policy = make_policy(target_sync_updates=2, target_mix=0.25, average_share=0.5)
    targets, averages = [], []
    for _ in range(6):
        policy.fit_step(batch, tf.ones(4))
        targets.append(policy.target_vector.numpy())
        averages.append(policy.average_vector.numpy())
    first, second, third = targets[1::2]
    expected = [first, first + (second - first) / 1.5]
    expected.append(expected[1] + (third - expected[1]) / 2.0)
    for average, right in zip(averages[1::2], expected, strict=True):
        np.testing.assert_allclose(average, right, atol=1e-6)
    np.testing.assert_array_equal(averages[3], averages[4])  # it moves as the target network does
    policy.set_weights([np.zeros_like(w) for w in policy.network.get_weights()])
    assert not policy.published.numpy().any()


@pytest.mark.parametrize(
    "mix, share, published",
    [(0.25, None, "average"), (0.25, 0.0, "target"), (1.0, None, "online"), (1.0, 0.2, "average")],
)
def test_an_average_is_what_the_keras_network_gets(mix, share, published, batch):
    policy = make_policy(target_sync_updates=1, target_mix=mix, average_share=share)
    policy.update(batch)
    policy.update(batch)
    online = policy.weights.vector.numpy()
    policy.publish()
    vectors = {"target": policy.target_vector, "online": policy.weights.vector}
    if published == "average":
        vectors["average"] = policy.average_vector
    expected = vectors[published].numpy()
    found = np.concatenate([w.numpy().ravel() for w in policy.network.trainable_variables])
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(policy.weights.vector, online)  # learning goes on from there
    policy.fit_step(batch)  # for loops of one's own, which act with the network
    found = np.concatenate([w.numpy().ravel() for w in policy.network.trainable_variables])
    np.testing.assert_array_equal(found, policy.weights.vector.numpy())


def test_double_dqn_differs_where_the_networks_disagree(batch):
    plain, double = make_policy(), make_policy(algorithm="ddqn")
    for policy in (plain, double):
        # online: q = (3, 1), target: q = (5, 9): plain takes 9, double picks 0 and takes 5
        zeros = np.zeros(policy.weights.vector.shape[0] - 2)
        policy.weights.vector.assign([*zeros, 3.0, 1.0])
        policy.target_vector.assign([*zeros, 5.0, 9.0])
    rows = batch._replace(discount=tf.ones(4), reward=tf.zeros(4))
    np.testing.assert_allclose(target_of(plain, rows), [9.0] * 4)
    np.testing.assert_allclose(target_of(double, rows), [5.0] * 4)


@pytest.mark.parametrize("precision", ["mixed_float16", learning("mixed_bfloat16")])
def test_mixed_precision_learns_and_keeps_float32_weights(precision, batch):
    policy = make_policy(precision=precision, target_sync_updates=1_000)
    first = policy.fit_step(batch, tf.ones(4)).loss
    for _ in range(300):
        last = policy.fit_step(batch, tf.ones(4)).loss
    assert policy.network.weights[0].dtype == "float32"
    assert policy.network.hidden.compute_dtype == precision.removeprefix("mixed_")
    assert last < 0.1 * first


def test_one_row_of_an_importance_weight_counts_as_often(batch):
    policy = make_policy(max_grad_norm=1e9)
    twice = tf.nest.map_structure(lambda column: tf.gather(column, [0, 0, 1, 2]), batch[:5])
    weighted = batch._replace(weight=tf.constant([2.0, 1.0, 1.0, 0.0]))
    np.testing.assert_allclose(
        policy.gradient(Transition(*twice))[0], policy.gradient(weighted)[0], atol=1e-6
    )


def test_a_scaled_loss_makes_the_update_of_an_unscaled_one(batch):
    policy = make_policy(precision="mixed_float16", max_grad_norm=0.02)
    policy.optimizer.dynamic_scale.assign(1024.0)
    scaled, result = policy.gradient(batch)
    np.testing.assert_allclose(np.linalg.norm(scaled) / 1024.0, 0.02, rtol=1e-3)
    assert 0.02 < float(result.metrics[-1]) < 100.0  # the norm is reported unscaled
    before = policy.weights.vector.numpy()
    policy.apply(scaled)
    moved = before - policy.weights.vector.numpy()
    grad = scaled.numpy() / 1024.0  # the first step of Adam, which shows the size of small ones
    expected = 0.01 * grad / (np.abs(grad) + 1e-7 / np.sqrt(0.001))
    np.testing.assert_allclose(moved, expected, rtol=1e-3, atol=1e-8)
    policy.apply(scaled * np.inf)  # overflown: the step is left out, and the scale halved
    np.testing.assert_array_equal(policy.weights.vector, before - moved)
    assert float(policy.optimizer.dynamic_scale) == 512.0


def test_a_loss_of_0_does_not_raise_the_loss_scale_until_it_overflows(batch):
    """Keras doubles it after 2,000 updates that are finite, and a loss of 0 always is."""
    policy = make_policy(precision="mixed_float16", huber_delta=10.0)
    right, _ = policy.outputs(batch.obs, policy.current_weights())
    batch = batch._replace(reward=tf.gather(right, batch.action, batch_dims=1))
    policy.optimizer.dynamic_scale.assign(2.0**126)  # after 222,000 updates
    policy.optimizer.step_counter.assign(1_999)
    policy.update(batch)
    scale = float(policy.optimizer.dynamic_scale)
    loss, _, metrics = policy.update(batch)
    assert loss == 0.0 and metrics[-1] == 0.0
    assert float(policy.optimizer.dynamic_scale) == scale < 2.0**100


def test_no_number_of_overflows_lowers_the_loss_scale_to_0(batch):
    policy = make_policy(precision="mixed_float16")
    overflow = tf.fill(policy.weights.vector.shape, np.inf)
    for _ in range(180):  # 2**15 halved 165 times is 0
        policy.apply(overflow)
    policy.update(batch)
    assert np.isfinite(policy.weights.vector).all()


def test_a_network_with_batch_statistics_and_dropout_trains():
    """What is no weight moves too: the statistics, and the seed of the dropout."""
    layers = keras.layers
    model = keras.Sequential(
        [keras.Input((4,)), layers.BatchNormalization(), layers.Dropout(0.1), layers.Dense(2)]
    )
    policy = make_policy(model, target_sync_updates=1_000, learning_rate=0.05)
    obs = tf.random.stateless_normal([4, 4], [1, 2], 5.0, 3.0)
    zeros = tf.zeros(4)
    batch = Transition(obs, tf.constant([0, 1, 0, 1]), zeros + 1.0, zeros, obs)
    first, *_ = [policy.fit_step(batch, tf.ones(4)).loss for _ in range(150)]
    assert policy.fit_step(batch, tf.ones(4)).loss < 0.2 * first
    norm = model.layers[0]
    shift = 1 - norm.momentum**151
    mean = shift * tf.reduce_mean(obs, axis=0)
    np.testing.assert_allclose(norm.moving_mean, mean, rtol=1e-3)
