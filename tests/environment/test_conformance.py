"""The conformance kit: good environments pass, and every kind of fault is found and named."""

import re

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from kytolly.environment.gym.conformance import check_env
from tests.environment.predictable import Predictable


def findings(env, **options):
    """Check -> (level, text); the last finding of each check."""
    return {f.check: (f.level, f.text) for f in check_env(env, steps=60, **options)}


@pytest.mark.parametrize("env", ["CartPole-v1", "Pendulum-v1", "FrozenLake-v1", Predictable])
def test_good_environments_pass(env):
    assert not [f for f in check_env(env, steps=200) if f.level != "ok"]


class Faulty(Predictable):
    """A predictable environment with one fault, which a subclass or a test puts in."""

    fault = None

    def step(self, action):
        obs, reward, terminated, truncated, info = super().step(action)
        changed = {
            "dtype": (obs.astype(np.float64), reward, terminated, truncated, info),
            "nan": (obs, float("nan"), terminated, truncated, info),
            "huge": (obs, 1e308, terminated, truncated, info),
            "text": (obs, reward, "False", truncated, info),
            "not a number": (obs, reward, float("nan"), truncated, info),
            "info": (obs, reward, terminated, truncated, None if self.steps < 0 else [1]),
            "random": (obs + np.float32(np.random.rand()), reward, terminated, truncated, info),
            "endless": (obs, reward, False, False, info),
            "four": (obs, reward, terminated, info),
        }
        return changed.get(self.fault, (obs, reward, terminated, truncated, info))


@pytest.mark.parametrize(
    ("fault", "check", "level", "text"),
    [
        ("dtype", "observations", "error", "float64"),
        ("nan", "rewards and ends", "error", "reward 1 is nan"),
        ("huge", "rewards and ends", "error", r"1e\+308"),
        ("text", "rewards and ends", "error", "terminated is 'False', expected True or False"),
        ("not a number", "rewards and ends", "error", "terminated is nan"),
        ("info", "rewards and ends", "error", "info is no dict"),
        ("random", "seeding", "error", r"differ from step 1 on.*self\.np_random"),
        ("endless", "episodes", "warning", "wrappers.TimeLimit"),
        ("four", "observations", "error", r"expected \(observation, reward, terminated"),
    ],
)
def test_a_fault_is_found_and_named(fault, check, level, text):
    env = type("Faulty", (Faulty,), {"fault": fault})
    found_level, found_text = findings(env)[check]
    assert found_level == level
    assert re.search(text, found_text), found_text


@pytest.mark.parametrize("fault", [None, "four"])
def test_every_environment_that_was_made_is_closed(fault):
    made, closed = [], []

    class Counted(Faulty):
        def __init__(self):
            super().__init__()
            made.append(self)

        def close(self):
            closed.append(self)

    Counted.fault = fault
    check_env(lambda: Counted(), steps=60)
    assert len(made) > 8 and {id(env) for env in made} == {id(env) for env in closed}


def test_one_array_for_all_observations_is_a_warning():
    level, text = findings(lambda: Predictable(one_array=True))["observations"]
    assert level == "warning" and "overwrites" in text


def test_spaces_that_no_agent_can_handle_end_the_check():
    found = check_env("Blackjack-v1", steps=10)
    assert [f.level for f in found] == ["error"] and "FlattenObservation" in found[0].text


class Unsavable(Predictable):
    def __init__(self):
        super().__init__()
        self.numbers = iter(range(10**6))


def test_an_environment_without_saved_state_is_a_warning():
    level, text = findings(Unsavable)["exact resume"]
    assert level == "warning" and "Unsavable.numbers" in text and "get_state()" in text


class Forgetful(Predictable):
    def get_state(self):
        return {"steps": self.steps}

    def set_state(self, state):
        self.steps, self.episode, self.id = 0, 0, 0


def test_a_state_that_does_not_restore_is_a_warning():
    level, text = findings(Forgetful)["exact resume"]
    assert level == "warning" and "not exact" in text


class NothingAllowed(gymnasium.Env):
    observation_space = spaces.Dict(
        {"x": spaces.Box(0, 1, (1,), np.float32), "action_mask": spaces.MultiBinary(3)}
    )
    action_space = spaces.Discrete(3)
    allowed = 1

    def seen(self):
        mask = np.zeros(3, np.int8)
        mask[: self.allowed] = 1
        return {"x": np.zeros(1, np.float32), "action_mask": mask}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        return self.seen(), {}

    def step(self, action):
        assert action < self.allowed or not self.allowed
        self.time += 1
        return self.seen(), 1.0, self.time > 4, False, {}


def test_masks_are_followed_and_must_allow_something():
    class OneAllowed(NothingAllowed):
        pass

    assert findings(OneAllowed)["action masks"] == ("ok", "found in the observation")
    OneAllowed.allowed = 0
    level, text = findings(OneAllowed)["action masks"]
    assert level == "error" and "allows no action" in text


@pytest.mark.parametrize("mode", gymnasium.vector.AutoresetMode)
def test_vector_environments_keep_their_autoreset_mode(mode):
    make = [Predictable, Predictable]
    found = findings(lambda: gymnasium.vector.SyncVectorEnv(make, autoreset_mode=mode))
    assert found["autoreset mode"][0] == "ok" and mode.name in found["autoreset mode"][1]


def test_a_wrong_autoreset_mode_is_an_error():
    def make():
        env = gymnasium.vector.SyncVectorEnv(
            [Predictable] * 2, autoreset_mode=gymnasium.vector.AutoresetMode.NEXT_STEP
        )
        env.metadata = {"autoreset_mode": gymnasium.vector.AutoresetMode.SAME_STEP}
        return env

    level, text = findings(make)["autoreset mode"]
    assert level == "error" and "final_obs" in text
