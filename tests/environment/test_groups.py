"""A step in two phases, and environments in groups that step apart."""

import functools
import os
import signal
import sys
import threading
import time

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

from kytolly.environment.faults import EnvironmentFault
from kytolly.environment.gym import processes as worker_processes
from kytolly.environment.gym.adapter import make_host_env, make_host_groups
from kytolly.environment.gym.processes import ProcessVector
from kytolly.environment.gym.saved_state import NotSavable, restore_state, saved_state
from kytolly.environment.gym.sequential import SequentialEnvs
from kytolly.environment.gym.vector import HostVector
from tests.environment.masked import Masked
from tests.environment.predictable import Predictable, vector

STEPS = 12


SOURCES = {
    "separate": (lambda: Predictable, False),
    "vector": (lambda: vector(AutoresetMode.NEXT_STEP, num_envs=2), False),
    "processes": (lambda: Predictable, True),
}


@pytest.fixture(params=SOURCES)
def host_env(request):
    make, async_envs = SOURCES[request.param]
    env = make_host_env(make(), 2, seed=5, async_envs=async_envs)
    yield env
    env.close()


def test_a_step_in_two_phases_is_a_step(host_env):
    whole = make_host_env(Predictable, 2, seed=5)
    if isinstance(host_env, HostVector) and host_env.spec.name == "SyncVectorEnv":
        whole = make_host_env(vector(AutoresetMode.NEXT_STEP, num_envs=2), seed=5)
    np.testing.assert_array_equal(host_env.reset(), whole.reset())
    for count in range(STEPS):
        action = np.array([count % 4, 1])
        host_env.begin_step(action)
        found, expected = host_env.finish_step(), whole.step(action)
        for left, right in zip(found[:7], expected[:7], strict=True):
            np.testing.assert_array_equal(left, right)


def test_the_phases_follow_each_other(host_env):
    with pytest.raises(ValueError, match=r"was stepped before reset\(\)"):
        host_env.begin_step(np.zeros(2, np.int64))
    host_env.reset()
    with pytest.raises(ValueError, match=r"finish_step\(\) without a begin_step"):
        host_env.finish_step()
    with pytest.raises(ValueError, match="got 3 actions for 2 environments"):
        host_env.begin_step(np.zeros(3, np.int64))
    host_env.begin_step(np.zeros(2, np.int64))
    with pytest.raises(ValueError, match=r"begin_step\(\) twice"):
        host_env.begin_step(np.zeros(2, np.int64))
    with pytest.raises(ValueError, match=r"reset\(\) before the finish_step"):
        host_env.reset()
    assert host_env.finish_step().valid.all()
    host_env.reset()


def test_processes_work_between_the_phases(tmp_path):
    class Leaving(Predictable):  # a local class, so that the processes do not load this file
        def step(self, action):
            (tmp_path / str(self.id)).touch()
            return super().step(action)

    env = make_host_env(Leaving, 2, async_envs=True)
    env.reset()
    env.begin_step(np.zeros(2, np.int64))
    deadline = time.monotonic() + 60
    while len(list(tmp_path.iterdir())) < 2 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert len(list(tmp_path.iterdir())) == 2  # both have stepped, and nobody waits for them
    env.finish_step()
    env.close()


def test_processes_outlive_a_state_that_cannot_be_restored():
    class Forgetting(Predictable):  # a local class, so that the processes do not load this file
        def get_state(self):
            return {"steps": self.steps}

        def set_state(self, state):
            raise KeyError("no such place")

    env = make_host_env(Forgetting, 2, async_envs=True)
    env.reset()
    env.step(np.zeros(2, np.int64))
    with pytest.raises(NotSavable, match="KeyError: 'no such place'"):
        restore_state(env, saved_state(env))
    env.reset(seed=1)  # as a resumed run does then
    assert env.step(np.zeros(2, np.int64)).valid.all()
    env.close()


def test_a_step_that_was_begun_may_be_left_unfinished():
    env = make_host_env(Predictable, 2, async_envs=True)
    env.reset()
    env.begin_step(np.zeros(2, np.int64))
    env.close()


def misbehaving(what):
    class Misbehaving(Predictable):  # a local class, so that the processes do not load this file
        stepped = False

        def step(self, action):
            self.stepped = True
            if action == 3 and what != "hangs in close":
                {"exits": os._exit, "raises": sys.exit, "hangs": time.sleep}[what](1_000)
            return super().step(action)

        def close(self):
            if self.stepped and what == "hangs in close":
                time.sleep(1_000)

    return Misbehaving


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("exits", "the process of environment 1 ended"),
        ("raises", "environment 1 raised SystemExit: 1000"),
        ("hangs", "within 3 seconds"),
        ("hangs in close", None),
    ],
)
def test_a_process_that_ends_or_hangs_ends_the_run_in_time(what, message, monkeypatch):
    monkeypatch.setattr(worker_processes, "CLOSE_SECONDS", 0.5)
    limit = 3.0 if what == "hangs" else 60.0
    env = make_host_env(misbehaving(what), 2, async_envs=True, timeout_seconds=limit)
    processes = [worker.process for worker in env._env.workers]
    env.reset()
    begin = time.monotonic()
    if message is not None:
        with pytest.raises(EnvironmentFault, match=message) as fault:
            env.step(np.array([0, 3]))
        assert "\n" not in str(fault.value)
    else:
        env.step(np.array([0, 3]))
    env.close()
    assert time.monotonic() - begin < 40
    assert not any(process.is_alive() for process in processes)


