"""One agent on several devices of a CPU against the same on one: in a process that has four."""

import json
import shutil

import pytest
import tensorflow as tf

from kytolly import Trainer
from kytolly.config.dqn import DQNConfig
from kytolly.machine.devices import names_of_several
from kytolly.record.checkpoint import checkpoints
from kytolly.record.metrics_file import read_rows
from kytolly.record.saved_run import SavedRun
from tests.helpers.new_process import in_new_process

COMPARE = """
import contextlib, json, sys
import numpy as np, tensorflow as tf
from kytolly.machine.devices import names_of_several
names_of_several("cpu:0,cpu:1,cpu:2,cpu:3")
from kytolly.agent.make_agent import make_agent
from kytolly.environment.state_variable import state_for_a_gpu
from kytolly.environment.tensor.cartpole import CartPole
from kytolly.loop.device import TensorEnvRunner
from kytolly.loop.replicas import ReplicatedLoop
from tests.loop.configs import small_config

def agent_loop(algorithm, settings):
    settings = {"num_envs": 4, "xla": False, **settings}
    placed = state_for_a_gpu() if settings.pop("gpu", False) else contextlib.nullcontext()
    cfg = small_config(algorithm, **settings)
    runner = TensorEnvRunner(CartPole(), cfg)
    with placed:
        return runner.loop(make_agent(cfg, runner.spec), "/CPU:0")

def train_agents(algorithm, count, settings):
    one, devices = agent_loop(algorithm, settings), [f"/CPU:{i}" for i in range(count)]
    several = ReplicatedLoop(agent_loop(algorithm, settings), devices)
    metrics = []
    for loop in (one, several):
        loop.run(0)
        metrics.append(loop.run(96).plus(loop.run(64)))
        loop.bring_up_to_date()
    return one, several.loop, several.replicas, metrics, one.agent.policy, several.agent.policy

def distance(one, other):
    pairs = zip(one, other, strict=True)
    return max(float(np.abs(a.numpy().astype(float) - b.numpy().astype(float)).max(initial=0))
               for a, b in pairs)

found = {}
for name, (algorithm, count, settings) in json.loads(sys.argv[1]).items():
    one, several, replicas, metrics, policy, other = train_agents(algorithm, count, settings)
    states = [[*loop.agent.variables, *loop.variables] for loop in (one, several)]
    parts = replicas.divided | replicas.columns
    copies = [[v for v, whole in zip(copy, replicas.variables) if id(whole) not in parts]
              for copy in replicas.copies]
    found[name] = {
        "updates": [int(policy.updates), int(other.updates)],
        "moved": distance([policy.weights.vector], [tf.zeros_like(policy.weights.vector)]),
        "weights": distance([policy.weights.vector], [other.weights.vector]),
        "state": distance(*states),
        "metrics": max(float(np.abs(np.asarray(a, float) - np.asarray(b, float)).max(initial=0))
                       for a, b in zip(*metrics)),
        "copies": max(distance(copies[0], copy) for copy in copies[1:]),
    }
print(json.dumps(found))
"""

CASES = {
    "ppo": ("ppo", 4, {"normalize_rewards": True, "normalize_observations": True}),
    "dqn": ("dqn", 4, {"n_step": 2, "replay_capacity": 122}),  # 31 rows on each, and around
    "prioritized": ("dqn", 2, {"prioritized": True}),
    "a GPU's variables": ("dqn", 2, {"gpu": True}),
    "pqn": ("pqn", 4, {}),
    "a memory": ("ppo", 2, {"memory": "gru", "memory_units": 4, "memory_length": 4}),
    "sequences from replay": (
        "dqn",
        2,
        {"memory": "lru", "memory_units": 4, "memory_length": 4, "prioritized": True},
    ),
}
MORE_CASES = {
    "rainbow": ("rainbow", 4, {}),
    "iqn": ("iqn", 2, {"gradient_accumulation": 2}),
    "munchausen": ("munchausen", 2, {"precision": "mixed_bfloat16"}),
    "kept": ("ppo", 2, {"kept_rollouts": 3}),
    "one environment each": ("ppo", 4, {"target_kl": 0.001, "gradient_accumulation": 2}),
}


def compared(cases):
    done = in_new_process(COMPARE, json.dumps(cases))
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def results():
    return compared(CASES)


@pytest.mark.parametrize("case", CASES)
def test_several_devices_learn_what_one_does(case, results):
    result = results[case]
    one, several = result["updates"]
    assert one == several >= 20 and result["moved"] > 0.1
    assert result["weights"] < 1e-5 and result["state"] < 1e-3 and result["metrics"] < 1e-3
    assert result["copies"] == 0.0  # bit for bit, on every device


