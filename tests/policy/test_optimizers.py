"""Warm-up, decay, weight decay and accumulation: the training aids of every trainer."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from kytolly.agent.make_agent import make_agent
from kytolly.config.dqn import DQNConfig
from kytolly.config.ppo import PPOConfig
from kytolly.environment.spec import Discrete, EnvSpec
from kytolly.policy.adam import make_schedule
from kytolly.policy.adamw import decay_mask, decays, make_adam
from kytolly.policy.batch import Transition
from kytolly.policy.ppo import PPOBatch
from kytolly.trainer import Trainer
from tests.helpers.cases import learning

SPEC = EnvSpec("vector", tf.TensorSpec([3]), Discrete(2))


def rates(schedule, *updates):
    return [float(schedule(tf.constant(n, tf.int64))) for n in updates]


def test_a_schedule_warms_up_and_then_falls():
    linear = make_schedule(1.0, 0.2, updates=10, warmup_ratio=0.2)
    # 2 updates of warm-up: 1/2, 2/2; then 8 updates from 1.0 to 0.2: a tenth less each
    assert rates(linear, 0, 1, 2, 4, 6, 10, 99) == pytest.approx([0.5, 1, 1, 0.8, 0.6, 0.2, 0.2])
    cosine = make_schedule(1.0, 0.2, updates=10, warmup_ratio=0.2, shape="cosine")
    quarter = 0.2 + 0.8 * (1 + np.cos(np.pi / 4)) / 2
    assert rates(cosine, 0, 1, 2, 4, 6, 10) == pytest.approx([0.5, 1, 1, quarter, 0.6, 0.2])
    constant = make_schedule(0.3, None, updates=10, warmup_ratio=0.25)  # 3 updates: rounded up
    assert rates(constant, 0, 1, 2, 9) == pytest.approx([0.1, 0.2, 0.3, 0.3])
    assert make_schedule(0.3, None, updates=10) == 0.3


def test_matrices_decay_and_biases_do_not():
    dense, attention = keras.layers.Dense(2), keras.layers.MultiHeadAttention(2, 3)
    dense.build((None, 3))
    attention.build((None, 4, 6), (None, 4, 6))
    assert [decays(weight) for weight in dense.weights] == [True, False]
    np.testing.assert_array_equal(decay_mask(dense.weights), [1] * 6 + [0] * 2)
    of_attention = {"/".join(w.path.split("/")[-2:]): w for w in attention.weights}
    assert {name for name, weight in of_attention.items() if decays(weight)} == {
        f"{part}/kernel" for part in ("query", "key", "value", "attention_output")
    }
    assert any(len(w.shape) == 2 and "bias" in name for name, w in of_attention.items())


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "xla"])
@pytest.mark.parametrize(
    "warmup, expected",
    [
        # Adam's first steps with an equal gradient are the rate, 0.1. First 2 - 0.1 x 0.5 x 2 - 0.1
        # = 1.8, then 1.8 - 0.1 x 0.5 x 1.8 - 0.1 = 1.61; the bias: 1.9, 1.8.
        (0, [[1.8, 1.9], [1.61, 1.8]]),
        # The first rate is 0.05: 2 - 0.05 x 0.5 x 2 - 0.05 = 1.9, then 1.9 - 0.095 - 0.1 = 1.705.
        (2, [[1.9, 1.95], [1.705, 1.85]]),
    ],
)
def test_weight_decay_is_decoupled_and_follows_the_rate(compiled, warmup, expected):
    kernel, bias = keras.Variable([[2.0]], name="kernel"), keras.Variable([2.0], name="bias")
    vector = keras.Variable([2.0, 2.0])
    optimizer = make_adam(0.1, [kernel, bias], weight_decay=0.5, warmup_updates=warmup)
    optimizer.build([vector])
    step = tf.function(lambda g: optimizer.apply([g], [vector]), jit_compile=compiled or None)
    for numbers in expected:
        step(tf.constant([3.0, 3.0]))  # decay within the gradient would be lost in its scale
        np.testing.assert_allclose(vector, numbers, rtol=1e-5)


def dqn_policy(**settings):
    cfg = DQNConfig(batch_size=8, hidden_units=(5,), warmup_env_steps=100, **settings)
    return make_agent(cfg, SPEC).policy


def transitions(rows, weight=None):
    rng = np.random.default_rng(0)
    obs, following = rng.normal(size=(2, rows, 3)).astype(np.float32)
    reward, discount = rng.normal(size=(2, rows)).astype(np.float32)
    action = tf.constant(rng.integers(2, size=rows), tf.int32)
    columns = (obs, action, reward, discount, following)
    return Transition(*map(tf.constant, columns), weight)


@pytest.mark.parametrize("weight", [None, tf.linspace(0.5, 2.0, 32)], ids=["uniform", "weights"])
def test_dqn_accumulates_what_all_rows_give_at_once(weight):
    whole, parts = dqn_policy(), dqn_policy(gradient_accumulation=4)
    assert parts.cfg.rows_per_update == 32
    batch = transitions(32, weight)
    (one, first), (other, second) = whole.gradient(batch), parts.gradient(batch)
    np.testing.assert_allclose(one, other, atol=1e-6)
    np.testing.assert_allclose(first.metrics, second.metrics, rtol=1e-5)
    np.testing.assert_allclose(first.td_error, second.td_error, rtol=1e-5)  # in the rows' order


def test_no_largest_norm_leaves_the_gradient_as_it_is():
    free, loose, tight = (dqn_policy(max_grad_norm=most) for most in (None, 1e9, 1e-3))
    batch = transitions(8)
    np.testing.assert_array_equal(free.gradient(batch)[0], loose.gradient(batch)[0])
    assert np.linalg.norm(tight.gradient(batch)[0]) == pytest.approx(1e-3, rel=1e-3)
    assert float(free.gradient(batch)[1].metrics[-1]) > 1e-3


def test_ppo_warms_up_by_updates_within_the_compiled_step():
    # 4 updates in 64 env steps: 2 of warm-up, the first with half the rate
    cfg = PPOConfig(
        total_env_steps=64, num_envs=2, rollout_steps=8, epochs=1, num_minibatches=1,
        warmup_ratio=0.5, learning_rate=0.01, hidden_units=(4,),
    )  # fmt: skip
    policy = make_agent(cfg, SPEC).policy
    rng = np.random.default_rng(1)
    number = tf.constant(rng.normal(size=16), tf.float32)
    obs = tf.constant(rng.normal(size=(16, 3)), tf.float32)
    batch = PPOBatch(obs, tf.zeros([16], tf.int32), number, number, number, number)
    before = policy.weights.vector.numpy()
    policy.fit_step(batch)
    assert np.abs(policy.weights.vector - before).max() == pytest.approx(0.005, rel=1e-2)
    assert float(policy.optimizer.learning_rate) == pytest.approx(0.01)  # of the next update


@pytest.mark.parametrize("precision", ["float32", learning("mixed_float16")])
def test_ppo_falls_after_the_warmup_by_env_steps(precision, tmp_path):
    cfg = {
        "total_env_steps": 160, "num_envs": 2, "rollout_steps": 8, "epochs": 1,
        "num_minibatches": 1, "learning_rate": 1e-3, "learning_rate_final": 0.0,
        "warmup_ratio": 0.2, "weight_decay": 0.01, "hidden_units": (4,), "precision": precision,
        "evaluation_episodes": 2, "final_evaluation_episodes": 2, "log_interval_env_steps": 16,
        "evaluation_interval_env_steps": 160, "loop": "device", "xla": False,
    }  # fmt: skip
    result = Trainer(tmp_path / "run", progress=False).train_ppo(cfg, "CartPole-v1")
    # 32 env steps, 2 updates, of warm-up; the k-th rate was set after 16 (k - 1) env steps
    expected = [1e-3 * (1 - max(0, 16 * k - 32) / 128) for k in range(10)]
    found = [row["learning_rate"] for row in result.history]
    # float16 overflows once, and an update that is skipped is none: the first rate stays
    np.testing.assert_allclose(found[1:], expected[1:], rtol=1e-5)
