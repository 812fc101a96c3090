"""An environment that fails is made anew; the step that failed is no row, and its episode ends."""

import json
import multiprocessing
import os
import time

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from kytolly.environment.faults import EnvironmentFault
from kytolly.environment.gym.adapter import make_host_env
from kytolly.environment.gym.saved_state import restore_state, saved_state
from tests.environment.failing import KINDS, failing
from tests.environment.predictable import Predictable

NONE = np.zeros(2, np.int64)


def is_gone(pid):
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.01)
    return False


def play(env, kinds, folder):
    """Have each kind of fault in turn; gives what was seen before, and the step that failed."""
    obs = env.reset()
    for kind in kinds:
        (folder / kind).touch()
        valid = True
        while valid:
            before, step = obs, env.step(NONE)
            obs, valid = step.obs, step.valid.all()
        yield before, step


@pytest.mark.filterwarnings("ignore:.* made anew")
@pytest.mark.parametrize(("async_envs", "kinds"), [(True, KINDS), (False, ["raise", "SystemExit"])])
def test_a_failed_step_is_no_row_and_ends_the_episode(async_envs, kinds, tmp_path):
    env = make_host_env(
        failing(tmp_path), 2, seed=3, async_envs=async_envs, timeout_seconds=3, restart=True
    )
    assert env.has_dummy_steps
    try:
        workers = [worker.process.pid for worker in env._env.workers] if async_envs else []
        for number, (obs, step) in enumerate(play(env, kinds, tmp_path), 1):
            (bad,) = np.flatnonzero(~step.valid)
            assert step.ended[bad] and step.truncated[bad] and not step.terminated[bad]
            assert step.reward[bad] == 0
            assert (step.episode_return[bad], step.episode_length[bad]) == (3, 3)
            assert step.obs[bad, 0] != obs[bad, 0]  # another seed
            np.testing.assert_array_equal(step.obs[bad, 1:], [0, 0])  # a new environment
            other = 1 - bad
            np.testing.assert_array_equal(step.next_obs[other], obs[other] + [0, 0, 1])
            assert env.restarts.total == number
        assert len(kinds) == env.restarts.counts.sum()
        follows = env.step(NONE)
        np.testing.assert_array_equal(follows.next_obs[bad], step.obs[bad] + [0, 0, 1])
        assert follows.valid.all()
        workers += [worker.process.pid for worker in env._env.workers] if async_envs else []
    finally:
        env.close()
    assert all(map(is_gone, workers))


@pytest.mark.filterwarnings("ignore:.* made anew")
@pytest.mark.parametrize("async_envs", [True, False], ids=["processes", "here"])
def test_a_fault_in_reset_keeps_the_last_row_of_the_episode(async_envs, tmp_path):
    env = make_host_env(failing(tmp_path, ["reset"]), 2, async_envs=async_envs, restart=True)
    try:
        before = env.reset()
        (tmp_path / "raise").touch()
        for _ in range(5):
            step = env.step(NONE)
        assert step.valid.all() and step.truncated.all() and step.ended.all()
        np.testing.assert_array_equal(step.episode_length, [5, 5])
        np.testing.assert_array_equal(step.next_obs[:, 2], [5, 5])
        (bad,) = np.flatnonzero(step.obs[:, 0] != before[:, 0])
        np.testing.assert_array_equal(step.obs[bad, 1:], [0, 0])
        assert env.restarts.total == 1
    finally:
        env.close()


@pytest.mark.parametrize("async_envs", [True, False], ids=["processes", "here"])
@pytest.mark.parametrize("method", ["reset", "step"])
def test_an_environment_that_never_makes_a_step_ends_the_run(async_envs, method, tmp_path):
    env = make_host_env(
        failing(tmp_path, [method], good_steps=0), 1, async_envs=async_envs, restart=True
    )
    for number in range(20):
        (tmp_path / f"raise {number}").touch()
    try:
        with (
            pytest.warns(UserWarning, match="made anew"),
            pytest.raises(EnvironmentFault, match="made anew 3 times and failed each time"),
        ):
            env.reset()
            for _ in range(5):
                env.step(NONE[:1])
    finally:
        env.close()


@pytest.mark.filterwarnings("ignore:.* made anew")
def test_a_restarted_environment_has_a_state(tmp_path):
    made = [make_host_env(failing(tmp_path), 2, restart=True) for _ in range(2)]
    list(play(made[0], ["raise"], tmp_path))
    text = json.dumps(saved_state(made[0]))
    made[1].reset()
    restore_state(made[1], json.loads(text))
    assert made[1].restarts.counts.sum() == 1
    found, expected = (env.step(NONE) for env in made)
    np.testing.assert_array_equal(found.obs, expected.obs)


@pytest.mark.parametrize("method", ["constructor", "reset"])
def test_a_hang_before_the_first_step_is_a_fault_in_time(method, tmp_path):
    (tmp_path / "hang").touch()
    make = failing(tmp_path, [method])
    with pytest.raises(EnvironmentFault, match=r"within 1 seconds: it hangs") as fault:
        env = make_host_env(make, 1, async_envs=True, timeout_seconds=1)
        try:
            env.reset()
        finally:
            env.close()
    assert f"{method}" in str(fault.value)
    assert not multiprocessing.active_children()


@pytest.mark.parametrize(
    "source", [Predictable(), SyncVectorEnv([Predictable], autoreset_mode=AutoresetMode.SAME_STEP)]
)
def test_what_cannot_be_made_anew_is_refused(source):
    with pytest.raises(ValueError, match=r"which cannot be made anew\. What works"):
        make_host_env(source, restart=True)