@pytest.mark.learning
def test_more_algorithms_learn_on_several_devices_what_they_do_on_one():
    for case, result in compared(MORE_CASES).items():
        assert result["updates"][0] == result["updates"][1] > 0, case
        assert result["weights"] < (1e-3 if case == "munchausen" else 1e-5), case
        assert result["copies"] == 0.0, case


RUN = """
import sys
from kytolly.command import entry
from kytolly.loop import program
folder, steps, fails_at = sys.argv[1], sys.argv[2], int(sys.argv[3])
calls, whole = [0], program.Program.__call__

def call(self, *args):
    if self.device == "/CPU:1":
        calls[0] += 1
        if calls[0] == fails_at:
            raise RuntimeError("the device is gone")
    return whole(self, *args)

program.Program.__call__ = call
flags = "--num-envs 4 --batch-size 8 --replay-capacity 122 --warmup-env-steps 32 --hidden-units 8"
flags += " --no-tuned --train-interval-env-steps 8 --n-step 2 --log-interval-env-steps 32"
flags += " --evaluation-episodes 2 --final-evaluation-episodes 2 --evaluation-interval-env-steps 32"
flags += " --checkpoint-interval-env-steps 64 --device cpu:0,cpu:1,cpu:2,cpu:3"
where = ["--resume" if fails_at < 0 else "--log-dir", folder]
command = ["train", "dqn", "--env", "CartPole-v1", "--total-env-steps", steps, *flags.split()]
sys.exit(entry.main([*command, *where]))
"""


def settings_of(run, **changes):
    return DQNConfig(**{**SavedRun.existing(str(run)).read_config().settings, **changes})


def test_a_run_of_four_devices_is_resumed_on_one_and_one_of_them_that_fails_ends_it(tmp_path):
    run = tmp_path / "run"
    done = in_new_process(RUN, run, 256, 5)  # the fourth call after the one that compiles
    assert done.returncode == 1, done.stderr[-3000:]
    lines = [line for line in done.stderr.splitlines() if line.startswith("kytolly: /")]
    assert len(lines) == 1 and "/CPU:1, one of 4 devices" in lines[0]
    assert "the device is gone" in lines[0] and "resume the run" in lines[0]
    saved = checkpoints(run / "checkpoints")
    assert [steps for steps, _ in saved] == [64]  # nothing of the half call
    one = shutil.copytree(run, tmp_path / "one")
    done = in_new_process(RUN, run, 128, -1)
    assert done.returncode == 0, done.stderr[-3000:]
    cfg = settings_of(run, device="cpu")
    result = Trainer(one, progress=False).train(cfg, "CartPole-v1", resume=True)
    several, last = read_rows(run / "metrics.csv")[-1], result.history[-1]
    assert result.summary["env_steps"] == float(several["env_steps"]) == 128
    assert last["loss"] > 0.0
    for name in ("loss", "q_mean", "episode_return"):  # of the last rows, from the whole memory
        assert last[name] == pytest.approx(float(several[name]), rel=1e-3)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"device": "cpu:0,cpu:0"}, "different devices of one kind"),
        ({"device": "cpu:0,gpu:1"}, "different devices of one kind"),
        ({"device": "gpus"}, "sees 0 GPU"),
        ({"device": "cpu:0,cpu:600"}, r"count_cpus\(601\) first"),
        ({"device": "cpu:0,"}, "gpus or gpu:0,gpu:1"),
    ],
)
def test_devices_that_cannot_train_together_are_refused(settings, expected, tmp_path):
    tf.zeros([])  # TensorFlow has started
    with pytest.raises(ValueError, match=expected):
        Trainer(tmp_path / "run").train_ppo(settings, "CartPole-v1")
    assert not (tmp_path / "run").exists()


def test_gpus_are_named_in_order_and_those_that_exist(monkeypatch):
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: ["a", "b"])
    assert names_of_several("gpus") == names_of_several("gpu:0,cuda:1") == ("/GPU:0", "/GPU:1")
    assert (
        names_of_several("gpu:1,gpu:0") == ("/GPU:1", "/GPU:0") and names_of_several("gpu:1") == ()
    )
    with pytest.raises(ValueError, match=r"sees gpu:0, gpu:1\. Name those"):
        names_of_several("gpu:0,gpu:2")
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: ["a"])
    assert names_of_several("gpus") == ()
