"""Environments that break their promises: the message names which one, and the step."""

import re

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from kytolly.environment.faults import EnvironmentFault
from kytolly.environment.gym.adapter import make_host_env
from tests.environment.predictable import Predictable

NUM_ENVS, BAD_ENV, GOOD_STEPS = 3, 1, 4


class Breaking(Predictable):
    """As promised for `GOOD_STEPS` steps of an episode, then `wrong` happens."""

    def __init__(self, wrong=lambda *step: step, first=lambda obs: obs):
        super().__init__(length=9)
        self.wrong, self.first = wrong, first

    def reset(self, **settings):
        obs, info = super().reset(**settings)
        return self.first(obs), info

    def step(self, action):
        step = super().step(action)
        return self.wrong(*step) if self.steps > GOOD_STEPS else step


def fail(*step):
    raise KeyError("the bottom fell out")


def refuse(*step):
    raise AssertionError


def observes(change):
    return lambda obs, *rest: (change(obs), *rest)


def pays(reward):
    return lambda obs, _, *rest: (obs, reward, *rest)


def with_second(value):
    def change(obs):
        obs[1] = value
        return obs

    return change


WRONGS = {
    "raises": (fail, r"raised KeyError in step.*the bottom fell out.*test_faults\.py, line \d+\)$"),
    "says nothing": (refuse, r"raised AssertionError in step.*it says no more \(.*, line \d+\)$"),
    "nan obs": (observes(with_second(np.nan)), "an observation with NaN or infinite numbers.*nan"),
    "inf obs": (observes(with_second(-np.inf)), "an observation with NaN or infinite numbers.*inf"),
    "overflow": (observes(with_second(1e300)), "an observation with NaN or infinite numbers.*inf"),
    "nan reward": (pays(np.nan), "returned the reward.*nan"),
    "inf reward": (pays(np.inf), "returned the reward.*inf"),
    "shape": (observes(lambda obs: obs[:2]), None),
    "shape that NumPy would stretch": (observes(lambda obs: obs[:1]), r"has shape \(3,\)"),
    "four values": (lambda *step: step[:4], r"before 0\.26 returns four"),
    "no reward": (pays(None), None),
    "reward of one": (
        pays(np.ones([1])),
        r"array\(\[1\.\]\), an array of shape \(1,\), expected one .*Return reward\.item\(\)\.",
    ),
}


def breaking_envs(wrong, mode=None):
    """A factory whose second environment breaks, or such a vector environment."""
    envs = []

    def make():
        envs.append(Breaking(wrong) if len(envs) % NUM_ENVS == BAD_ENV else Breaking())
        return envs[-1]

    if mode is None:
        return make
    return SyncVectorEnv([make] * NUM_ENVS, autoreset_mode=mode)


def run_until_fault(env, steps=GOOD_STEPS + 1):
    env.reset()
    for _ in range(steps - 1):
        env.step(np.zeros(env.num_envs, np.int64))
    with pytest.raises(EnvironmentFault) as fault:
        env.step(np.zeros(env.num_envs, np.int64))
    return fault.value


@pytest.mark.filterwarnings("ignore:overflow")
@pytest.mark.parametrize("num_envs", [1, NUM_ENVS])
@pytest.mark.parametrize("name", WRONGS)
def test_sequential_environments_say_which_one_and_which_step(name, num_envs):
    wrong, message = WRONGS[name]
    make = breaking_envs(wrong) if num_envs > 1 else lambda: Breaking(wrong)
    text = str(run_until_fault(make_host_env(make, num_envs)))
    bad, after = min(BAD_ENV, num_envs - 1), GOOD_STEPS + ("infinite" in text)
    assert text.startswith("Breaking") and re.search(message or "Breaking", text)
    assert f"(environment {bad} of {num_envs}, after {after} steps of an episode)" in text


class Older(Breaking):
    """Begins as environments did before Gymnasium."""

    def reset(self, **settings):
        return super().reset(**settings)[0]


class Seedless(Breaking):
    """Takes no seed."""

    def reset(self):
        return super().reset()


@pytest.mark.parametrize(
    "kind, words",
    [
        (Older, r"reset\(\) returned array.*expected an observation and info.*`return observation"),
        (Seedless, r"argument 'seed'.* Let it be reset\(self, \*, seed=None, options=None\)\.$"),
    ],
)
def test_a_first_reset_says_what_it_should_be(kind, words):
    with pytest.raises(EnvironmentFault, match=words):
        make_host_env(kind, 1, masks=True)


@pytest.mark.parametrize("async_envs", [False, True])
def test_a_reset_without_a_seed_says_what_it_should_be_in_every_loop(async_envs):
    env = make_host_env(Seedless, 2, async_envs=async_envs)
    with pytest.raises(EnvironmentFault, match=r"'seed'\. Let it be reset\(self, \*, seed=None"):
        env.reset()
    env.close()


