"""The user's own optimizer, policy and schedules."""

import math
import re
import warnings

import keras
import numpy as np
import pytest
import tensorflow as tf

from examples.custom_loss import ExpectedSarsaPolicy
from kytolly import DQNConfig, PPOConfig, Trainer
from kytolly.agent.make_agent import make_agent
from kytolly.agent.parts import CustomParts
from kytolly.agent.schedules import Schedule
from kytolly.config.schedules import schedule_table
from kytolly.environment.tensor.cartpole import CartPole
from kytolly.loop.device import DeviceLoop
from kytolly.policy.batch import Transition
from kytolly.policy.dqn import DQNPolicy
from kytolly.policy.ppo import PPOBatch, PPOPolicy
from kytolly.record.saved_run import SavedRun
from tests.helpers.q_learning_probes import ObservationAction, Ring

SPEC = CartPole().spec
COMMON = {
    "total_env_steps": 128, "num_envs": 2, "hidden_units": (4,), "xla": False, "loop": "device",
    "evaluation_episodes": 2, "final_evaluation_episodes": 2, "log_interval_env_steps": 32,
    "evaluation_interval_env_steps": 64, "checkpoint_interval_env_steps": 32, "device": "cpu",
}  # fmt: skip
PPO = {**COMMON, "rollout_steps": 16, "num_minibatches": 1, "epochs": 1}
DQN = {**COMMON, "batch_size": 8, "warmup_env_steps": 32, "train_interval_env_steps": 8,
       "updates_per_interval": 2}  # fmt: skip


def train(folder, cfg, resume=False, **parts):
    return Trainer(folder, progress=False).train(cfg, "CartPole-v1", resume=resume, **parts)


def weights(result):
    return np.concatenate([np.ravel(weight) for weight in result.agent.policy.network.weights])


def agent_of(cfg, optimizer=None, policy=None, model=None):
    return make_agent(cfg, SPEC, model, CustomParts(optimizer, policy, cfg.learning_rate))


def test_one_update_with_the_users_sgd_is_rate_times_gradient():
    policy = agent_of(PPOConfig(**PPO, max_grad_norm=None), keras.optimizers.SGD(0.5)).policy
    before = tf.identity(policy.weights.vector)
    gradient = tf.linspace(-1.0, 1.0, before.shape[0])
    policy.apply(gradient)
    np.testing.assert_allclose(policy.weights.vector, before - 0.5 * gradient, atol=1e-6)


def test_an_optimizer_is_copied_without_its_state():
    given, variable = keras.optimizers.Adam(0.25, beta_1=0.5), keras.Variable([1.0])
    given.apply([tf.constant([1.0])], [variable])
    found = agent_of(PPOConfig(**PPO), given).policy.optimizer
    assert found is not given and float(found.beta_1) == 0.5 and int(found.iterations) == 0
    assert float(found.learning_rate) == 0.25


OPTIMIZERS = {
    "momentum": lambda: keras.optimizers.SGD(0.05, momentum=0.9),
    "schedule": lambda: keras.optimizers.Adam(
        keras.optimizers.schedules.ExponentialDecay(0.01, 2, 0.5)
    ),
    "function": lambda: keras.optimizers.RMSprop,
}


@pytest.mark.learning
@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_a_resumed_run_with_a_custom_optimizer_equals_one_that_never_stopped(tmp_path, kind):
    make = OPTIMIZERS[kind]
    constant = {**PPO, "learning_rate_final": None}  # a fall would end with the first half
    cfg, half = PPOConfig(**constant), PPOConfig(**{**constant, "total_env_steps": 64})
    whole = train(tmp_path / "whole", cfg, optimizer=make())
    train(tmp_path / "half", half, optimizer=make())
    resumed = train(tmp_path / "half", cfg, resume=True, optimizer=make())
    np.testing.assert_array_equal(weights(whole), weights(resumed))
    rates = [row["learning_rate"] for row in resumed.history]
    assert rates == [row["learning_rate"] for row in whole.history] and len(rates) == 4


