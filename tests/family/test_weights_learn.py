"""Every weight of every network learns: none is counted, moved and saved that no output needs."""

import numpy as np
import pytest

from kytolly.callback.base import Callback
from kytolly.trainer import Trainer
from tests.helpers.cases import rest_learning

SHORT = {
    "xla": False,
    "loop": "device",
    "evaluation_episodes": 1,
    "final_evaluation_episodes": 1,
    "evaluation_interval_env_steps": 10**6,
    "learning_rate": 0.01,
}
REPLAY = {
    "total_env_steps": 192,
    "warmup_env_steps": 64,
    "batch_size": 32,
    "train_interval_env_steps": 16,
    "target_sync_updates": 2,
    "hidden_units": (8, 8),
}
ROLLOUT = {"total_env_steps": 256, "num_envs": 4, "rollout_steps": 16, "hidden_units": (8, 8)}
BREAKOUT, PENDULUM = "MinAtar/Breakout-v0", "Pendulum-v1"
FAMILY = ("dqn", "c51", "qr-dqn", "iqn", "munchausen")
QUICK = [
    ("rainbow", "CartPole-v1", {}),
    ("pqn", "CartPole-v1", {}),
    ("ppo", PENDULUM, {"state_dependent_std": True}),
]
CASES = [(name, "CartPole-v1", {"network": n}) for name in FAMILY for n in ("mlp", "dueling")]
CASES += [(name, BREAKOUT, {}) for name in ("dqn", "rainbow", "pqn", "ppo")]
CASES += [case for case in QUICK if case not in CASES]
CASES += [
    ("dqn", BREAKOUT, {"network": "dueling_grid_cnn"}),
    ("iqn", "CartPole-v1", {"noisy": True, "network": "dueling"}),
    ("ppo", "CartPole-v1", {"shared_torso": True, "normalize_observations": True}),
    ("dqn", BREAKOUT, {"network": "impala", "impala_width": 1}),
    ("pqn", "CartPole-v1", {"layer_norm": False}),
    ("munchausen", "CartPole-v1", {"layer_norm": True}),
    ("ppo", "CartPole-v1", {}),
    ("ppo", PENDULUM, {"action_bounds": "squash"}),
]


class FirstWeights(Callback):
    """Keeps the weights with which training begins."""

    def on_train_begin(self, state):
        self.weights = {w.path: w.numpy() for w in state.network.trainable_variables}


@pytest.mark.parametrize("algorithm, env, settings", rest_learning(CASES, QUICK))
def test_every_weight_changes(algorithm, env, settings, tmp_path):
    first, sizes = FirstWeights(), ROLLOUT if algorithm in ("pqn", "ppo") else REPLAY
    cfg = {"algorithm": algorithm, **SHORT, **sizes, **settings}
    result = Trainer(tmp_path / "run", progress=False).train(cfg, env, [first])
    network = result.agent.policy.network
    result.agent.policy.weights.publish()
    same = [w.path for w in network.trainable_variables if np.all(w == first.weights[w.path])]
    assert result.summary["updates"] > 3 and not same
    assert result.summary["parameters"] == sum(map(np.size, first.weights.values()))
