"""Munchausen-DQN, C51, QR-DQN and IQN: targets by hand, and updates."""

import functools

import numpy as np
import pytest
import tensorflow as tf

from kytolly.agent.algorithms import make_config
from kytolly.agent.make_agent import make_agent
from kytolly.environment.spec import Discrete, EnvSpec
from kytolly.environment.tensor.cartpole import CartPole
from kytolly.policy.batch import Transition
from tests.helpers.cases import learning, rest_learning

FAMILY = {
    "munchausen": {},
    "c51": {"num_atoms": 11, "value_min": -2.0, "value_max": 3.0},
    "qr-dqn": {"num_quantiles": 5},
    "iqn": {"num_quantiles": 3, "num_target_quantiles": 4, "num_acting_quantiles": 6},
}


def make_policy(algorithm, **settings):
    defaults = {
        "batch_size": 4,
        "hidden_units": (8,),
        "warmup_env_steps": 10,
        "replay_capacity": 100,
        "train_interval_env_steps": 4,
        "target_sync_updates": 1_000,
        "learning_rate": 0.01,
        **FAMILY[algorithm],
    }
    cfg = make_config({"algorithm": algorithm, **defaults, **settings})
    return make_agent(cfg, CartPole().spec).policy


@pytest.mark.parametrize("algorithm", rest_learning(["dqn", *FAMILY], ["dqn", "iqn"]))
def test_an_update_trains_what_a_torso_has_for_training_alone(algorithm):
    cfg = {"algorithm": algorithm, "network": "impala", "spectral_norm": True, "impala_width": 1}
    cfg |= {"batch_size": 4, "hidden_units": (8,), "warmup_env_steps": 10, "replay_capacity": 100}
    cfg |= {"train_interval_env_steps": 4, **FAMILY.get(algorithm, {})}
    spec = EnvSpec("Screen", tf.TensorSpec([12, 12, 1], tf.uint8), Discrete(2))
    policy = make_agent(make_config(cfg), spec).policy
    vectors = [layer.vector for layer in policy.network.torso.residuals]
    before = [np.array(vector) for vector in vectors]
    obs = tf.ones([4, 12, 12, 1], tf.uint8)
    noise = tf.fill([1, 7], 0.5)
    policy.update(Transition(obs, tf.zeros(4, tf.int32), tf.ones(4), tf.ones(4), obs, noise=noise))
    assert all(np.abs(vector - old).max() > 0 for vector, old in zip(vectors, before, strict=True))


@pytest.fixture
def batch():
    rng = np.random.default_rng(0)
    obs = rng.normal(size=(4, 4)).astype(np.float32)
    return Transition(
        tf.constant(obs),
        tf.constant([0, 1, 0, 1]),
        tf.constant([1.0, -1.0, 0.5, 0.0]),
        tf.zeros(4),
        tf.constant(obs),
        noise=tf.constant(rng.uniform(size=(1, 7)), tf.float32),
    )


def set_values(policy, online, target):
    """Let the last bias be the only weight: the outputs are these, whatever is observed."""
    for variable, bias in ((policy.weights.variable, online), (policy.target_vector, target)):
        zeros = np.zeros(policy.weights.vector.shape[0] - np.size(bias))
        variable.assign(np.concatenate([zeros, np.ravel(bias)]).astype(np.float32))


def target_of(policy, batch):
    return policy.bootstrap(batch, policy.current_weights(), policy.hyper)


def going_on(batch):
    return batch._replace(discount=tf.fill([4], 0.5), reward=tf.ones(4))


@pytest.mark.parametrize("algorithm", rest_learning([*FAMILY], ["c51"]))
def test_fit_step_traces_once_and_learns_a_reward(algorithm, batch):
    policy, rng = make_policy(algorithm, munchausen=False), np.random.default_rng(1)
    for _ in range(300):
        policy.fit_step(batch._replace(noise=tf.constant(rng.uniform(size=(1, 7)), tf.float32)))
    assert policy.fit_step.experimental_get_tracing_count() == 1
    q = policy.network(batch.obs).numpy()[range(4), batch.action]
    np.testing.assert_allclose(q, batch.reward, atol=0.1)
    metrics = dict(zip(policy.metric_names, policy.fit_step(batch).metrics.numpy(), strict=True))
    np.testing.assert_allclose(metrics["q_mean"], q.mean(), atol=0.05)
    assert metrics["td_error"] < 0.1 and np.isfinite(metrics["loss"])


