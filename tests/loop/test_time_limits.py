"""max_wall_seconds within a loop's call and within evaluations, and Ctrl-C while nothing moves.

The clock of the tests is their own, or an environment never ends: no time is measured.
"""

import math
import os
import signal
import threading
import time

import gymnasium
import numpy as np
import pytest

from kytolly import DQNConfig, Trainer
from kytolly.agent.make_agent import make_agent
from kytolly.environment.gym.adapter import make_host_groups
from kytolly.loop import watchdog
from kytolly.loop.env_runner import make_env_runner
from kytolly.loop.host import HostLoop
from kytolly.loop.limits import OutOfTime
from tests.helpers.q_learning_probes import EndlessReward

SMALL = {"xla": False, "hidden_units": (4,), "loop": "host", "num_envs": 2, "batch_size": 4}
SMALL |= {"warmup_env_steps": 8, "train_interval_env_steps": 16}


class Uneven(gymnasium.Env):
    """Pays 1 for every step; the first environment ends after 3 steps, the others never."""

    observation_space = gymnasium.spaces.Box(0, 1, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)
    made = 0

    def __init__(self):
        self.ends = Uneven.made == 0
        Uneven.made += 1

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.time += 1
        return np.zeros(1, np.float32), 1.0, self.ends and self.time == 3, False, {}


def evaluator(env, episodes):
    cfg = DQNConfig(**SMALL)
    if env is not Uneven:
        cfg = DQNConfig(xla=False, hidden_units=(4,), max_wall_seconds=100)
    runner = make_env_runner(cfg, env)
    agent = make_agent(cfg, runner.spec)
    return runner.evaluator(agent.policy.network, episodes, 3, xla=False, device=None)


@pytest.mark.parametrize("ends", [True, False])
def test_an_evaluation_on_the_host_counts_what_has_ended(ends, monkeypatch):
    found = evaluator(Uneven, 4)
    Uneven.made = 0 if ends else 1
    clock = iter(range(100))
    monkeypatch.setattr("kytolly.loop.host_env_runner.time.perf_counter", lambda: next(clock))
    with pytest.warns(UserWarning, match=f"max_wall_seconds cut .* when {2 if ends else 0} of 4"):
        evaluation = found.evaluate(deadline=8)  # the tenth look is late
    assert evaluation.cut
    assert evaluation.returns == ((3.0, 3.0) if ends else (10.0, 10.0))


def test_an_evaluation_on_the_device_is_cut_between_two_calls(monkeypatch):
    env = EndlessReward()
    monkeypatch.setattr(EndlessReward, "spec", EndlessReward.spec._replace(max_episode_steps=None))
    monkeypatch.setattr("kytolly.loop.device.CALL_STEPS", 7)
    clock = iter(range(100))
    found = evaluator(env, 3)
    monkeypatch.setattr("kytolly.loop.device.time.perf_counter", lambda: next(clock))
    with pytest.warns(UserWarning, match="when 0 of 3 episodes had ended"):
        evaluation = found.evaluate(deadline=1)
    assert evaluation.cut and evaluation.episodes == 3
    assert evaluation.length_mean == 21  # late at the third look, after three calls


def test_calls_of_an_evaluation_play_the_same_episodes(monkeypatch):
    monkeypatch.setattr("kytolly.loop.device.CALL_STEPS", 3)
    found = []
    for limit in (None, 1e9):
        cfg = DQNConfig(xla=False, hidden_units=(4,), max_wall_seconds=limit)
        runner = make_env_runner(cfg, "CartPole-v1")
        network = make_agent(cfg, runner.spec).policy.network
        evaluator = runner.evaluator(network, 4, 3, xla=False, device=None)
        found += [evaluator.evaluate(5).returns, evaluator.evaluate(6).returns]
    assert min(map(min, found)) > 3
    assert found[:2] == found[2:] and found[0] != found[1]


def test_a_rollout_is_left_when_time_is_up():
    groups = make_host_groups(Uneven, 2, 1, seed=0)
    loop = HostLoop(make_agent(DQNConfig(**SMALL), groups[0].spec), groups)
    loop.run(16)
    before = int(loop.agent.env_steps)
    with pytest.raises(OutOfTime):
        loop.run(2_000, deadline=-math.inf)
    assert int(loop.agent.env_steps) == before
    assert "stopped within a rollout" in loop.get_state()["reason"]
    loop.close()


def test_a_run_whose_steps_and_episodes_do_not_end_is_over(tmp_path):
    class Slow(Uneven):
        def step(self, action):
            time.sleep(0.05)  # 100 seconds for the 2,000 env steps of a call
            return super().step(action)

    Uneven.made = 1
    cfg = {**SMALL, "algorithm": "dqn", "total_env_steps": 10**6, "max_wall_seconds": 0.5}
    with pytest.warns(UserWarning, match="max_wall_seconds cut an evaluation"):
        result = Trainer(tmp_path / "run", progress=False).train(cfg, Slow)
    assert result.stopped_by == "time" and result.evaluation.cut
    assert result.summary["evaluation_cut"]
    assert (tmp_path / "run" / "best.keras").exists()
    assert list((tmp_path / "run" / "checkpoints").glob("ckpt-*.json"))


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no timers")
def test_ctrl_c_ends_a_run_whose_environment_hangs_here(tmp_path, monkeypatch):
    monkeypatch.setattr(watchdog, "LOOK_SECONDS", 0.2)
    steps = []

    class Hanging(Uneven):
        def step(self, action):
            steps.append(action)
            if len(steps) == 50:
                threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()
                time.sleep(1_000)
            return super().step(action)

    cfg = {**SMALL, "algorithm": "dqn", "total_env_steps": 10**6}
    with pytest.raises(KeyboardInterrupt, match="is saved in"):
        Trainer(tmp_path / "run", progress=False).train(cfg, Hanging)
    assert len(steps) == 50
    assert signal.getsignal(signal.SIGALRM) == signal.SIG_DFL
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
