import keras
import numpy as np
import pytest
import tensorflow as tf

from kytolly.agent.make_agent import make_agent
from kytolly.agent.rollout_buffer import RolloutBuffer
from kytolly.config.ppo import PPOConfig
from kytolly.environment.spec import Box, Discrete, EnvSpec, MultiDiscrete
from kytolly.policy.batch import Rollout
from kytolly.policy.ppo import PPOBatch
from tests.helpers.linear_ppo import DEFAULTS, PARAMS, VALUE, VECTOR, Linear, make_batch, softmax

CONTINUOUS = EnvSpec("continuous", tf.TensorSpec([3]), Box((-1.0,), (1.0,)))


def make_policy(spec=VECTOR, model=None, **settings):
    return make_agent(PPOConfig(**{**DEFAULTS, **settings}), spec, model).policy


def linear_policy(**settings):
    return make_policy(model=Linear(PARAMS, VALUE), **settings)


def outputs(policy, obs):
    return policy.outputs(obs, policy.current_weights())


def expected_gradients(batch, policy):
    """The gradients of PPO's loss for the linear model in NumPy, unclipped, and the metrics."""
    cfg, entropy_coef = policy.cfg, policy.hyper.entropy_coef
    obs, action, old, advantage, target, old_value = (np.asarray(x, np.float64) for x in batch)
    action, rows = action.astype(int), np.arange(len(action))
    if cfg.normalize_advantage:
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
    p, value = softmax(obs @ PARAMS.astype(np.float64)), obs @ VALUE.astype(np.float64)
    ratio = np.exp(np.log(p[rows, action]) - old)
    clipped = np.clip(ratio, 1 - cfg.clip_range, 1 + cfg.clip_range)
    held = clipped * advantage < ratio * advantage
    policy_loss = -np.minimum(ratio * advantage, clipped * advantage).mean()
    taken = np.eye(2)[action]
    d_logits = np.where(held, 0.0, -ratio * advantage)[:, None] * (taken - p)
    entropy = -(p * np.log(p)).sum(axis=1)
    d_logits += entropy_coef * p * (np.log(p) + entropy[:, None])
    error = value - target
    value_loss, d_value = error**2, 2 * error
    if cfg.clip_range_value is not None:
        limit = cfg.clip_range_value
        other = old_value + np.clip(value - old_value, -limit, limit) - target
        inside = np.abs(value - old_value) <= limit
        d_value = np.where(other**2 > error**2, np.where(inside, 2 * other, 0.0), d_value)
        value_loss = np.maximum(value_loss, other**2)
    grads = [obs.T @ d_logits / len(rows), cfg.value_coef * obs.T @ d_value / len(rows)]
    norm = np.sqrt(sum((grad**2).sum() for grad in grads))
    loss = policy_loss + cfg.value_coef * value_loss.mean() - entropy_coef * entropy.mean()
    log_ratio = np.log(ratio)
    metrics = {
        "loss": loss,
        "policy_loss": policy_loss,
        "value_loss": value_loss.mean(),
        "entropy": entropy.mean(),
        "approximate_kl": (ratio - 1 - log_ratio).mean(),
        "clip_fraction": (np.abs(ratio - 1) > cfg.clip_range).mean(),
        "grad_norm": norm,
    }
    return grads, norm, metrics


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"normalize_advantage": False, "entropy_coef": 0.3},
        {"clip_range_value": 0.2, "clip_range": 0.4, "value_coef": 2.0},
        {"max_grad_norm": 0.01},
    ],
    ids=["plain", "entropy", "clipped values", "clipped gradients"],
)
def test_gradients_and_metrics_are_those_of_the_equations(settings):
    policy, batch = linear_policy(**settings), make_batch(64)
    expected, norm, metrics = expected_gradients(batch, policy)
    assert 0.05 < metrics["clip_fraction"] < 0.95  # both branches are in the batch
    found, update = policy.gradient(batch)
    scale = min(1.0, policy.cfg.max_grad_norm / norm)
    expected = np.concatenate([part.ravel() for part in expected])
    np.testing.assert_allclose(found, expected * scale, atol=2e-6)
    named = dict(zip(policy.metric_names, update.metrics.numpy(), strict=True))
    for name, value in metrics.items():
        np.testing.assert_allclose(named[name], value, rtol=2e-4, atol=1e-6, err_msg=name)


