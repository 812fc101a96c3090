"""Environments that fail while an agent trains: the rows that are left, and how the run ends."""

import multiprocessing
import re

import numpy as np
import pytest

from kytolly import Trainer
from kytolly.agent.make_agent import make_agent
from kytolly.environment.faults import EnvironmentFault
from kytolly.environment.gym.adapter import make_host_groups
from kytolly.loop.host import HostLoop
from tests.environment.failing import KINDS, failing
from tests.environment.predictable import Predictable
from tests.helpers.cases import learning
from tests.loop.configs import small_config
from tests.loop.rollouts import join, watch

pytestmark = pytest.mark.filterwarnings("ignore:.* made anew")
SMALL = {"xla": False, "num_envs": 2, "hidden_units": [4], "loop": "host", "async_envs": True}
SMALL |= {"evaluation_episodes": 2, "final_evaluation_episodes": 2, "env_timeout_seconds": 3}
OWN = {
    "dqn": {"batch_size": 4, "warmup_env_steps": 8, "train_interval_env_steps": 16},
    "ppo": {"rollout_steps": 8},
}
MESSAGES = {
    "kill": "the process of environment . ended by signal 9",
    "exit": "the process of environment . ended with status 3",
    "SystemExit": "environment . raised SystemExit: the end",
    "raise": "environment . raised KeyError: 'the bottom fell out'",
    "hang": "environment . did not return within 3 seconds",
    "closed pipe": "the process of environment . closed its pipe",
}


def raising(when):
    """Predictable environments of endless episodes; the first made raises at the steps `when`."""
    made = []

    class Raising(Predictable):
        total = 0

        def __init__(self):
            super().__init__(length=1_000)
            self.first = not made
            made.append(self)

        def step(self, action):
            Raising.total += self.first
            if self.first and Raising.total in when:
                made.clear()  # the next one made takes its place
                raise KeyError("the bottom fell out")
            return super().step(action)

    return Raising


def run(algorithm, when, env_steps, **settings):
    groups = make_host_groups(raising(when), 2, 1, seed=0, restart=True)
    loop = HostLoop(make_agent(small_config(algorithm, **settings), groups[0].spec), groups)
    seen = watch(loop.agent) if algorithm == "ppo" else None
    metrics = loop.run(env_steps)
    loop.close()
    return loop, metrics, seen


def assert_each_row_follows(obs, next_obs, last):
    """Rows [T, E, 3] continue each other, but for the ends of episodes."""
    follows = (obs[1:] == next_obs[:-1]).all(axis=-1)
    np.testing.assert_array_equal(follows, ~last[:-1])
    np.testing.assert_array_equal(next_obs, obs + [0, 0, 1])


@pytest.mark.parametrize(
    "acting_interval", [learning(1), 48], ids=["one iteration", "two iterations"]
)
def test_no_window_of_the_replay_buffer_reaches_beyond_a_fault(acting_interval):
    # Rollouts of 12 rows of each environment, or 24: step 27 is the first of one, with 12 also 14.
    settings = {"acting_interval_env_steps": acting_interval, "train_interval_env_steps": 24}
    loop, metrics, _ = run("dqn", (7, 14, 27), 192, n_step=3, num_envs=2, xla=False, **settings)
    memory = loop.agent.memory
    size = int(memory.size)
    columns = (memory.columns.obs, memory.columns.next_obs, memory.last)
    obs, next_obs, last = (c.numpy()[:size].reshape(size // 2, 2, -1) for c in columns)
    assert_each_row_follows(obs, next_obs, last[..., 0])
    # Steps 7, 14 and 27 of the first environment failed.
    lengths = np.diff(np.flatnonzero(last[:, 0, 0]), prepend=-1)
    np.testing.assert_array_equal(lengths, [6, 6, 12])
    assert (memory.columns.discount.numpy()[:size] > 0).all()  # truncated, not terminated
    assert loop.env_restarts == 3 and int(metrics.episodes) == 3
    assert int(metrics.episode_length) == 6 + 6 + 12


def test_a_rollout_of_ppo_has_no_row_of_a_failed_step():
    loop, metrics, seen = run("ppo", (3, 9, 12), 96, num_envs=2, xla=False)
    rollout, _ = join(seen)
    assert rollout.obs.shape == (48, 2, 3)
    np.testing.assert_array_equal(rollout.next_obs, rollout.obs + [0, 0, 1])
    steps = rollout.obs[:, :, 2]
    assert (steps[1:][rollout.last[:-1]] == 0).all() and rollout.last[:, 0].any()
    assert loop.env_restarts == 3 and int(metrics.episodes) == 3
    assert not rollout.last[:, 1].any()


@pytest.mark.parametrize("algorithm", ["dqn", learning("ppo")])
def test_a_run_survives_every_kind_of_fault(algorithm, tmp_path):
    folder = tmp_path / "faults"
    folder.mkdir()
    for kind in KINDS:
        (folder / kind).touch()
    settings = {"on_env_fault": "restart", "total_env_steps": 128, "algorithm": algorithm}
    settings |= {"evaluation_interval_env_steps": 128, "log_interval_env_steps": 128}
    trainer = Trainer(tmp_path / "run", progress=False)
    result = trainer.train({**SMALL, **OWN[algorithm], **settings}, failing(folder))
    assert not list(folder.iterdir()) and not multiprocessing.active_children()
    assert result.stopped_by == "total_env_steps" and result.evaluation.episodes == 2
    assert result.summary["env_restarts"] == result.history[-1]["env_restarts"] == len(KINDS)


@pytest.mark.filterwarnings("ignore:.* the resumed run begins new episodes")
@pytest.mark.parametrize(
    ("algorithm", "kinds"),
    [
        ("ppo", ["exit", "raise"]),
        *(pytest.param(name, KINDS, marks=pytest.mark.learning) for name in OWN),
    ],
)
def test_every_kind_of_fault_ends_a_run_that_is_saved(algorithm, kinds, tmp_path):
    """Each run continues the previous one."""
    folder, trainer = tmp_path / "faults", Trainer(tmp_path / "run", progress=False)
    folder.mkdir()
    cfg = {**SMALL, **OWN[algorithm], "algorithm": algorithm, "total_env_steps": 100_000}
    for number, kind in enumerate(kinds):
        (folder / kind).touch()
        with pytest.raises(EnvironmentFault, match=MESSAGES[kind]) as fault:
            trainer.train(cfg, failing(folder), resume=number > 0)
        assert "\n" not in str(fault.value)
        assert re.search(
            r"in step\(\) \(a vector of . environments, after 3 steps\)", str(fault.value)
        )
        assert not multiprocessing.active_children()
        assert list((tmp_path / "run" / "checkpoints").glob("ckpt-*.json"))