@pytest.mark.parametrize("algorithm", FAMILY)
def test_parts_of_a_batch_give_the_gradient_of_the_whole(algorithm, batch):
    whole, parts = make_policy(algorithm), make_policy(algorithm, gradient_accumulation=2)
    parts.set_weights(whole.network.get_weights())
    rows = going_on(batch)
    twice = rows._replace(noise=tf.repeat(rows.noise, 2, axis=0))
    (expected, one), (found, two) = whole.gradient(rows), parts.gradient(twice)
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-6)
    np.testing.assert_allclose(two.metrics, one.metrics, rtol=1e-3, atol=1e-5)
    np.testing.assert_allclose(two.td_error, one.td_error, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("algorithm", FAMILY)
def test_a_weight_of_two_counts_a_row_twice_and_td_errors_have_signs(algorithm, batch):
    policy = make_policy(algorithm, max_grad_norm=1e9)
    rows = going_on(batch)
    fields = {
        name: tf.gather(value, [0, 0, 1, 2])
        for name, value in rows._asdict().items()
        if value is not None and name != "noise"
    }
    weighted = rows._replace(weight=tf.constant([2.0, 1.0, 1.0, 0.0]))
    found, loss = policy.gradient(weighted)
    np.testing.assert_allclose(
        policy.gradient(Transition(**fields, noise=rows.noise))[0], found, atol=1e-5
    )
    higher = policy.gradient(rows._replace(reward=rows.reward + 0.5))[1]
    assert (higher.td_error.numpy() > loss.td_error.numpy() + 0.3).all()


def test_munchausen_targets_by_hand(batch):
    settings = {"munchausen_scale": 0.5, "munchausen_lowest": -1.2, "entropy_temperature": 1.0}
    policy = make_policy("munchausen", **settings)
    set_values(policy, online=[3.0, 1.0], target=[0.0, np.log(3.0)])
    # Target network: probabilities 1/4 and 3/4. Value of the softmax: log(1 + 3), which is
    # 3/4 log 3 plus the entropy. Bonus of action 0: 0.5 * max(log 1/4, -1.2); of 1: 0.5 log 3/4.
    bonus = np.array([-0.6, 0.5 * np.log(0.75)])[[0, 1, 0, 1]]
    expected = 1.0 + bonus + 0.5 * np.log(4.0)
    np.testing.assert_allclose(target_of(policy, going_on(batch)), expected, rtol=1e-5)
    # Without a bootstrap the bonus is left.
    np.testing.assert_allclose(target_of(policy, batch), batch.reward + bonus, rtol=1e-5)


def test_double_takes_the_next_probabilities_from_the_online_network(batch):
    settings = {"munchausen_scale": 0.0, "entropy_temperature": 1.0}
    policy = make_policy("munchausen", double=True, **settings)
    set_values(policy, online=[np.log(3.0), 0.0], target=[4.0, 8.0])
    entropy = -(0.75 * np.log(0.75) + 0.25 * np.log(0.25))
    expected = 1.0 + 0.5 * (0.75 * 4.0 + 0.25 * 8.0 + entropy)  # by the target network: 5.0
    np.testing.assert_allclose(target_of(policy, going_on(batch)), [expected] * 4, rtol=1e-5)


@pytest.mark.parametrize("double", [False, True])
def test_without_the_bonus_targets_are_those_of_dqn(double, batch):
    policy = make_policy("munchausen", munchausen=False, double=double)
    set_values(policy, online=[3.0, 1.0], target=[5.0, 9.0])
    expected = 1.0 + 0.5 * (5.0 if double else 9.0)
    np.testing.assert_allclose(target_of(policy, going_on(batch)), [expected] * 4)


@pytest.mark.parametrize("double", [False, True])
def test_quantile_targets_are_those_of_the_next_action(double, batch):
    policy = make_policy("qr-dqn", num_quantiles=2, double=double)
    # Target network: means 5 and 6. Online: 4 and 1.
    set_values(policy, online=[3.0, 5.0, 0.0, 2.0], target=[1.0, 9.0, 5.0, 7.0])
    expected = [1.5, 5.5] if double else [3.5, 4.5]  # 1 + 0.5 z
    np.testing.assert_allclose(target_of(policy, going_on(batch)), [expected] * 4)


def test_soft_quantile_targets_mix_the_actions_and_add_the_entropy(batch):
    settings = {"munchausen": True, "entropy_temperature": 2.0, "munchausen_scale": 1.0}
    policy = make_policy("qr-dqn", num_quantiles=2, munchausen_lowest=-2.0, **settings)
    gap = 2.0 * np.log(3.0)  # action 1 is three times as likely
    set_values(policy, online=np.zeros(4), target=[-1.0, 1.0, gap - 3.0, gap + 3.0])
    entropy = -2.0 * (0.25 * np.log(0.25) + 0.75 * np.log(0.75))
    value = np.array([0.25 * -1 + 0.75 * (gap - 3), 0.25 * 1 + 0.75 * (gap + 3)]) + entropy
    bonus = np.array([-2.0, 2.0 * np.log(0.75)])[[0, 1, 0, 1]]
    expected = 1.0 + bonus[:, np.newaxis] + 0.5 * value
    np.testing.assert_allclose(target_of(policy, going_on(batch)), expected, rtol=1e-5)


@pytest.mark.parametrize("double", [False, True])
def test_c51_moves_the_distribution_of_the_next_action(double, batch):
    policy = make_policy("c51", num_atoms=3, value_min=0.0, value_max=2.0, double=double)
    low, high = np.log([0.5, 0.5, 1e-9]), np.log([1e-9, 0.5, 0.5])  # means 0.5 and 1.5
    set_values(policy, online=[*high, *low], target=[*low, *high])
    rows = batch._replace(discount=tf.fill([4], 0.5), reward=tf.fill([4], 0.75))
    found, clipped = target_of(policy, rows)
    # plain: 1 and 2 become 1.25 and 1.75, each half; double: 0 and 1 become 0.75 and 1.25
    expected = [0.125, 0.75, 0.125] if double else [0.0, 0.5, 0.5]
    np.testing.assert_allclose(found, [expected] * 4, atol=1e-6)
    np.testing.assert_array_equal(clipped, np.zeros((4, 3)))


def test_c51_measures_what_the_atoms_cannot_hold(batch):
    policy = make_policy("c51", num_atoms=3, value_min=0.0, value_max=2.0)
    set_values(policy, online=np.zeros(6), target=np.log([0.2, 0.3, 0.5] * 2))
    rows = batch._replace(discount=tf.ones(4), reward=tf.constant([0.0, 1.0, -1.0, 9.0]))
    clipped = policy.gradient(rows)[1].metrics[policy.metric_names.index("clipped_targets")]
    np.testing.assert_allclose(clipped, (0.0 + 0.5 + 0.2 + 1.0) / 4.0, rtol=1e-5)


def test_iqn_learns_at_the_levels_of_the_noise(batch):
    policy = make_policy("iqn")
    first, second = policy.levels(batch)
    # One in each third and in each fourth part of [0, 1].
    np.testing.assert_allclose(first, (np.arange(3) + batch.noise[0, :3]) / 3, rtol=1e-6)
    np.testing.assert_allclose(second, (np.arange(4) + batch.noise[0, 3:]) / 4, rtol=1e-6)
    network = functools.partial(policy.forward, policy.current_weights())
    outputs = policy.head.outputs(network, batch.obs, first)
    expected = policy.network.action_quantiles(batch.obs, first)
    np.testing.assert_allclose(outputs, tf.transpose(expected, [0, 2, 1]), atol=1e-6)
    q = policy.head.action_values(network, batch.obs, outputs)
    np.testing.assert_allclose(q, policy.network(batch.obs), atol=1e-6)


def test_iqn_says_that_a_batch_lacks_noise(batch):
    with pytest.raises(ValueError, match=r"batch without noise, expected \[1, 7\]"):
        make_policy("iqn").gradient(batch._replace(noise=None))


@pytest.mark.parametrize(
    "algorithm, precision",
    [
        ("c51", "mixed_float16"),
        learning(("c51", "mixed_bfloat16")),
        learning(("iqn", "mixed_float16")),
        learning(("iqn", "mixed_bfloat16")),
    ],
)
def test_half_precision_learns(algorithm, precision, batch):
    policy = make_policy(algorithm, precision=precision, munchausen=True)
    first = float(policy.fit_step(batch).metrics[1])
    for _ in range(200):
        last = float(policy.fit_step(batch).metrics[1])
    assert policy.network.weights[0].dtype == "float32"
    assert last < 0.3 * first


@pytest.mark.parametrize("algorithm", rest_learning([*FAMILY], ["iqn"]))
def test_a_loss_is_mapped_over_the_weights_of_several_agents(algorithm, batch):
    policy = make_policy(algorithm)
    rows = going_on(batch)
    vector = policy.weights.vector
    vectors = tf.stack([vector, 0.5 * vector, -vector])

    def gradient(vector):
        with tf.GradientTape() as tape:
            tape.watch(vector)
            loss = policy.loss(rows, policy.weights.split(vector), policy.hyper).loss
        return tape.gradient(loss, vector)

    mapped = tf.function(
        lambda: tf.vectorized_map(gradient, vectors, fallback_to_while_loop=False),
        jit_compile=True,
        autograph=False,
    )
    expected = [gradient(vector) for vector in vectors]
    np.testing.assert_allclose(mapped(), expected, rtol=1e-3, atol=1e-6)
