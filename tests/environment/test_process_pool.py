"""Processes that stay between evaluations: what is played is what newly made ones would play."""

import contextlib
import multiprocessing
import os
import signal
import threading
import time

import numpy as np
import pytest
import tensorflow as tf

from kytolly.environment.faults import EnvironmentFault
from kytolly.environment.gym import processes
from kytolly.environment.gym.adapter import make_host_env
from kytolly.environment.gym.process_pool import ProcessPool
from kytolly.environment.spec import Discrete, EnvSpec
from kytolly.loop.host_env_runner import HostEvaluator
from kytolly.loop.limits import EpisodeLimit
from tests.environment.masked import Masked
from tests.environment.predictable import Predictable, Recorded

SPEC = EnvSpec("an environment", tf.TensorSpec([3]), Discrete(4))
SETTINGS = {"async_envs": True, "timeout_seconds": 5.0}


@contextlib.contextmanager
def pool_of(make, **settings):
    """Processes for the environments that `make` makes."""
    env = make_host_env(make, 1, **SETTINGS, **settings)
    env.close()
    pool = ProcessPool(env.processes)
    try:
        yield pool
    finally:
        pool.close()
    assert not multiprocessing.active_children()


def act(obs):
    return (3 * obs[:, 0] + obs[:, 1] + obs[:, 2]).astype(np.int64) % 4


def pids(pool):
    return [worker.process.pid for worker in pool.vector.workers]


def compare_evaluations(make, num_envs=3, episodes=8, between=lambda pool: None, **settings):
    """Four evaluations in kept processes, each equal to one in new ones; gives their processes."""

    def new(seed):
        return contextlib.closing(make_host_env(make, num_envs, seed=seed, **SETTINGS, **settings))

    with pool_of(make, **settings) as pool:
        evaluators = [
            HostEvaluator(act, environments, episodes, 5, EpisodeLimit(SPEC))
            for environments in (lambda seed: pool.environments(num_envs, seed), new)
        ]
        used, seen = [], set()
        for number in range(4):
            found, expected = (evaluator.evaluate(number) for evaluator in evaluators)
            assert found == expected and found.episodes == episodes
            seen.add(found.returns)
            used.append(pids(pool))
            between(pool)
        assert len(seen) == 4  # other episodes each time
        return used


def test_evaluations_in_kept_processes_are_those_in_new_ones():
    used = compare_evaluations(Recorded)
    assert used == used[:1] * 4 and len(set(used[0])) == 3


def test_what_an_environment_and_its_factory_count_begins_anew():
    made = []

    class Counting(Recorded):
        ever = 0

        def __init__(self):
            super().__init__()
            Counting.ever += 1
            made.append(1)
            self.count = 10 * Counting.ever + len(made)

        def step(self, action):
            obs, reward, *ends = super().step(action)
            return obs, reward + self.count, *ends

    used = compare_evaluations(Counting)
    assert used == used[:1] * 4


def test_environments_are_made_with_what_the_factory_holds_now():
    level = [1.0]

    def make():
        env = Recorded()
        env.reward = lambda *_, pays=level[0]: pays
        return env

    with pool_of(make) as pool:
        evaluator = HostEvaluator(
            act, lambda seed: pool.environments(2, seed), 2, 5, EpisodeLimit(SPEC)
        )
        found = []
        for _ in range(3):
            evaluation = evaluator.evaluate()
            found.append(evaluation.return_mean / evaluation.length_mean)
            level[0] += 1
    np.testing.assert_allclose(found, [1, 2, 3])


@pytest.mark.filterwarnings("ignore:.* made anew")
def test_evaluations_are_the_same_after_faults():
    class Failing(Recorded):
        def step(self, action):
            if self.steps == 1 and self.id % 2 and self.episode == 1:
                os._exit(3)
            return super().step(action)

    used = compare_evaluations(Failing, restart=True)
    assert used[0] != used[-1]  # some have failed, and others have taken their places


@pytest.mark.filterwarnings("ignore:.* made anew")
def test_restarts_are_counted_for_each_evaluation():
    class Failing(Recorded):
        def step(self, action):
            if self.steps == 1 and self.episode == 0:
                raise KeyError("the bottom fell out")
            return super().step(action)

    with pool_of(Failing, restart=True) as pool:
        for seed in (1, 2):
            with pool.environments(2, seed) as env:
                env.reset(), env.step(np.zeros(2, np.int64))
                step = env.step(np.zeros(2, np.int64))
                assert env.restarts.total >= 1 and env.restarts.counts.max() == 1
                assert not step.valid.all()


