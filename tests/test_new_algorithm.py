"""An algorithm that the library does not have: one policy, one config and one row make it whole."""

import dataclasses
import inspect
from typing import Literal

import gymnasium
import numpy as np
import pytest
import tensorflow as tf

from kytolly.agent.algorithms import ALGORITHMS, Algorithm, make_config, part
from kytolly.config.dqn import DQNConfig
from kytolly.config.fields import Share, setting
from kytolly.environment.spec import Discrete, EnvSpec
from kytolly.policy.dqn import DQNPolicy
from kytolly.trainer import Trainer
from tests.helpers.cases import learning

GAMMA, EPSILON = 0.9, 0.4


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class ExpectedSarsaConfig(DQNConfig):
    """Settings of expected SARSA."""

    algorithm: Literal["expected-sarsa"] = setting("expected-sarsa", "expected-sarsa")
    target_epsilon: Share = setting(EPSILON, "share of random actions in the policy of the targets")


class ExpectedSarsaPolicy(DQNPolicy):
    """Action values of the epsilon-greedy policy itself.

    Source: van Seijen et al. 2009, "A Theoretical and Empirical Analysis of Expected Sarsa".
    """

    def bootstrap(self, batch, weights, hyper):
        """[B] targets: the mean of the target network's values under epsilon-greedy actions."""
        q, epsilon = self.target_q(batch.next_obs), self.cfg.target_epsilon
        best, mean = tf.reduce_max(q, axis=-1), tf.reduce_mean(q, axis=-1)
        value = (1.0 - epsilon) * best + epsilon * mean
        return tf.stop_gradient(batch.reward + batch.discount * value)


def make_row() -> Algorithm:
    return ALGORITHMS["dqn"]._replace(config=ExpectedSarsaConfig, policy=ExpectedSarsaPolicy)


@pytest.fixture(scope="module", autouse=True)
def registered():
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(ALGORITHMS, "expected-sarsa", make_row())
        yield


class Fork:
    """Observation 0, then 1 whatever is done; there action 1 is paid 1, and the episode ends.

    Values at 1 are (0, 1). At 0 they are 0.9 (0.6 + 0.4 / 2) = 0.72 for both actions where 0.4 of
    the actions are random; Q-learning finds 0.9.
    """

    spec = EnvSpec("test/fork", tf.TensorSpec([1]), Discrete(2))
    reset_uniforms = 0
    step_uniforms = 0

    def reset(self, uniform):
        return tf.zeros([uniform.shape[0], 1])

    def observe(self, state):
        return state

    def step(self, state, action, uniform):
        second = state[:, 0] > 0.5
        reward = tf.where(second, tf.cast(action, tf.float32), 0.0)
        return tf.ones_like(state), reward, second


class HostFork(gymnasium.Env):
    """The same, for Gymnasium."""

    observation_space = gymnasium.spaces.Box(0, 1, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.state = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        second, self.state = self.state == 1, 1
        return np.ones(1, np.float32), float(second and action), second, False, {}


TRUE = [[GAMMA * (1 - EPSILON / 2)] * 2, [0.0, 1.0]]
SETTINGS = {
    "algorithm": "expected-sarsa",
    "gamma": GAMMA,
    "num_envs": 2,
    "xla": False,
    "hidden_units": [16],
    "batch_size": 32,
    "warmup_env_steps": 64,
    "replay_capacity": 2_000,
    "train_interval_env_steps": 16,
    "updates_per_interval": 8,
    "target_sync_updates": 16,
    "learning_rate": 1e-2,
    "learning_rate_final": 1e-3,
    "epsilon_final": 0.5,
    "total_env_steps": 1_600,
    "n_step": 1,  # its targets hold for rows of one step
    "evaluation_episodes": 2,
    "final_evaluation_episodes": 2,
    "evaluation_interval_env_steps": 1_600,
}


def test_it_takes_at_most_sixty_lines():
    parts = (ExpectedSarsaConfig, ExpectedSarsaPolicy, make_row)
    assert sum(len(inspect.getsource(one).splitlines()) for one in parts) <= 60


@pytest.mark.parametrize(
    "env, loop", [(Fork(), "device"), learning((HostFork, "host"))], ids=["device", "host"]
)
def test_it_finds_the_values_of_its_own_policy_and_is_saved_resumed_and_evaluated(
    tmp_path, env, loop
):
    trainer = Trainer(tmp_path / "run", progress=False)
    first = trainer.train({**SETTINGS, "total_env_steps": 800}, env)
    assert first.summary["algorithm"] == "expected-sarsa" and first.summary["loop"] == loop
    second = trainer.train(SETTINGS, env, resume=True)
    assert second.summary["env_steps"] == 1_600
    assert second.summary["updates"] > first.summary["updates"] > 0
    found = second.agent.q_values(np.array([[0.0], [1.0]], np.float32))
    np.testing.assert_allclose(found, TRUE, atol=0.06)
    again = trainer.evaluate(tmp_path / "run", episodes=2, env=env)
    assert again.return_mean == second.evaluation.return_mean == 1.0


def test_the_command_line_trains_it(tmp_path, capsys):
    from kytolly.command.entry import main

    words = ["train", "expected-sarsa", "--env", "CartPole-v1", "--log-dir", str(tmp_path / "run")]
    flags = {"target-epsilon": 0.1, "total-env-steps": 64, "batch-size": 8, "warmup-env-steps": 32}
    flags |= {"evaluation-episodes": 2, "final-evaluation-episodes": 2, "hidden-units": 4}
    flags |= {"train-interval-env-steps": 16}
    words += [word for name, value in flags.items() for word in (f"--{name}", str(value))]
    assert main([*words, "--no-xla"]) == 0
    assert "expected-sarsa" in (tmp_path / "run" / "config.yaml").read_text()
    assert "target_epsilon: 0.1" in (tmp_path / "run" / "config.yaml").read_text()


@pytest.mark.parametrize("algorithm", [*ALGORITHMS, "expected-sarsa"])
def test_every_part_of_every_row_is_there(algorithm):
    found = Algorithm(*(part(algorithm, name) for name in Algorithm._fields))
    assert not any(isinstance(one, str) for one in found)
    cfg = make_config({"algorithm": algorithm})
    assert type(cfg) is found.config and cfg.algorithm == algorithm
    assert cfg.env_steps_per_iteration == cfg.num_envs * cfg.rollout_steps > 0
    assert cfg.updates_per_iteration > 0
    memory = found.memory.for_config(cfg, Fork.spec)
    assert memory.updates == cfg.updates_per_iteration
    assert found.policy.metric_names[-1] == "grad_norm"


def test_an_unknown_algorithm_is_told_the_nearest():
    for near, name in {"expected-sarsa": "expected-sars", "ppo": "pppo", "ddqn": "dddqn"}.items():
        with pytest.raises(ValueError, match=f"'{name}' is no algorithm.* Did you mean '{near}'?"):
            part(name, "policy")