def test_one_compiled_update_is_one_step_of_adam():
    policy = linear_policy(learning_rate=0.01, adam_epsilon=1e-3, max_grad_norm=0.5)
    batch = make_batch(64)
    grads, norm, _ = expected_gradients(batch, policy)
    metrics = policy.fit_step(batch).metrics
    np.testing.assert_allclose(metrics[-1], norm, rtol=1e-4)
    for weight, before, grad in zip(policy.network.weights, (PARAMS, VALUE), grads, strict=True):
        grad = grad * min(1.0, 0.5 / norm)
        # the first step: m = 0.1 g and v = 0.001 g^2, scaled by sqrt(0.001) / 0.1
        step = 0.01 * np.sqrt(0.001) * grad / (np.sqrt(0.001) * np.abs(grad) + 1e-3)
        np.testing.assert_allclose(weight, before - step, atol=2e-6)
    assert int(policy.updates) == 1


@pytest.fixture(scope="module")
def policy():
    return make_policy(learning_rate=0.01, clip_range=0.2)


def found(network):
    return np.concatenate([weight.numpy().ravel() for weight in network.trainable_variables])


def test_the_average_is_of_a_share_of_the_updates_so_far():
    policy, batch = linear_policy(average_share=0.5, learning_rate=0.1), make_batch()
    newest = []
    for _ in range(3):
        policy.fit_step(batch)
        newest.append(policy.weights.vector.numpy())
        np.testing.assert_array_equal(found(policy.network), newest[-1])
    first, second, third = newest
    expected = first + (second - first) / 1.5
    expected += (third - expected) / 2.0
    policy.publish()
    np.testing.assert_allclose(found(policy.network), expected, atol=1e-6)
    assert np.abs(expected - third).max() > 1e-3
    np.testing.assert_array_equal(policy.weights.vector, third)  # learning goes on from there
    policy.set_weights([np.zeros_like(weight) for weight in policy.network.get_weights()])
    assert not policy.published.numpy().any()
    newest_alone = linear_policy(average_share=0.0)
    assert newest_alone.published is newest_alone.weights.vector


def test_fit_step_traces_once_and_learns(policy):
    batch = make_batch(32)
    first = policy.fit_step(batch).metrics
    for _ in range(150):
        last = policy.fit_step(batch).metrics
    assert policy.fit_step.experimental_get_tracing_count() == 1
    value_loss = policy.metric_names.index("value_loss")
    assert last[value_loss] < 0.5 * first[value_loss]


def test_a_row_with_a_higher_advantage_becomes_likelier_but_not_without_limit():
    policy = make_policy(
        learning_rate=0.002, normalize_advantage=False, value_coef=0.0, entropy_coef=0.0
    )
    obs = tf.ones([2, 3])
    action = tf.constant([1, 1])
    params, _ = outputs(policy, obs)
    before = policy.distribution.log_prob(params, action)
    batch = PPOBatch(obs, action, before, tf.constant([1.0, 1.0]), tf.zeros(2), tf.zeros(2))
    for _ in range(100):
        metrics = policy.fit_step(batch).metrics
    after = policy.distribution.log_prob(outputs(policy, obs)[0], action)
    ratio = np.exp(after - before)
    # at 1.2 the gradient ends, and Adam's momentum carries a little further
    assert ((ratio > 1.2) & (ratio < 1.4)).all()
    assert float(metrics[policy.metric_names.index("grad_norm")]) == 0.0


@pytest.mark.parametrize("parts", [2, 4])
@pytest.mark.parametrize(
    "settings", [{}, {"clip_range_value": 0.2, "entropy_coef": 0.1}, {"max_grad_norm": 0.05}]
)
def test_accumulated_gradients_are_those_of_all_rows_at_once(parts, settings):
    whole = linear_policy(**settings)
    split = linear_policy(num_minibatches=parts, gradient_accumulation=parts, **settings)
    batch = make_batch(64)  # advantages are normalised over all 64, not over the parts
    (one, first), (other, second) = whole.gradient(batch), split.gradient(batch)
    np.testing.assert_allclose(one, other, atol=1e-6)
    np.testing.assert_allclose(first.metrics, second.metrics, atol=1e-6)
    found, expected = split.update(batch).metrics, whole.update(batch).metrics
    np.testing.assert_allclose(found, expected, atol=2e-5)
    np.testing.assert_allclose(split.weights.vector, whole.weights.vector, atol=1e-5)


