"""Environments that break their promises: the message names environment, copy and step."""

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from kytolly.environment.gym.adapter import EnvironmentFault, make_host_env
from tests.environment.predictable import Predictable

COPIES, BAD_COPY, GOOD_STEPS = 3, 1, 4


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


def raised(*step):
    raise KeyError("the bottom fell out")


def observes(change):
    return lambda obs, *rest: (change(obs), *rest)


def pays(reward):
    return lambda obs, _, *rest: (obs, reward, *rest)


def spoilt(value):
    def change(obs):
        obs[1] = value
        return obs

    return change


WRONGS = {
    "raises": (raised, "raised KeyError in step.*the bottom fell out"),
    "nan obs": (observes(spoilt(np.nan)), "an observation with NaN or infinite numbers.*nan"),
    "inf obs": (observes(spoilt(-np.inf)), "an observation with NaN or infinite numbers.*inf"),
    "overflow": (observes(spoilt(1e300)), "an observation with NaN or infinite numbers.*inf"),
    "nan reward": (pays(np.nan), "returned the reward.*nan"),
    "inf reward": (pays(np.inf), "returned the reward.*inf"),
    "shape": (observes(lambda obs: obs[:2]), None),
    "shape that NumPy would stretch": (observes(lambda obs: obs[:1]), r"has shape \(3,\)"),
    "four values": (lambda *step: step[:4], None),
    "no reward": (pays(None), None),
}


def breaking_copies(wrong, mode=None):
    """A factory whose second copy breaks, or such a vector environment."""
    made = []

    def make():
        made.append(Breaking(wrong) if len(made) % COPIES == BAD_COPY else Breaking())
        return made[-1]

    if mode is None:
        return make
    return SyncVectorEnv([make] * COPIES, autoreset_mode=mode)


def run_until_fault(env, steps=GOOD_STEPS + 1):
    env.reset()
    for _ in range(steps - 1):
        env.step(np.zeros(env.num_envs, np.int64))
    with pytest.raises(EnvironmentFault) as fault:
        env.step(np.zeros(env.num_envs, np.int64))
    return fault.value


@pytest.mark.filterwarnings("ignore:overflow")
@pytest.mark.parametrize("name", WRONGS)
def test_own_copies_say_which_environment_copy_and_step(name):
    wrong, message = WRONGS[name]
    fault = run_until_fault(make_host_env(breaking_copies(wrong), COPIES))
    text = str(fault)
    assert text.startswith("Breaking")
    assert f"copy {BAD_COPY} of {COPIES}, " in text
    after = GOOD_STEPS + 1 if "infinite" in text else GOOD_STEPS
    assert f"after {after} steps of an episode" in text
    with pytest.raises(EnvironmentFault, match=message or "Breaking"):
        raise fault


def test_the_original_error_is_chained():
    fault = run_until_fault(make_host_env(breaking_copies(raised), COPIES))
    assert isinstance(fault.__cause__, KeyError)


@pytest.mark.filterwarnings("ignore:overflow")
@pytest.mark.parametrize("mode", AutoresetMode, ids=str)
@pytest.mark.parametrize("name", ["raises", "nan obs", "inf obs", "nan reward", "shape"])
def test_vectors_say_which_environment_and_step(name, mode):
    wrong, message = WRONGS[name]
    fault = run_until_fault(make_host_env(breaking_copies(wrong, mode)))
    assert "a vector of 3 copies, after" in str(fault)
    with pytest.raises(EnvironmentFault, match=message or "SyncVectorEnv"):
        raise fault


@pytest.mark.filterwarnings("ignore::UserWarning")  # Gymnasium repeats the worker's traceback
def test_a_fault_in_another_process_arrives_with_its_message():
    env = make_host_env(lambda: Breaking(raised), 2, async_envs=True)
    try:
        fault = run_until_fault(env)
    finally:
        env.close()
    assert "raised KeyError in step() (a vector of 2 copies, after 4 steps)" in str(fault)
    assert "the bottom fell out" in str(fault)


@pytest.mark.parametrize("mode", [None, *AutoresetMode], ids=str)
def test_bad_first_observations_are_faults_at_once(mode):
    def make():
        return Breaking(first=spoilt(np.nan))

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
    assert "in reset() (copy 0 of 1, after 0 steps of an episode)" in str(fault)


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
    with pytest.raises(EnvironmentFault, match=r"raised OSError in reset\(\) \(copy 0 of 2.*level"):
        env.reset()
    with pytest.raises(EnvironmentFault, match="function given as env raised OSError: no such"):
        make_host_env(lambda: cannot(None))


def test_copies_with_different_spaces_are_refused():
    sizes = iter([2, 3])

    class Sized(Predictable):
        def __init__(self):
            super().__init__()
            self.observation_space = gymnasium.spaces.Box(0, 1, (next(sizes),))

    with pytest.raises(
        ValueError, match=r"copy 1 of Sized has the spaces .* The copies must agree"
    ):
        make_host_env(Sized, 2)