def test_a_run_with_own_parts_is_not_resumed_without_them(tmp_path):
    cfg = DQNConfig(**DQN)
    parts = {"optimizer": keras.optimizers.SGD(0.05), "policy": ExpectedSarsaPolicy}
    train(tmp_path / "run", cfg, **parts)
    saved = SavedRun.existing(tmp_path / "run").read_config()
    assert saved.parts == {"optimizer": "SGD", "policy": "ExpectedSarsaPolicy"}
    for left_out in parts:
        others = {k: v for k, v in parts.items() if k != left_out}
        with pytest.raises(ValueError, match=rf"{left_out} is the usual one, .* with \w+: resume"):
            train(tmp_path / "run", cfg, resume=True, **others)


def test_a_model_that_was_compiled_with_an_optimizer_learns_by_it_and_that_is_said():
    model = keras.Sequential([keras.Input([4]), keras.layers.Dense(2)])
    model.compile(optimizer=keras.optimizers.Nadam(0.125))
    with pytest.warns(UserWarning, match="was compiled with Nadam: Nadam trains it"):
        agent = agent_of(DQNConfig(**DQN), model=model)
    assert type(agent.policy.optimizer).__name__ == "Nadam"
    assert float(agent.policy.optimizer.learning_rate) == 0.125
    with pytest.warns(UserWarning, match=r"optimizer=\.\.\. is given, and Nadam is unused"):
        agent = agent_of(DQNConfig(**DQN), keras.optimizers.SGD(0.5), model=model)
    assert type(agent.policy.optimizer).__name__ == "SGD"


@pytest.mark.learning
@pytest.mark.parametrize("rate", [0.08, keras.optimizers.schedules.PolynomialDecay(0.08, 10**9)])
def test_a_loss_that_is_not_finite_restarts_with_half_the_optimizers_rate(
    tmp_path, monkeypatch, rate
):
    def loss(self, batch, given, hyper, whole=PPOPolicy.loss):
        found = whole(self, batch, given, hyper)
        bad = (self.optimizer.learning_rate > 0.05) & (self.updates >= 2)
        value = found.loss + tf.where(bad, math.nan, 0.0)
        metrics = tf.concat([[value], found.metrics[1:]], axis=0)
        return found._replace(loss=value, metrics=metrics)

    monkeypatch.setattr(PPOPolicy, "loss", loss)
    cfg = PPOConfig(**PPO, on_nan="restart")
    with pytest.warns(UserWarning, match="goes on from the newest checkpoint"):
        result = train(tmp_path / "run", cfg, optimizer=keras.optimizers.SGD(rate))
    assert len(result.summary["faults"]) == 1
    assert result.history[-1]["learning_rate"] == pytest.approx(0.04)
    assert result.stopped_by == "total_env_steps"


def warnings_of(cfg, optimizer):
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always", UserWarning)
        agent_of(cfg, optimizer)
    return [str(one.message) for one in said if one.category is UserWarning]


def test_which_learning_rate_counts_is_said():
    sgd, cfg = keras.optimizers.SGD(0.1), {**PPO, "learning_rate": 0.3}
    (said,) = warnings_of(PPOConfig(**cfg, schedules="learning_rate=linear"), sgd)
    assert "learning_rate, schedules: learning_rate (its own learning rate counts)" in said
    (said,) = warnings_of(PPOConfig(**cfg, weight_decay=0.1), keras.optimizers.SGD)
    assert "no effect: weight_decay (they are Adam's)" in said
    assert not warnings_of(PPOConfig(**PPO), sgd) + warnings_of(DQNConfig(**DQN), sgd)
    assert not warnings_of(DQNConfig(**DQN, learning_rate=0.3), keras.optimizers.SGD)


class NotTensorCode(keras.optimizers.SGD):
    def update_step(self, gradient, variable, learning_rate):
        variable.assign(variable - float(np.asarray(gradient)[0]))


class NoConfig(keras.optimizers.SGD):
    def __init__(self, wanted):
        super().__init__(0.1)