def test_the_original_error_is_chained():
    fault = run_until_fault(make_host_env(breaking_envs(fail), NUM_ENVS))
    assert isinstance(fault.__cause__, KeyError)


@pytest.mark.filterwarnings("ignore:overflow")
@pytest.mark.parametrize("mode", AutoresetMode, ids=str)
@pytest.mark.parametrize("name", ["raises", "nan obs", "inf obs", "nan reward", "shape"])
def test_vectors_say_which_environment_and_step(name, mode):
    wrong, message = WRONGS[name]
    fault = run_until_fault(make_host_env(breaking_envs(wrong, mode)))
    assert "a vector of 3 environments, after" in str(fault)
    with pytest.raises(EnvironmentFault, match=message or "SyncVectorEnv"):
        raise fault


@pytest.mark.filterwarnings("ignore::UserWarning")  # Gymnasium repeats the worker's traceback
def test_a_fault_in_another_process_arrives_with_its_message():
    class Failing(Predictable):  # a local class, so that the processes do not load this file
        def step(self, action):
            if self.steps == 2:
                raise KeyError("the bottom fell out")
            return super().step(action)

    env = make_host_env(lambda: Failing(length=9), 2, async_envs=True)
    try:
        fault = run_until_fault(env, steps=3)
    finally:
        env.close()
    assert "environment 0 raised KeyError" in str(fault)
    assert "in step() (a vector of 2 environments, after 2 steps)" in str(fault)
    assert "the bottom fell out" in str(fault)


@pytest.mark.parametrize("mode", [None, *AutoresetMode], ids=str)
def test_bad_first_observations_are_faults_at_once(mode):
    def make():
        return Breaking(first=with_second(np.nan))

    given = make if mode is None else SyncVectorEnv([make] * 2, autoreset_mode=mode)
    env = make_host_env(given, 2)
    with pytest.raises(EnvironmentFault, match=r"NaN or infinite .* in reset\(\)"):
        env.reset()


def test_a_bad_first_observation_of_a_later_episode_is_a_fault():
    class Later(Breaking):
        def reset(self, **settings):
            obs, info = super().reset(**settings)
            return (obs * np.nan if self.episode else obs), info

    fault = run_until_fault(make_host_env(Later, 1), steps=9)
    assert "in reset() (environment 0 of 1, after 0 steps of an episode)" in str(fault)


@pytest.mark.parametrize("name", ["NEXT_STEP", "SAME_STEP"])
def test_bad_last_observations_of_vectors_are_faults(name):
    def last(obs, reward, terminated, *rest):
        return (obs * np.nan if terminated else obs), reward, terminated, *rest

    env = SyncVectorEnv([lambda: Breaking(last)], autoreset_mode=AutoresetMode[name])
    assert "NaN" in str(run_until_fault(make_host_env(env), steps=9))


class Declared(SyncVectorEnv):
    """Says another autoreset mode than it has."""

    def __init__(self, declared, mode=AutoresetMode.NEXT_STEP):
        super().__init__([lambda: Predictable(length=2)], autoreset_mode=mode)
        self.metadata = {**self.metadata, "autoreset_mode": declared}


def test_a_vector_without_autoreset_mode_is_refused():
    with pytest.raises(
        ValueError, match=r"autoreset mode None, expected one of AutoresetMode.NEXT"
    ):
        make_host_env(Declared(None))


def test_a_mode_may_be_declared_by_its_value():
    assert make_host_env(Declared("NextStep")).reset().shape == (1, 3)


def test_same_step_without_the_last_observation_is_a_fault():
    fault = run_until_fault(make_host_env(Declared(AutoresetMode.SAME_STEP)), steps=2)
    assert "ended an episode without info['final_obs']" in str(fault)


def test_an_environment_that_cannot_reset_or_be_made_is_a_fault():
    def cannot(obs):
        raise OSError("no such level")

    env = make_host_env(lambda: Breaking(first=cannot), 2)
    with pytest.raises(
        EnvironmentFault, match=r"raised OSError in reset\(\) \(environment 0 of 2.*level"
    ):
        env.reset()
    with pytest.raises(EnvironmentFault, match="function given as env raised OSError: no such"):
        make_host_env(lambda: cannot(None))


def test_environments_with_different_spaces_are_refused():
    sizes = iter([2, 3])

    class Sized(Predictable):
        def __init__(self):
            super().__init__()
            self.observation_space = gymnasium.spaces.Box(0, 1, (next(sizes),))

    with pytest.raises(
        ValueError, match=r"environment 1 of Sized has the spaces .* All must have the same"
    ):
        make_host_env(Sized, 2)