def make_rollout(policy):
    """Four steps of two copies; copy 0 terminates at step 1, copy 1 is cut off at step 2."""
    rng = np.random.default_rng(2)
    obs = rng.normal(size=(5, 2, 3)).astype(np.float32)
    next_obs = obs[1:].copy()
    next_obs[1, 0] = next_obs[2, 1] = [3.0, -2.0, 1.0]  # before the reset, unlike obs after it
    discount = np.full((4, 2), 0.9, np.float32)
    discount[1, 0] = 0.0
    last = np.zeros((4, 2), bool)
    last[1, 0] = last[2, 1] = True
    reward = np.arange(8, dtype=np.float32).reshape(4, 2)
    action = rng.integers(2, size=(4, 2)).astype(np.int32)
    log_prob = rng.normal(size=(4, 2)).astype(np.float32)
    return Rollout(*map(tf.constant, (obs[:4], action, reward, discount, next_obs, last, log_prob)))


@pytest.mark.parametrize("cut_once", [False, True])
def test_a_rollout_becomes_rows_with_advantages_and_targets(cut_once):
    policy = linear_policy(gae_lambda=0.5, gae_lambda_value=None)
    rollout = make_rollout(policy)
    memory = RolloutBuffer(8, 1, 1, cut_at_most_once=cut_once)
    batch, _ = memory.open(rollout, policy)
    value = np.asarray(rollout.obs) @ VALUE
    next_value = np.asarray(rollout.next_obs) @ VALUE
    assert abs(next_value[2, 1] - value[3, 1]) > 1  # bootstrapping after the reset would show
    td_error = np.asarray(rollout.reward) + np.asarray(rollout.discount) * next_value - value
    # weight 0.9 * 0.5; nothing flows back over an end
    a = td_error
    copy0 = [a[0, 0] + 0.45 * a[1, 0], a[1, 0], a[2, 0] + 0.45 * a[3, 0], a[3, 0]]
    two = a[1, 1] + 0.45 * a[2, 1]
    copy1 = [a[0, 1] + 0.45 * two, two, a[2, 1], a[3, 1]]
    advantage = np.stack([copy0, copy1], axis=1).reshape(-1)
    np.testing.assert_allclose(batch.advantage, advantage, rtol=1e-5)
    np.testing.assert_allclose(batch.value, value.reshape(-1), rtol=1e-5)
    np.testing.assert_allclose(batch.target, advantage + value.reshape(-1), rtol=1e-5)
    np.testing.assert_array_equal(batch.obs, np.reshape(rollout.obs, (8, 3)))
    np.testing.assert_array_equal(batch.log_prob, np.reshape(rollout.log_prob, 8))


@pytest.mark.parametrize("of_values", [None, 0.5, 1.0])
def test_values_may_learn_from_longer_returns_than_advantages_have(of_values):
    policy = linear_policy(gae_lambda=0.5, gae_lambda_value=of_values)
    rollout = make_rollout(policy)
    batch, _ = RolloutBuffer(8, 1, 1, cut_at_most_once=False).open(rollout, policy)
    value = (np.asarray(rollout.obs) @ VALUE).reshape(4, 2)
    next_value = (np.asarray(rollout.next_obs) @ VALUE).reshape(4, 2)
    td_error = np.asarray(rollout.reward) + np.asarray(rollout.discount) * next_value - value
    last, weight = np.asarray(rollout.last), 0.9 * np.array([0.5, of_values or 0.5])
    sums, following = np.zeros((2, 4, 2)), np.zeros((2, 2))
    for time in reversed(range(4)):
        following = td_error[time] + weight[:, None] * np.where(last[time], 0.0, following)
        sums[:, time] = following
    advantage, change = sums.reshape(2, 8)
    np.testing.assert_allclose(batch.advantage, advantage, rtol=1e-5)
    np.testing.assert_allclose(batch.target, change + value.reshape(-1), rtol=1e-5)


def test_probabilities_that_were_not_kept_are_those_of_the_present_weights():
    policy = linear_policy()
    rollout = make_rollout(policy)._replace(log_prob=None)
    batch, _ = RolloutBuffer(8, 1, 1).open(rollout, policy)
    p = softmax(batch.obs.numpy() @ PARAMS)
    np.testing.assert_allclose(np.exp(batch.log_prob), p[np.arange(8), batch.action], rtol=1e-5)
    found = policy.gradient(batch)[1].metrics.numpy()
    metrics = dict(zip(policy.metric_names, found, strict=True))
    assert abs(metrics["approximate_kl"]) < 1e-6 and metrics["clip_fraction"] == 0
    assert abs(metrics["policy_loss"]) < 1e-6  # minus the mean of normalised advantages


