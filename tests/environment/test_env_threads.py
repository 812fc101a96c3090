"""Environments in threads: equal to those that step one after the other, and at the same time."""

import threading
import time

import gymnasium
import numpy as np
import pytest

from kytolly import DQNConfig
from kytolly.environment.faults import EnvironmentFault
from kytolly.environment.gym.adapter import make_host_env
from kytolly.environment.gym.saved_state import restore_state, saved_state
from kytolly.environment.gym.threads import ThreadedEnvs


def steps_of(env, count, seed=0):
    """Observations, rewards and ends of a number of steps."""
    actions = np.random.default_rng(seed).integers(2, size=(count, env.num_envs))
    return [env.step(action) for action in actions]


@pytest.mark.parametrize("name", ["CartPole-v1", "Pendulum-v1"])
def test_threads_return_what_environments_one_after_the_other_return(name):
    alone = make_host_env(name, 3, seed=5)
    threads = make_host_env(name, 3, seed=5, threads=True)
    assert isinstance(threads, ThreadedEnvs) and threads.spec == alone.spec
    np.testing.assert_array_equal(alone.reset(), threads.reset())
    rng = np.random.default_rng(0)
    for _ in range(300):
        action = rng.integers(2, size=3) if name == "CartPole-v1" else rng.normal(size=(3, 1))
        for ours, theirs in zip(threads.step(action), alone.step(action), strict=True):
            np.testing.assert_array_equal(ours, theirs)
    threads.close()


def test_a_saved_state_is_gone_on_from():
    first, second = (make_host_env("CartPole-v1", 2, threads=True) for _ in range(2))
    first.reset()
    steps_of(first, 25)
    second.reset(7)
    restore_state(second, saved_state(first))
    for ours, theirs in zip(steps_of(first, 30, 1), steps_of(second, 30, 1), strict=True):
        np.testing.assert_array_equal(ours.obs, theirs.obs)


class Meeting(gymnasium.Env):
    """A step waits until the other environment steps as well."""

    observation_space = gymnasium.spaces.Box(-1.0, 1.0, [1], np.float32)
    action_space = gymnasium.spaces.Discrete(2)
    barrier = threading.Barrier(2, timeout=30.0)

    def reset(self, **options):
        super().reset(**options)
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.barrier.wait()
        if action:
            raise RuntimeError("it was told to")
        return np.zeros(1, np.float32), 1.0, False, False, {}


def test_all_step_at_the_same_time_and_a_fault_is_named():
    env = make_host_env(Meeting, 2, threads=True)
    env.reset()
    assert env.step(np.zeros(2, int)).reward.tolist() == [1.0, 1.0]
    with pytest.raises(EnvironmentFault, match=r"environment 1 of 2.*it was told to"):
        env.step(np.array([0, 1]))
    count = threading.active_count()
    env.close()
    until = time.monotonic() + 30.0
    while threading.active_count() > count - 2 and time.monotonic() < until:
        time.sleep(0.01)
    assert threading.active_count() == count - 2


@pytest.mark.parametrize("other", [{"async_envs": True}, {"on_env_fault": "restart"}])
def test_threads_and_processes_or_restarts_are_refused(other):
    with pytest.raises(ValueError, match=r"env_threads and .* are set, expected one"):
        DQNConfig(env_threads=True, **other)