def test_what_is_no_bool_does_not_end_an_episode_in_a_process():
    class Says(Predictable):
        def step(self, action):
            obs, reward, *_ = super().step(action)
            return obs, reward, "False", False, {}

    env = make_host_env(Says, 2, async_envs=True)
    env.reset()
    with pytest.raises(EnvironmentFault, match=r"environment \d of Says .*terminated='False'"):
        env.step(np.zeros(2, np.int64))
    env.close()


def test_an_interrupt_reaches_us_while_an_environment_hangs(monkeypatch):
    monkeypatch.setattr(worker_processes, "CLOSE_SECONDS", 0.5)
    env = make_host_env(misbehaving("hangs"), 2, async_envs=True)
    processes = [worker.process for worker in env._env.workers]
    env.reset()
    timer = threading.Timer(1.0, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    begin = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        env.step(np.array([0, 3]))
    env.close()
    assert time.monotonic() - begin < 40
    assert not any(process.is_alive() for process in processes)


class Overriding(gymnasium.vector.AsyncVectorEnv):
    """Pays double, in `step` alone."""

    def step(self, actions):
        obs, reward, *rest = super().step(actions)
        return obs, 2 * reward, *rest


def test_a_vector_that_overrides_step_is_stepped_by_it():
    theirs = Overriding([Predictable] * 2, context="forkserver", autoreset_mode="SameStep")
    env = make_host_env(theirs)
    env.reset()
    np.testing.assert_array_equal(env.step(np.array([1, 3])).reward, [2, 6])
    theirs.close()


@pytest.mark.parametrize(
    ("num_envs", "groups", "sizes"),
    [(4, 2, [2, 2]), (3, 2, [3]), (1, 2, [1]), (None, 2, [1]), (3, 3, [1, 1, 1]), (2, 1, [2])],
)
def test_groups_share_the_environments_of_one_group_equally(num_envs, groups, sizes):
    apart = make_host_groups(Predictable, num_envs, groups, seed=9, async_envs=True)
    together = make_host_env(Predictable, num_envs, seed=9)
    assert [env.num_envs for env in apart] == sizes
    np.testing.assert_array_equal(
        np.concatenate([env.reset() for env in apart]), np.asarray(together.reset())
    )
    action = np.arange(together.num_envs) % 4
    for env, part in zip(apart, np.split(action, len(apart)), strict=True):
        env.begin_step(part)
    expected = together.step(action)
    steps = [env.finish_step() for env in apart]
    np.testing.assert_array_equal(np.concatenate([step.obs for step in steps]), expected.obs)
    np.testing.assert_array_equal(np.concatenate([step.reward for step in steps]), expected.reward)
    for env in apart:
        env.close()


@pytest.mark.parametrize(
    ("source", "async_envs", "adapter", "num_envs"),
    [
        (lambda: Predictable, False, SequentialEnvs, 4),
        (lambda: "CartPole-v1", False, SequentialEnvs, 4),
        (lambda: Predictable(), False, SequentialEnvs, None),
        (lambda: vector(AutoresetMode.SAME_STEP, num_envs=4), False, HostVector, 4),
        (
            lambda: functools.partial(vector, "SameStep", num_envs=4),
            True,
            HostVector,
            4,
        ),
    ],
)
def test_what_gains_nothing_by_groups_stays_in_one(source, async_envs, adapter, num_envs):
    (env,) = make_host_groups(source(), num_envs, 2, async_envs=async_envs)
    assert isinstance(env, adapter) and env.num_envs == (num_envs or 1)


def test_groups_of_an_id_and_with_masks():
    groups = make_host_groups("CartPole-v1", 2, seed=1, async_envs=True)
    obs = np.concatenate([env.reset() for env in groups])
    np.testing.assert_array_equal(obs, make_host_env("CartPole-v1", 2, seed=1).reset())
    masked = make_host_groups(functools.partial(Masked, "info"), 2, async_envs=True, masks=True)
    assert [env.spec.masked for env in masked] == [True, True]
    for env in groups + masked:
        env.close()


@pytest.mark.parametrize("failing", ["ProcessVector", "HostVector"])
def test_processes_end_if_a_later_group_cannot_be_made(monkeypatch, failing):
    made = []

    class Counted(ProcessVector):
        def __init__(self, *args, **settings):
            if failing == "ProcessVector" and made:
                raise OSError("no room for a second one")
            super().__init__(*args, **settings)
            made.extend(worker.process for worker in self.workers)

    def refusing(*_, **__):
        raise OSError("no room for a second one")

    monkeypatch.setattr("kytolly.environment.gym.adapter.ProcessVector", Counted)
    if failing == "HostVector":
        monkeypatch.setattr("kytolly.environment.gym.adapter.HostVector", refusing)
    with pytest.raises(OSError, match="no room"):
        make_host_groups(Predictable, 2, async_envs=True)
    assert made and not any(process.is_alive() for process in made)


def test_a_bad_number_of_groups_is_refused():
    with pytest.raises(ValueError, match="groups is 0, expected an integer of at least 1"):
        make_host_groups(Predictable, 2, 0)