ACTIONS = {
    "discrete": (Discrete(4), [3, 0]),
    "kinds": (MultiDiscrete((2, 3)), [[1, 2], [0, 0]]),
    "box": (Box((-1.0, 0.0), (1.0, 3.0)), [[0.5, -1.0], [9.0, 0.1]]),
}


@pytest.mark.parametrize(
    "name, precision",
    [
        ("discrete", "mixed_bfloat16"),
        ("kinds", "float32"),
        ("box", "float32"),
        ("box", "mixed_float16"),
    ],
)
def test_every_kind_of_action_is_learnt_in_every_precision(precision, name):
    action_space, action = ACTIONS[name]
    policy = make_policy(
        EnvSpec("any", tf.TensorSpec([3]), action_space), precision=precision, learning_rate=0.01
    )
    obs = tf.constant([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]])
    action = tf.constant(action)
    params, value = outputs(policy, obs)
    assert params.dtype == value.dtype == tf.float32
    before = policy.distribution.log_prob(params, action)
    batch = PPOBatch(obs, action, before, tf.constant([1.0, -1.0]), tf.constant([5.0, -5.0]), value)
    update = policy.fit_step if precision == "mixed_float16" else policy.update
    for _ in range(8):
        metrics = update(batch).metrics
    assert np.isfinite(metrics).all()
    after = policy.distribution.log_prob(outputs(policy, obs)[0], action)
    assert after[0] > before[0] and after[1] < before[1]
    assert all(weight.dtype == "float32" for weight in policy.network.trainable_weights)


@pytest.mark.parametrize("bounds", ["scale", "clip", "squash"])
def test_a_policy_that_starts_too_wide_comes_back(bounds):
    """Near actions are better than far ones, so the deviation falls below where it began."""
    spec = EnvSpec("any", tf.TensorSpec([3]), Box((-1.0,), (1.0,)))
    policy = make_policy(spec, action_bounds=bounds, learning_rate=0.05)
    weights = policy.network.get_weights()
    scales = next(i for i, w in enumerate(policy.network.weights) if w is policy.network.scales)
    policy.set_weights([*weights[:scales], np.array([2.5], np.float32), *weights[scales + 1 :]])
    obs, action = tf.ones([4, 3]), tf.constant([[0.1], [-0.1], [20.0], [-20.0]])
    advantage = tf.constant([1.0, 1.0, -1.0, -1.0])
    for _ in range(40):
        params, value = outputs(policy, obs)
        log_prob = policy.distribution.log_prob(params, action)
        policy.update(PPOBatch(obs, action, log_prob, advantage, value, value))
    policy.publish()
    assert policy.network.scales.numpy() < 1.9


def functional():
    obs = keras.Input((3,))
    hidden = keras.layers.Dense(8, "tanh")(obs)
    return keras.Model(obs, [keras.layers.Dense(2)(hidden), keras.layers.Dense(1)(hidden)])


class Subclassed(keras.Model):
    """Sequential halves, as people write them."""

    def __init__(self, params):
        super().__init__()
        layers = keras.layers
        self.num_params = params
        self.actor = keras.Sequential([layers.Dense(8, "relu"), layers.Dense(params)])
        self.critic = keras.Sequential([layers.Dense(8, "relu"), layers.Dense(1)])

    def call(self, obs):
        return self.actor(obs), self.critic(obs)

    def get_config(self):
        return {"params": self.num_params}


@pytest.mark.parametrize(
    "model, precision",
    [
        (lambda spec: functional(), "float32"),
        (lambda spec: Subclassed(spec.num_actions), "mixed_float16"),
    ],
    ids=["functional", "subclassed in half precision"],
)
def test_a_users_model_learns(model, precision):
    policy = make_policy(model=model, precision=precision, learning_rate=0.01)
    batch = make_batch(32)
    first = policy.fit_step(batch).metrics
    for _ in range(60):
        last = policy.fit_step(batch).metrics
    value_loss = policy.metric_names.index("value_loss")
    assert np.isfinite(last).all() and last[value_loss] < 0.7 * first[value_loss]
    params, value = outputs(policy, batch.obs)
    assert params.shape == (32, 2) and value.shape == (32,)
    assert params.dtype == value.dtype == tf.float32


@pytest.mark.parametrize(
    ("spec", "given", "expected"),
    [(VECTOR, None, 0.02), (VECTOR, 0.0, 0.0), (CONTINUOUS, None, 0.0), (CONTINUOUS, 0.3, 0.3)],
)
def test_discrete_actions_have_an_entropy_bonus_unless_told_otherwise(spec, given, expected):
    assert make_policy(spec, entropy_coef=given).hyper.entropy_coef == expected