@pytest.mark.filterwarnings("ignore:.*A new process takes its place")
def test_a_process_that_died_between_two_evaluations_is_replaced():
    def kill_first(pool):
        os.kill(pids(pool)[0], signal.SIGKILL)

    used = compare_evaluations(Recorded, num_envs=2, between=kill_first)
    assert len({pid for pid, _ in used}) == 4 and len({pid for _, pid in used}) == 1


def test_masks_and_names_are_those_of_new_environments():
    def make():
        return Masked("info")

    new = make_host_env(make, 2, masks=True, seed=3, **SETTINGS)
    expected = new.reset()
    new.close()
    with pool_of(make, masks=True) as pool:
        for _ in range(2):
            with pool.environments(2, 3) as env:
                assert env.spec == new.spec and env.spec.masked
                np.testing.assert_equal(env.reset(), expected)


@pytest.mark.filterwarnings("ignore:.*A new process takes its place")
@pytest.mark.parametrize("method", ["constructor", "close"])
def test_environments_that_work_once_in_a_process_have_new_ones(method, monkeypatch):
    monkeypatch.setattr(processes, "CLOSE_SECONDS", 0.3)

    class Once(Recorded):
        def __init__(self):
            super().__init__()
            if method == "constructor" and os.environ.get("ONCE"):
                raise OSError("only one simulator in each process")
            os.environ["ONCE"] = "done"

        def close(self):
            if method == "close":
                time.sleep(1_000)

    used = compare_evaluations(Once, num_envs=1, episodes=2)
    assert len({pid for (pid,) in used}) == 4


def test_another_number_of_environments_has_new_processes():
    with pool_of(Recorded) as pool:
        for number in (2, 3, 3):
            with pool.environments(number, 1) as env:
                assert len(env.reset()) == number
            children = multiprocessing.active_children()
            assert sorted(child.pid for child in children) == sorted(pids(pool))


def test_environments_are_closed_at_the_end_of_their_evaluation(tmp_path):
    class Closing(Recorded):
        def close(self):
            (tmp_path / str(time.monotonic_ns())).touch()

    with pool_of(Closing) as pool:
        before = len(list(tmp_path.iterdir()))
        with pool.environments(1, 1) as env:
            env.reset()
            assert len(list(tmp_path.iterdir())) == before
        deadline = time.monotonic() + 60
        while len(list(tmp_path.iterdir())) == before and time.monotonic() < deadline:
            time.sleep(0.01)
        assert len(list(tmp_path.iterdir())) == before + 1
    assert len(list(tmp_path.iterdir())) == before + 1  # it is closed once


@pytest.mark.parametrize("what", ["fault", "interrupt"])
def test_no_process_is_left_when_an_evaluation_breaks_off(what, tmp_path, monkeypatch):
    monkeypatch.setattr(processes, "CLOSE_SECONDS", 0.3)

    class Breaking(Recorded):
        def step(self, action):
            if (tmp_path / "fault").exists():
                raise KeyError("the bottom fell out")
            if (tmp_path / "interrupt").exists():
                time.sleep(1_000)
            return super().step(action)

    error = {"fault": EnvironmentFault, "interrupt": KeyboardInterrupt}[what]
    with pool_of(Breaking) as pool:
        evaluator = HostEvaluator(
            act, lambda seed: pool.environments(2, seed), 2, 5, EpisodeLimit(SPEC)
        )
        expected = [evaluator.evaluate(number) for number in range(2)]
        (tmp_path / what).touch()
        if what == "interrupt":
            threading.Timer(1.0, os.kill, (os.getpid(), signal.SIGINT)).start()
        with pytest.raises(error):
            evaluator.evaluate(2)
        assert not multiprocessing.active_children()
        (tmp_path / what).unlink()
        assert [evaluator.evaluate(number) for number in range(2)] == expected


@pytest.mark.parametrize("own", [None, "1"])
def test_environments_see_the_users_own_variables(own, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", "/nowhere")
    monkeypatch.delenv("PYTHONSAFEPATH", raising=False)
    if own:
        monkeypatch.setenv("PYTHONSAFEPATH", own)
    expected = {"PYTHONPATH": "/nowhere", "PYTHONSAFEPATH": own}

    class WithVariables(Predictable):
        def __init__(self):
            super().__init__()
            found = {name: os.environ.get(name) for name in expected}
            if found != expected:
                raise ValueError(f"{found}, expected {expected}")

    env = make_host_env(WithVariables, 1, **SETTINGS)
    env.close()
    assert os.environ["PYTHONPATH"] == "/nowhere"
