"""The conformance kit: good environments pass, and every kind of fault is found and named."""

import re
import signal
import time

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from kytolly.environment.faults import EnvironmentFault
from kytolly.environment.gym.conformance import check_env, findings_of
from tests.environment.masked import SOURCES, Masked
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


def test_numbers_that_are_no_numbers_are_the_same_in_two_environments():
    env = type("Faulty", (Faulty,), {"fault": "nan"})
    assert findings(env)["seeding"][0] == "ok"


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


@pytest.mark.parametrize(
    ("beyond", "level"), [(0, "ok"), (1e-7, "ok"), (1e-3, "warning"), (np.inf, "error")]
)
def test_an_observation_may_leave_its_bounds_by_rounding_alone(beyond, level):
    class Rounded(gymnasium.ObservationWrapper):
        def __init__(self):
            super().__init__(Predictable())
            box = spaces.Box(-1.0, 100.0, (2,), np.float64)
            self.observation_space = spaces.Dict({"x": spaces.Tuple([box])})

        def observation(self, observation):
            return {"x": (np.array([-1.0 - beyond, np.sum(observation)]),)}

    found_level, text = findings(Rounded)["observations"]
    assert found_level == level
    assert level != "warning" or "by 0.001 of them" in text


def test_findings_come_one_by_one():
    played = []

    class Counted(Predictable):
        def step(self, action):
            played.append(action)
            return super().step(action)

    found = findings_of(Counted, steps=60)
    assert next(found).check == "spaces" and not played
    assert next(found).check == "observations" and len(played) == 60


def test_one_array_for_all_observations_is_a_warning():
    level, text = findings(lambda: Predictable(one_array=True))["observations"]
    assert level == "warning" and "overwrites" in text


def test_spaces_that_no_agent_can_handle_end_the_check():
    class Told(Predictable):
        observation_space = gymnasium.spaces.Text(4)

    found = check_env(Told, steps=10)
    assert [f.level for f in found] == ["error"] and "a Text space" in found[0].text


def test_a_tuple_of_numbers_is_no_fault():
    found = check_env("Blackjack-v1", steps=200)
    assert {f.level for f in found} == {"ok"}
    assert "0: float32 [32], 1: float32 [11], 2: float32 [2]" in found[0].text


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


class Forbids(Masked):
    """Raises where an action is played that its mask forbids, also after it was restored."""

    def step(self, action):
        if not (self.steps >= self.episode_length()):
            self.refuse(action, self.mask())
        return super().step(action)

    def refuse(self, action, mask):
        if not mask[action - getattr(self.action_space, "start", 0)]:
            raise ValueError(f"{action} is forbidden by {mask}")


class ForbidsParts(Forbids):
    """Two components of two: the mask [4] is for one after the other, and allows one of each."""

    def mask(self):
        return np.array([1, 0, 0, 1] if self.steps % 2 else [0, 1, 1, 1], np.int8)

    def refuse(self, action, mask):
        if not all(mask.reshape(2, 2)[range(2), np.ravel(action)]):
            raise ValueError(f"{action} is forbidden by {mask}")


ACTIONS = {
    "discrete": (Forbids, None),
    "start": (Forbids, spaces.Discrete(4, start=3)),
    "multi_discrete": (ForbidsParts, spaces.MultiDiscrete([2, 2])),
    "table": (ForbidsParts, spaces.MultiDiscrete([[2], [2]])),
    "multi_binary": (ForbidsParts, spaces.MultiBinary(2)),
}


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("kind", ACTIONS)
def test_no_action_is_played_that_a_mask_forbids(kind, source):
    make, space = ACTIONS[kind]
    found = findings(lambda: make(source, space=space))
    assert not {check: of for check, of in found.items() if of[0] == "error"}
    assert found["exact resume"] == ("ok", "") and "found in" in found["action masks"][1]


class TupleMasks(Masked):
    """One mask for each component, of different lengths."""

    def mask(self):
        return np.array([1, 0], np.int8), np.array([0, 1, 1], np.int8)


def test_a_tuple_of_masks_is_one_for_each_component():
    def make():
        return TupleMasks("info", space=spaces.MultiDiscrete([2, 3]))

    assert findings(make)["action masks"] == ("ok", "found in action_mask")


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_nor_in_a_vector_environment(mode, source):
    def make():
        return SyncVectorEnv([lambda: Forbids(source)] * 3, autoreset_mode=mode)

    assert findings(make)["autoreset mode"][0] == "ok"


class Ends(Predictable):
    """Ends the process, or hangs, in one of its methods."""

    def __init__(self, method, fault):
        super().__init__()
        self.method, self.fault = method, fault

    def fail(self, method):
        if method != self.method:
            return
        if self.fault == "hang":
            while True:
                try:
                    time.sleep(0.01)
                except Exception:  # as careless environments do
                    continue
        raise self.fault

    def reset(self, **settings):
        self.fail("reset")
        return super().reset(**settings)

    def step(self, action):
        self.fail("step")
        return super().step(action)

    def close(self):
        self.fail("close")


@pytest.mark.parametrize("method", ["reset", "step"])
def test_an_environment_that_ends_the_process_is_an_error(method):
    level, text = findings(lambda: Ends(method, SystemExit(3)))["observations"]
    assert level == "error" and "SystemExit" in text


def test_a_reset_that_takes_no_seed_is_told_what_it_should_take():
    class Seedless(Ends):
        def reset(self):
            return super().reset()

    level, text = findings(lambda: Seedless("none", None))["observations"]
    assert level == "error" and text.endswith(
        "Seedless.reset() got an unexpected keyword argument 'seed'. Let it be reset(self, *, "
        "seed=None, options=None)"
    )


def test_an_error_that_several_checks_meet_is_said_once_and_where():
    found = findings(lambda: Ends("step", RuntimeError("sensor 7")))
    level, text = found["observations"]
    assert level == "error" and re.search(r"sensor 7 \(.*test_conformance\.py, line \d+\)$", text)
    same = [
        check for check, pair in found.items() if pair == ("error", "the same as of observations")
    ]
    assert same == ["rewards and ends", "episodes", "seeding", "exact resume", "speed"]


@pytest.mark.parametrize("error", [RuntimeError("stuck"), SystemExit(3)], ids=repr)
def test_close_that_raises_is_a_finding_of_its_own(error):
    found = findings(lambda: Ends("close", error))
    assert found["closing"][0] == "warning" and type(error).__name__ in found["closing"][1]
    assert {level for check, (level, _) in found.items() if check != "closing"} == {"ok"}


@pytest.mark.parametrize("method", ["reset", "step"])
def test_an_environment_that_hangs_ends_the_check(method):
    before = signal.getsignal(signal.SIGALRM)
    found = check_env(lambda: Ends(method, "hang"), steps=60, timeout_seconds=0.2)
    assert (found[-1].check, found[-1].level) == ("observations", "error")
    assert "0.2 seconds" in found[-1].text
    assert signal.getsignal(signal.SIGALRM) is before
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_an_environment_whose_constructor_hangs_is_a_fault():
    with pytest.raises(EnvironmentFault, match=r"0\.2 seconds"):
        check_env(lambda: Ends("constructor", "hang").fail("constructor"), timeout_seconds=0.2)


def test_close_that_hangs_ends_the_check():
    found = check_env(lambda: Ends("close", "hang"), steps=4, timeout_seconds=0.05)
    assert (found[-1].check, found[-1].level) == ("closing", "error")