@pytest.mark.parametrize(
    ("optimizer", "words"),
    [
        ("sgd", "optimizer is builtins.str, expected an optimizer of Keras 3"),
        (tf.compat.v1.train.AdamOptimizer(), "Optimizers of TensorFlow 1 and of Keras 2 do not"),
        (lambda rate: None, "optimizer is builtins.NoneType"),
        (keras.optimizers.Lamb(0.1), "Lamb, which scales the step of each weight by itself"),
        (NotTensorCode(0.1), "a step of the optimizer NotTensorCode cannot be compiled"),
        (NoConfig(3), "NoConfig cannot be made anew from its get_config"),
    ],
    ids=["name", "legacy", "nothing", "by weight", "numpy", "no config"],
)
def test_an_optimizer_that_cannot_learn_here_is_refused(optimizer, words):
    with pytest.raises((TypeError, ValueError), match=re.escape(words)):
        agent_of(PPOConfig(**PPO), optimizer)


def test_an_unknown_keyword_of_train_is_refused(tmp_path):
    with pytest.raises(TypeError, match="optimiser"):
        train(tmp_path / "run", PPOConfig(**PPO), optimiser=keras.optimizers.SGD(0.1))


# Schedules


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "xla"])
def test_a_table_is_linear_between_its_points(compiled):
    schedule = Schedule(np.array([1.0, 0.75, 0.0]), np.array([4.0, 2.0, 8.0]), 400)
    value = tf.function(schedule, jit_compile=compiled or None)
    # 100 env steps are the share 0.25, where 0.75 remains; 250 are halfway to the end.
    found = [float(value(tf.constant(n, tf.int64))) for n in (0, 50, 100, 250, 400, 500)]
    assert found == pytest.approx([4.0, 3.0, 2.0, 5.0, 8.0, 8.0])


def test_names_go_from_the_setting_to_its_end():
    cfg = PPOConfig(learning_rate=0.5, learning_rate_final=0.1, clip_range=0.25)
    for text, middle in (("constant", 0.5), ("linear", 0.3), ("cosine", 0.3)):
        schedule = Schedule(*schedule_table(cfg, "learning_rate", text), 1_000)
        assert float(schedule(500)) == pytest.approx(middle, rel=1e-5)
    # cosine at a quarter: 0.1 + 0.4 x (1 + cos(pi / 4)) / 2
    assert float(schedule(250)) == pytest.approx(0.1 + 0.2 * (1 + math.sqrt(0.5)), rel=1e-5)
    assert float(Schedule(*schedule_table(cfg, "clip_range", "linear"), 10)(10)) == 0
    with pytest.raises(ValueError, match="entropy_coef is none, expected a number"):
        schedule_table(PPOConfig(), "entropy_coef", "linear")
    shares, values = schedule_table(DQNConfig(), "epsilon", "linear")
    assert list(values) == pytest.approx([1.0, 0.04]) and list(shares) == [1.0, 0.0]


def test_every_scheduled_setting_has_its_value_in_training_and_is_a_metric(tmp_path):
    def rate(remaining):  # as for Stable-Baselines3; `if` needs no tensor code
        return 0.001 if remaining > 0.6 else 0.0001

    cfg = PPOConfig(
        **PPO,
        schedules={"learning_rate": rate, "clip_range": "linear", "entropy_coef": "1:0.5 0:1"},
    )
    result = train(tmp_path / "run", cfg)
    rows = result.history
    # Each iteration of 32 env steps has the value before it: 1, 3/4, 1/2 and 1/4 remain.
    assert [row["learning_rate"] for row in rows] == pytest.approx([1e-3, 1e-3, 1e-4, 1e-4])
    assert [row["clip_range"] for row in rows] == pytest.approx([0.2, 0.15, 0.1, 0.05])
    assert [row["entropy_coef"] for row in rows] == pytest.approx([0.5, 0.625, 0.75, 0.875])
    for row in rows:  # one update an iteration: the ratio is 1, and the policy's loss about 0
        rest = row["policy_loss"] + 0.5 * row["value_loss"] - row["entropy_coef"] * row["entropy"]
        assert row["loss"] == pytest.approx(rest, rel=1e-4)
    saved = SavedRun.existing(tmp_path / "run").read_config().settings["schedules"]
    assert saved["learning_rate"].startswith("1:0.001 0.6") and saved["clip_range"] == "linear"
    assert saved == PPOConfig(**PPO, schedules=saved).schedules


