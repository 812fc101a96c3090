"""A host run that a fault or Ctrl-C stops is saved, and can be resumed."""

import multiprocessing
import os
import re
import signal
import time
import types

import gymnasium
import numpy as np
import pytest

from kytolly import Trainer
from kytolly.callback.base import Callback
from kytolly.command.exits import exit_status
from kytolly.environment import signals
from kytolly.environment.faults import EnvironmentFault
from kytolly.loop.signals import deferred_signals
from tests.helpers.cases import rest_learning

SMALL = {"xla": False, "num_envs": 2, "hidden_units": [4], "evaluation_episodes": 2}
SMALL |= {"final_evaluation_episodes": 2, "total_env_steps": 128, "loop": "host"}
SMALL |= {"evaluation_interval_env_steps": 128, "checkpoint_interval_env_steps": 1_000}
OWN = {
    "dqn": {"batch_size": 4, "warmup_env_steps": 8, "train_interval_env_steps": 16},
    "ppo": {"rollout_steps": 8},
}


class Raises(gymnasium.Env):
    """Raises once, at a step within a rollout."""

    observation_space = gymnasium.spaces.Box(-1, 1, (3,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)
    left = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        return self.np_random.uniform(-1, 1, 3).astype(np.float32), {}

    def step(self, action):
        self.time += 1
        Raises.left -= 1
        if Raises.left == 0:
            raise RuntimeError("once")
        obs = self.np_random.uniform(-1, 1, 3).astype(np.float32)
        return obs, 1.0, self.time >= 13, False, {}


@pytest.mark.parametrize("algorithm", rest_learning([*OWN], ["dqn"]))
def test_a_run_that_a_fault_stopped_within_a_rollout_is_resumed(algorithm, tmp_path, capfd):
    cfg = {"algorithm": algorithm, **SMALL, **OWN[algorithm]}
    Raises.left = 75
    trainer = Trainer(tmp_path / "run", progress=False)
    with pytest.raises(EnvironmentFault, match="once") as fault:
        trainer.train(cfg, Raises)
    capfd.readouterr()
    (note,) = fault.value.__notes__
    in_python = r"Continue it with `resume=True`\."  # no command knows the class
    assert re.search(rf"saved in {tmp_path}/run after \d+ env steps. {in_python}", note)

    def fails():
        raise fault.value

    assert exit_status(fails) == 2
    (line,) = capfd.readouterr().err.splitlines()
    assert line == f"kytolly: {str(fault.value).rstrip('.')}. {note}"
    Raises.left = 0
    with pytest.warns(UserWarning, match="stopped within a rollout"):
        result = trainer.train(cfg, Raises, resume=True)
    assert result.stopped_by == "total_env_steps" and result.summary["env_steps"] >= 128


def test_one_signal_is_delivered_once():
    calls = []
    before = signal.signal(signal.SIGTERM, lambda *_: calls.append(1))
    try:
        with deferred_signals() as raise_pending:
            signal.raise_signal(signal.SIGTERM)
            assert not calls
            for _ in range(3):
                raise_pending()
    finally:
        signal.signal(signal.SIGTERM, before)
    assert calls == [1]


def test_two_signals_at_once_are_one_and_a_later_one_is_not_held_back(monkeypatch):
    calls, now = [], [0.0]
    monkeypatch.setattr(signals, "time", types.SimpleNamespace(monotonic=lambda: now[0]))
    before = signal.signal(signal.SIGTERM, lambda *_: calls.append(1))
    try:
        with deferred_signals():
            for _ in range(3):
                signal.raise_signal(signal.SIGTERM)
            assert not calls
            now[0] = 0.6
            signal.raise_signal(signal.SIGTERM)
            assert calls == [1]
    finally:
        signal.signal(signal.SIGTERM, before)


class Press(Callback):
    """Ctrl-C as a terminal sends it: to every process of the run, its workers first."""

    def on_log(self, state):
        self.workers = multiprocessing.active_children()
        for worker in self.workers:
            os.kill(worker.pid, signal.SIGINT)
        time.sleep(0.1)
        assert all(worker.is_alive() for worker in self.workers)
        signal.raise_signal(signal.SIGINT)


@pytest.mark.skipif(os.name == "nt", reason="no such signals")
def test_ctrl_c_in_a_terminal_leaves_the_workers_to_the_run(tmp_path):
    press = Press()
    cfg = {"algorithm": "dqn", **SMALL, **OWN["dqn"], "async_envs": True}
    cfg |= {"log_interval_env_steps": 64, "total_env_steps": 100_000}
    with pytest.raises(KeyboardInterrupt, match="is saved in"):
        Trainer(tmp_path / "run", progress=False).train(cfg, "CartPole-v1", [press])
    assert len(press.workers) >= 2 and not multiprocessing.active_children()
    assert list((tmp_path / "run" / "checkpoints").glob("ckpt-*.json"))
