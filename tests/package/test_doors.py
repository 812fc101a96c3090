"""Every promised way to call this project from a checkout."""

import os
import subprocess
import sys
from pathlib import Path

import kytolly

ROOT = Path(__file__).parents[2]
TINY = {
    "total_env_steps": 200,
    "hidden_units": (4,),
    "xla": False,
    "evaluation_episodes": 1,
    "final_evaluation_episodes": 1,
}
DQN = {**TINY, "warmup_env_steps": 32, "batch_size": 8}
PPO = {**TINY, "num_envs": 2, "rollout_steps": 50, "num_minibatches": 2}
NAMES = """
from kytolly import DQNConfig, PPOConfig, Trainer, configure_gpu_optimization
from kytolly.agent.kytolly import KytollyAgent
from kytolly.agent.replay_buffer import ReplayBuffer
from kytolly.model.ddqn_mlp import DuelingMLP
from kytolly.model.dqn_mlp import DQNMLP
from kytolly.policy.ddqn import DoubleDQNPolicy
from kytolly.policy.dqn import DQNPolicy
from kytolly.policy.ppo import PPOPolicy

assert issubclass(DoubleDQNPolicy, DQNPolicy)
import sys
assert "kytolly.trainer" in sys.modules and "kytolly.machine.doctor" not in sys.modules
"""
ORIGINAL = f"""
{NAMES}
from gpu_optimize import configure_gpu_optimization, require_tensorflow_backend, xla_enabled
from config import DQNConfig
from trainer import Trainer, train_dqn, train_ppo

report = configure_gpu_optimization(
    enable_xla=False, enable_mixed_precision=False, memory_growth=True, verbose=True
)
assert not xla_enabled() and not report["xla"].done
require_tensorflow_backend()
import kytolly.machine.facts
assert not kytolly.machine.facts.xla_enabled()  # a door keeps no state of its own

import os, sys
os.chdir(sys.argv[1])
trainer = Trainer(log_dir="a", progress=False)
result = trainer.train_dqn(DQNConfig(**{DQN}), env="CartPole-v1", cb=[])
assert result.summary["algorithm"] == "dqn" and result.agent.act([0.0, 0.0, 0.0, 0.0]) in (0, 1)
assert callable(result.agent.policy.fit_step) and callable(result.agent.policy.sync)
assert train_dqn({DQN}, "CartPole-v1").summary["env_steps"] >= 200
assert train_ppo({PPO}, "CartPole-v1").summary["algorithm"] == "ppo"
"""


def run_in_checkout(*command):
    env = {key: value for key, value in os.environ.items() if key != "KYTOLLY_XLA"}
    env |= {"PYTHONPATH": "", "KYTOLLY_COMPILE_CACHE": "off"}
    done = subprocess.run(
        [sys.executable, *map(str, command)], cwd=ROOT, capture_output=True, text=True, env=env
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_the_names_are_there_and_the_calls_of_the_original_design_train(tmp_path):
    assert "XLA compilation off" in run_in_checkout("-c", ORIGINAL, tmp_path)


def test_the_programs_have_help():
    assert "--json" in run_in_checkout("gpu_optimize.py", "--help")
    assert "train" in run_in_checkout("-m", "kytolly.command.entry", "--help")


def test_every_public_name_loads():
    for name in kytolly.__all__:
        found = getattr(kytolly, name)
        assert getattr(found, "__name__", name) == name
    assert kytolly.__version__ and set(kytolly.__all__) <= set(dir(kytolly))