def test_a_clip_range_of_a_schedule_limits_the_ratio():
    agents = [
        agent_of(PPOConfig(**PPO, schedules="clip_range=1:0.5 0:0.1")),
        agent_of(PPOConfig(**PPO, clip_range=0.5)),
    ]
    rng = np.random.default_rng(0)
    params = tf.constant(rng.normal(size=(16, 2)), tf.float32)
    number = tf.constant(rng.normal(size=16), tf.float32)
    obs, action = tf.zeros([16, 4]), tf.zeros([16], tf.int32)
    batch = PPOBatch(obs, action, number - 1.0, number, number, number)
    one, other = (
        agent.policy.loss_of_outputs(batch, params, number, agent.hyper()) for agent in agents
    )
    np.testing.assert_allclose(one.metrics, other.metrics, rtol=1e-6)
    assert float(one.metrics[5]) > 0  # some rows are clipped


@pytest.mark.learning
def test_a_schedule_of_epsilon_begins_with_learning(tmp_path):
    result = train(tmp_path / "run", DQNConfig(**DQN, schedules="epsilon=1:0.8 0.5:0.4 0:0.2"))
    # After 32, 64, 96 and 128 env steps 0.75, 0.5, 0.25 and nothing remain.
    assert [row["epsilon"] for row in result.history] == pytest.approx([0.6, 0.4, 0.3, 0.2])
    agent = agent_of(DQNConfig(**DQN, schedules="epsilon=1:0.8 0:0.2"))
    assert float(agent.exploration.state(tf.constant(31, tf.int64))[0]) == 1.0


def test_a_resumed_run_follows_its_schedules(tmp_path):
    cfg = PPOConfig(
        **PPO, schedules={"clip_range": lambda p: 0.3 * p**2, "learning_rate": "cosine"}
    )
    whole = train(tmp_path / "whole", cfg)

    class Stop(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            self.model.stop_training = True

    Trainer(tmp_path / "half", progress=False).train(cfg, "CartPole-v1", [Stop()])
    table = SavedRun.existing(tmp_path / "half").read_config().settings["schedules"]
    resumed = train(tmp_path / "half", PPOConfig(**PPO, schedules=table), resume=True)
    np.testing.assert_array_equal(weights(whole), weights(resumed))


# A policy of one's own


def test_expected_sarsa_has_the_target_computed_by_hand():
    cfg = DQNConfig(**DQN)
    policy = agent_of(cfg, policy=ExpectedSarsaPolicy).policy
    policy.target_q = lambda obs: tf.constant([[2.0, 6.0], [10.0, 20.0]])
    columns = tf.zeros([2, 4]), tf.zeros([2], tf.int32)
    batch = Transition(*columns, tf.constant([1.0, 3.0]), tf.constant([0.5, 0.0]), columns[0])
    # epsilon 0.1 of two actions: 0.05 x 2 + 0.95 x 6 = 5.8, and 1 + 0.5 x 5.8 = 3.9; DQN gives 4.
    np.testing.assert_allclose(policy.bootstrap(batch, [], policy.hyper), [3.9, 3.0], rtol=1e-6)


@pytest.mark.learning
@pytest.mark.parametrize("env", [Ring(), ObservationAction()])
def test_expected_sarsa_solves_a_probe_environment(env):
    cfg = DQNConfig(
        gamma=0.9, num_envs=4, batch_size=64, hidden_units=(32, 32), learning_rate=3e-3,
        replay_capacity=4_000, warmup_env_steps=200, total_env_steps=12_000,
        train_interval_env_steps=4, updates_per_interval=1, target_sync_updates=40,
        exploration_env_steps=20_000, epsilon_final=0.5, seed=1,
    )  # fmt: skip
    agent = make_agent(cfg, env.spec, None, CustomParts(policy=ExpectedSarsaPolicy))
    DeviceLoop(agent, env).run(12_000)
    agent.policy.publish()
    memory = agent.memory
    obs = np.unique(memory.columns.obs.numpy()[: int(memory.size)], axis=0)
    np.testing.assert_allclose(agent.q_values(obs), env.true_q(obs, 0.9), atol=0.1)


@pytest.mark.parametrize("policy", [DQNPolicy, "PPOPolicy", lambda *parts: None])
def test_what_is_no_policy_of_the_algorithm_is_refused(policy):
    with pytest.raises(TypeError, match="expected a subclass of PPOPolicy"):
        agent_of(PPOConfig(**PPO), policy=policy)
