"""The processes of evaluations are those of the first one, and end with the run."""

import functools
import multiprocessing
import os
import signal
import threading
import time

import gymnasium
import pytest

from kytolly import Trainer
from kytolly.callback.base import Callback
from kytolly.environment.gym import processes
from kytolly.loop import watchdog
from tests.environment.predictable import Predictable
from tests.helpers.cases import learning

SMALL = {"algorithm": "dqn", "loop": "host", "async_envs": True, "num_envs": 2, "xla": False}
SMALL |= {"hidden_units": [4], "batch_size": 4, "warmup_env_steps": 8, "total_env_steps": 200}
SMALL |= {"evaluation_interval_env_steps": 50, "train_interval_env_steps": 16}
SMALL |= {"evaluation_episodes": 3, "final_evaluation_episodes": 3}


class Returns(Callback):
    """The evaluations of a run."""

    def __init__(self):
        self.evaluations = []

    def on_evaluation(self, state):
        self.evaluations.append(state.evaluation)


OWN = functools.partial(gymnasium.make, "CartPole-v1")


@pytest.mark.parametrize("evaluation_env", [None, learning(OWN)], ids=["same", "own"])
def test_a_run_starts_the_processes_of_its_evaluations_once(evaluation_env, tmp_path, monkeypatch):
    started, evaluations = [], []
    start = processes.Worker.__init__

    def watched(self, *args):
        started.append(start(self, *args))

    monkeypatch.setattr(processes.Worker, "__init__", watched)
    for async_envs in (True, False):
        seen, trainer = Returns(), Trainer(tmp_path / str(async_envs), progress=False)
        cfg = {**SMALL, "async_envs": async_envs, "total_env_steps": 100}
        result = trainer.train(cfg, "CartPole-v1", [seen], evaluation_env=evaluation_env)
        evaluations.append([*seen.evaluations, result.evaluation])
    assert evaluations[0] == evaluations[1] and len(evaluations[0]) == 3
    # One says the spaces, 2 train, and evaluations have 3; or one, after another two of its kind
    # have said and shown that it fits.
    assert len(started) == 6
    assert not multiprocessing.active_children()


class Press(Callback):
    """Ctrl-C after the first evaluation, or while the second one hangs."""

    def __init__(self, folder, hangs):
        self.folder, self.hangs = folder, hangs
        self.children = 0

    def on_evaluation(self, state):
        self.children = len(multiprocessing.active_children())
        if self.hangs:
            threading.Thread(target=self.wait_and_press).start()
            (self.folder / "hang").touch()
        else:
            os.kill(os.getpid(), signal.SIGINT)

    def wait_and_press(self):
        deadline = time.monotonic() + 60
        while not (self.folder / "hangs").exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no timers")
@pytest.mark.parametrize("within", [learning(False), True], ids=["between", "within"])
def test_ctrl_c_ends_the_processes_of_evaluations(within, tmp_path, monkeypatch):
    monkeypatch.setattr(watchdog, "LOOK_SECONDS", 0.2)
    monkeypatch.setattr(processes, "CLOSE_SECONDS", 1.0)

    class Hanging(Predictable):
        def step(self, action):
            if (tmp_path / "hang").exists():
                (tmp_path / "hangs").touch()
                time.sleep(1_000)
            return super().step(action)

    press = Press(tmp_path, within)
    with pytest.raises(KeyboardInterrupt, match=r"saved in .* after (64|128) env steps"):
        trainer = Trainer(tmp_path / "run", progress=False)
        trainer.train(SMALL, Predictable, [press], evaluation_env=Hanging)
    assert press.children == 3  # 2 that train, and 1 that waits for the next evaluation
    assert not multiprocessing.active_children()
