"""A host run that a fault or Ctrl-C stops is saved, and can be resumed."""

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import gymnasium
import numpy as np
import pytest

from kytolly import Trainer
from kytolly.environment.faults import EnvironmentFault
from kytolly.loop.watchdog import deferred_signals

ROOT = Path(__file__).parents[2]
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


@pytest.mark.parametrize("algorithm", OWN)
def test_a_run_that_a_fault_stopped_within_a_rollout_is_resumed(algorithm, tmp_path):
    cfg = {"algorithm": algorithm, **SMALL, **OWN[algorithm]}
    Raises.left = 75
    trainer = Trainer(tmp_path / "run", progress=False)
    with pytest.raises(EnvironmentFault, match="once"):
        trainer.train(cfg, Raises)
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


PRESS = """
    import os, signal, sys, threading
    from kytolly import Trainer
    from kytolly.callback.base import Callback

    class Press(Callback):
        def on_log(self, state):
            os.killpg(0, signal.SIGINT)  # as a terminal does: to every process of the run

    if __name__ == "__main__":
        cfg = {"algorithm": "dqn", "xla": False, "num_envs": 2, "loop": "host", "async_envs": True,
               "hidden_units": [4], "batch_size": 4, "warmup_env_steps": 8,
               "log_interval_env_steps": 64, "total_env_steps": 100_000}
        try:
            Trainer(sys.argv[1], progress=False).train(cfg, "CartPole-v1", [Press()])
        except KeyboardInterrupt as stop:
            print(stop)
"""


@pytest.mark.skipif(not hasattr(os, "killpg"), reason="no process groups")
def test_ctrl_c_in_a_terminal_leaves_the_workers_to_the_run(tmp_path):
    script = tmp_path / "press.py"
    script.write_text(textwrap.dedent(PRESS))
    done = subprocess.run(
        [sys.executable, script, tmp_path / "run"],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        start_new_session=True,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert "is saved in" in done.stdout, done.stderr[-2000:]
    assert list((tmp_path / "run" / "checkpoints").glob("ckpt-*.json"))
