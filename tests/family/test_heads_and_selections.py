"""Every head of Q-learning with every selection finds known values, in both loops."""

import itertools

import gymnasium
import numpy as np
import pytest
import tensorflow as tf

from kytolly.environment.spec import Discrete, EnvSpec
from kytolly.policy.distributional import Categorical, ImplicitQuantile, Quantile
from kytolly.policy.heads import Scalar
from kytolly.policy.munchausen import Soft
from kytolly.policy.selection import Greedy
from kytolly.trainer import Trainer
from tests.helpers.cases import rest_learning

GAMMA, TEMPERATURE, SCALE = 0.9, 0.5, 0.6
HEADS = {
    "munchausen": (Scalar, {}),  # whose switch may be off: then it is DQN
    "c51": (Categorical, {"num_atoms": 15, "value_min": 0.0, "value_max": 1.4}),
    "qr-dqn": (Quantile, {"num_quantiles": 3}),
    "iqn": (ImplicitQuantile, {"num_quantiles": 4, "num_target_quantiles": 4, "num_cosines": 4}),
}
SETTINGS = {
    "gamma": GAMMA,
    "num_envs": 2,
    "xla": False,
    "hidden_units": [16],
    "batch_size": 32,
    "warmup_env_steps": 64,
    "replay_capacity": 1_000,
    "train_interval_env_steps": 32,
    "updates_per_interval": 32,
    "target_sync_updates": 20,
    "reward_scale": 1.0,  # the temperature is in its units
    "normalize_observations": False,
    "learning_rate": 2e-2,
    "learning_rate_final": 1e-3,
    "total_env_steps": 640,
    "n_step": 1,
    "evaluation_episodes": 1,
    "final_evaluation_episodes": 1,
    "evaluation_interval_env_steps": 640,
}


class TwoSteps:
    """Observation 0, then 1, whatever is done; the second step is paid 1 and is the last."""

    spec = EnvSpec("test/two-steps", tf.TensorSpec([1]), Discrete(2))
    reset_uniforms = 0
    step_uniforms = 0

    def reset(self, uniform):
        return tf.zeros([uniform.shape[0], 1])

    def observe(self, state):
        return state

    def step(self, state, action, uniform):
        second = state[:, 0] > 0.5
        return tf.ones_like(state), tf.cast(second, tf.float32), second


class HostTwoSteps(gymnasium.Env):
    """The same, for Gymnasium."""

    observation_space = gymnasium.spaces.Box(0, 1, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.second = False
        return np.zeros(1, np.float32), {}

    def step(self, action):
        second, self.second = self.second, True
        return np.ones(1, np.float32), float(second), second, False, {}


def true_values(soft):
    """Of both actions, which are alike, at the observations 0 and 1.

    Munchausen's bonus is then SCALE * TEMPERATURE * log(1/2), and the entropy of what follows
    TEMPERATURE * log(2).
    """
    if not soft:
        return [GAMMA, 1.0]
    share = TEMPERATURE * np.log(2.0)
    later = 1.0 - SCALE * share
    return [GAMMA * (later + share) - SCALE * share, later]


ENVS = {"device": TwoSteps(), "host": HostTwoSteps}
CASES = itertools.product(HEADS, ["greedy", "soft"], ["single", "double"], ENVS)
QUICK = [  # each head, and each loop with both, single and double
    ("munchausen", "soft", "single", "device"),
    ("c51", "soft", "double", "host"),
    ("qr-dqn", "greedy", "double", "device"),
    ("iqn", "greedy", "single", "host"),
]


@pytest.mark.parametrize("algorithm, kind, networks, loop", rest_learning([*CASES], QUICK))
def test_it_finds_the_values(algorithm, kind, networks, loop, tmp_path):
    soft, double, env = kind == "soft", networks == "double", ENVS[loop]
    head, settings = HEADS[algorithm]
    cfg = {"algorithm": algorithm, **SETTINGS, **settings, "munchausen": soft, "double": double}
    if soft:
        cfg |= {"entropy_temperature": TEMPERATURE, "munchausen_scale": SCALE}
    agent = Trainer(tmp_path / "run", progress=False).train(cfg, env).agent
    assert type(agent.policy.head) is head
    assert agent.policy.selection == (Soft if soft else Greedy)(double)
    agent.policy.publish()
    found = agent.q_values(np.array([[0.0], [1.0]], np.float32))
    np.testing.assert_allclose(found, np.transpose([true_values(soft)] * 2), atol=0.08)
