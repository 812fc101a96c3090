"""Environments that do what none should: each plays, or is refused in one line."""

import fractions
import math
import warnings

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kytolly.environment.faults import EnvironmentFault
from kytolly.environment.gym.adapter import make_host_env
from kytolly.environment.spec import Box, Discrete, MultiDiscrete

LENGTH, NUM_ENVS, STEPS = 5, 2, 20
BOX = spaces.Box(-1, 1, (3,), np.float32)
OBS = np.zeros(3, np.float32)


class Odd(gymnasium.Env):
    """Five steps to an episode; from step `late` on, something replaces what it should return."""

    def __init__(self, observation_space=BOX, action_space=spaces.Discrete(2), late=0, **odd):  # noqa: B008
        self.observation_space, self.action_space = observation_space, action_space
        self.late, self.odd, self.steps = late, odd, 0

    def reset(self, *, seed=None, options=None):
        self.steps = 0
        return self.odd.get("reset", lambda *pair: pair)(self.observed(), {})

    def observed(self):
        if "obs" in self.odd and self.steps >= self.late:
            return self.odd["obs"]
        return sample(self.observation_space)

    def step(self, action):
        self.steps += 1
        step = {"reward": 1.0, "terminated": self.steps == LENGTH, "truncated": False}
        if self.steps >= self.late:
            step |= {key: value for key, value in self.odd.items() if key in step}
        return self.odd.get("step", lambda *all: all)(self.observed(), *step.values(), {})

    def close(self):
        if "close" in self.odd:
            raise self.odd["close"]


def sample(space):
    if isinstance(space, spaces.Dict):
        return {key: sample(inner) for key, inner in space.spaces.items()}
    if isinstance(space, spaces.Discrete):
        return int(space.start)
    return np.zeros(getattr(space, "shape", 3), getattr(space, "dtype", np.float32))


def dict_space(**entries):
    return dict_of(entries)


def dict_of(entries):
    space = spaces.Dict()
    space.spaces = entries  # past Gymnasium's own checks
    return space


def without_choice():
    space = spaces.Discrete(1)
    space.n = np.int64(0)
    return space


def without_choice_in_one():
    space = spaces.MultiDiscrete([2, 3])
    space.nvec = np.array([2, 0])
    return space


FORMS = {
    "single": lambda make: make_host_env(make),
    "several": lambda make: make_host_env(make, NUM_ENVS),
    **{
        mode.name: lambda make, mode=mode: make_host_env(
            lambda: SyncVectorEnv([make] * NUM_ENVS, autoreset_mode=mode)
        )
        for mode in AutoresetMode
    },
}
OWN = ["single", "several"]  # Gymnasium's vectors replace some of this before anyone sees it


def play(form, **odd):
    env = FORMS[form](lambda: Odd(**odd))
    try:
        env.reset()
        return [env.step(actions(env)) for _ in range(STEPS)]
    finally:
        env.close()


def actions(env):
    if isinstance(env.spec.action, Discrete):
        return np.zeros(env.num_envs, np.int64)
    if isinstance(env.spec.action, MultiDiscrete):
        return np.zeros((env.num_envs, len(env.spec.action.counts)), np.int64)
    assert isinstance(env.spec.action, Box)
    return np.zeros((env.num_envs, len(env.spec.action.low)), np.float32)


NOTHING = {
    "no observation space": ({"observation_space": None}, "has no observation_space, expected"),
    "no action space": ({"action_space": None}, "has no action_space, expected one"),
    "a string": ({"observation_space": "Box"}, "observations of .* are 'Box', a str space"),
    "no space in a Dict": ({"observation_space": dict_space(a=None)}, "entry 'a' .* is None"),
    "no numbers": ({"observation_space": spaces.Box(0, 1, (0,))}, "nothing to observe"),
    "no columns": ({"observation_space": spaces.Box(0, 1, (2, 0))}, "nothing to observe"),
    "no entry": ({"observation_space": dict_space(a=spaces.Box(0, 1, (0,)))}, "nothing to observe"),
    "no number": ({"observation_space": without_choice()}, "nothing to observe"),
    "no number in one": ({"observation_space": without_choice_in_one()}, "nothing to observe"),
    "no continuous action": ({"action_space": spaces.Box(0, 1, (0,))}, "nothing to choose"),
    "no action": ({"action_space": without_choice()}, "nothing to choose"),
    "no action in one": ({"action_space": without_choice_in_one()}, "nothing to choose"),
    "too many numbers": ({"observation_space": spaces.Discrete(10**12)}, "1,000,000,000,000 numb"),
    "too many of few": (
        {"observation_space": dict_space(a=spaces.MultiDiscrete([10**9] * 3))},
        "'a' of .* makes 3,000,000,000 numbers",
    ),
    "too many actions": ({"action_space": spaces.Discrete(10**12)}, "expected at most 1,048,576"),
    "too many in all": ({"action_space": spaces.MultiBinary(10**7)}, "expected at most 1,048,576"),
    "equal names": ({"observation_space": dict_of({1: BOX, "1": BOX})}, "the name '1'"),
    "equal paths": (
        {"observation_space": dict_of({"a/b": BOX, "a": dict_space(b=BOX)})},
        "the name 'a/b'; expected a name of its own",
    ),
    "an empty name": ({"observation_space": dict_of({"": BOX, "b": BOX})}, "the name ''"),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", NOTHING)
def test_spaces_that_hold_nothing_are_refused_before_the_first_reset(name, form):
    odd, message = NOTHING[name]
    with pytest.raises((ValueError, EnvironmentFault)) as refusal:
        FORMS[form](lambda: Odd(**odd))
    assert "\n" not in str(refusal.value)
    if form in OWN or not str(refusal.value).startswith("the function given as env raised"):
        with pytest.raises(ValueError, match=message):
            raise refusal.value


def test_an_environment_without_spaces_is_refused():
    class Bare(gymnasium.Env):
        pass

    with pytest.raises(
        ValueError, match=r"Bare has no action_space, expected one: .* Set self.action_space"
    ):
        make_host_env(Bare)
    Bare.action_space = spaces.Discrete(2)
    with pytest.raises(ValueError, match="Bare has no observation_space, expected one"):
        make_host_env(Bare, 2, masks=True)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("which", ["terminated", "truncated"])
@pytest.mark.parametrize(
    "value",
    ["False", "", math.nan, 2, [False], [False, True], [], {}, None, object],
    ids=repr,
)
def test_what_is_no_bool_does_not_end_an_episode(value, which, form):
    with pytest.raises(EnvironmentFault, match=r"after 2 steps") as fault:
        play(form, late=3, **{which: value})
    assert f"{which}={value!r}"[:20] in str(fault.value)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("which", [("terminated", "truncated"), ("truncated", "terminated")])
def test_none_beside_an_end_is_a_fault(which, form):
    with pytest.raises(EnvironmentFault, match=f"{which[0]}=None, expected a bool"):
        play(form, late=3, **{which[0]: None, which[1]: True})


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("value", [True, np.True_, np.array(True), 1, np.int64(1)], ids=repr)
def test_every_kind_of_true_ends_an_episode(value, form):
    steps = play(form, late=3, terminated=value)
    assert steps[2].terminated.all() and not steps[1].ended.any()
    assert steps[2].terminated.dtype == np.bool_


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("value", [False, np.False_, np.array(False), 0, np.int64(0)], ids=repr)
def test_every_kind_of_false_ends_none(value, form):
    steps = play(form, late=1, terminated=value, truncated=value)
    assert not any(step.ended.any() for step in steps)


@pytest.mark.parametrize("form", OWN)
@pytest.mark.parametrize(
    "value",
    [1e308, -1e39, None, "1.0", np.ones(2), np.zeros(1), [1.0], 1j, np.complex64(2), 10**5000],
    ids=lambda value: "large" if isinstance(value, int) else repr(value),
)
@pytest.mark.filterwarnings("error")
def test_rewards_that_are_not_one_float32_are_faults(value, form):
    with pytest.raises(EnvironmentFault, match=r"returned the reward .* expected one") as fault:
        play(form, late=3, reward=value)
    assert "(environment 0 of" in str(fault.value) and "after 2 steps" in str(fault.value)
    assert len(str(fault.value)) < 500


@pytest.mark.parametrize("form", OWN)
@pytest.mark.parametrize("value", [3e38, np.ones(1), np.complex64(1)], ids=repr)
@pytest.mark.filterwarnings("error")
def test_the_sum_of_an_episode_is_one_float32_too(value, form):
    late = 3 if value == 1 else 1  # 1 equals the rewards before it, whatever its type
    with pytest.raises(EnvironmentFault, match=r"returned rewards with the sum .* after 5 steps"):
        play(form, late=late, reward=value)


@pytest.mark.parametrize("mode", AutoresetMode)
def test_a_vector_refuses_rewards_beyond_float32(mode):
    with pytest.raises(EnvironmentFault, match=r"rewards array.*1.e\+308.* expected 2 finite"):
        play(mode.name, reward=1e308)


@pytest.mark.parametrize("value", [1, True, np.float64(1), fractions.Fraction(1), np.array(1.0)])
@pytest.mark.parametrize("form", OWN)
def test_every_kind_of_number_pays(value, form):
    assert all((step.reward == 1).all() for step in play(form, reward=value))


NO_NUMBERS = [np.full(3, 1j), np.array(list("123")), np.zeros(3, "datetime64[s]")]


@pytest.mark.parametrize("form", OWN)
@pytest.mark.parametrize("late", [0, 3])
@pytest.mark.parametrize("obs", NO_NUMBERS, ids=str)
@pytest.mark.filterwarnings("error")
def test_complex_numbers_and_text_are_no_observations(obs, late, form):
    with pytest.raises(EnvironmentFault, match=f"not numbers: its dtype is .*after {late and 2} "):
        play(form, late=late, obs=obs)


@pytest.mark.parametrize("form", FORMS)
def test_an_environment_that_cannot_close_keeps_the_result(form):
    with pytest.warns(UserWarning, match=r"raised OSError in close\(\): two lines"):
        assert len(play(form, close=OSError("two\nlines"))) == STEPS


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("size", [2, 3])
def test_a_reset_that_returns_no_info_is_a_fault(size, form):
    odd = {"observation_space": spaces.Box(-1, 1, (size,)), "reset": lambda obs, _: obs}
    with pytest.raises(EnvironmentFault) as fault:
        play(form, **odd)
    assert form not in OWN or "expected (observation, info)" in str(fault.value)


@pytest.mark.parametrize("form", OWN)
def test_a_step_of_four_values_says_what_is_expected(form):
    with pytest.raises(
        EnvironmentFault, match=r"got 4.*expected \(observation, reward, terminated"
    ):
        play(form, step=lambda *step: step[:4])


def test_a_vector_of_ones_own_is_held_to_the_same():
    class Wrong(SyncVectorEnv):
        def __init__(self, place, value):
            super().__init__([Odd] * NUM_ENVS)
            self.place, self.value = place, value

        def step(self, actions):
            step = list(super().step(actions))
            step[self.place] = self.value
            return tuple(step)

    wrongs = [(0, np.zeros(2)), (0, [1, [2]]), (1, ["a", "b"]), (1, None), (1, np.ones(3))]
    wrongs += [(2, "False"), (2, [math.nan] * 2), (2, None), (3, ["True"] * 2), (3, [2, 0])]
    for place, value in wrongs:
        env = make_host_env(Wrong(place, value))
        env.reset()
        with pytest.raises(EnvironmentFault, match=r"Wrong .* in step\(\)"):
            env.step(np.zeros(NUM_ENVS, np.int64))


def test_long_messages_of_several_lines_become_one_short_line():
    text = str(EnvironmentFault("first\n  second " + "x" * 5_000 + " last"))
    assert text.startswith("first second x") and text.endswith("x last") and len(text) < 900


ODD = [None, "", "1.0", "False", b"1", 0, 1, 2, -1, 0.5, 1e308, math.nan, math.inf, 1j, 10**5000]
odd_arrays = st.builds(
    lambda shape, dtype: np.ones(shape, dtype),
    st.lists(st.integers(0, 3), max_size=3),
    st.sampled_from("? u1 i8 f2 f4 f8 c8 U1 S1 M8[s] O".split()),
)
odd_values = st.sampled_from([*ODD, True, [], {}, {"a": OBS}, [1, [2]], object()]) | odd_arrays
small_boxes = st.builds(
    lambda shape, dtype: spaces.Box(0, 1, shape, dtype),
    st.lists(st.integers(0, 3), max_size=2).map(tuple),
    st.sampled_from([np.uint8, np.int64, np.float32, np.float64]),
)
parts = (
    st.sampled_from([None, "Box", spaces.Tuple((BOX,)), spaces.Text(3), without_choice()])
    | small_boxes
    | st.builds(spaces.Discrete, st.integers(1, 3), start=st.integers(-2, 2))
    | st.sampled_from([BOX, spaces.MultiBinary(2), without_choice_in_one()])
)
large = [spaces.Discrete(10**12), spaces.Discrete(2, start=2**40), spaces.MultiDiscrete([10**9, 2])]
large += [spaces.Discrete(2, start=-(2**62)), spaces.MultiDiscrete([3, 2], start=[5, -5])]
large += [spaces.Box(-np.inf, np.inf, (2,)), spaces.Box(-1e300, 1e300, (2,), np.float64)]
large += [spaces.Box(0, 0, (2,)), spaces.Box(-1, 1, (2,), np.float16), spaces.Sequence(BOX)]
parts = parts | st.sampled_from(large)
KEYS = ["a", "b", "a/b", "a.b", "", "1", 1, None, ("a", "b"), "action_mask", "a\nb", "x" * 99]
odd_spaces = st.recursive(
    parts,
    lambda inner: st.dictionaries(st.sampled_from(KEYS), inner, max_size=3).map(dict_of),
    max_leaves=3,
)
changes = st.sampled_from(
    [
        lambda *given: given[:-1],
        lambda *given: (*given, 1),
        lambda *given: list(given),
        lambda *given: None,
        lambda *given: given[0],
        lambda *given: 1 / 0,
        lambda *given: (*given[:-1], "info"),
        lambda *given: tuple(reversed(given)),
        lambda *given: (np.zeros(4, np.float32), *given[1:]),
    ]
)
faults = st.fixed_dictionaries(
    {},
    optional={
        "observation_space": odd_spaces,
        "action_space": odd_spaces,
        "late": st.integers(0, 12),
        "obs": odd_values,
        "reward": odd_values,
        "terminated": odd_values,
        "truncated": odd_values,
        "reset": changes,
        "step": changes,
        "close": st.sampled_from([OSError("shut"), KeyError("a\nb")]),
    },
)


@pytest.mark.parametrize("budget", [60, pytest.param(2_000, marks=pytest.mark.learning)])
def test_any_environment_plays_or_is_refused_in_one_line(budget):
    outcomes = {"played": 0, "refused": 0}

    @settings(
        max_examples=budget,
        derandomize=True,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    @given(faults, st.sampled_from(sorted(FORMS)))
    def check(odd, form):
        # One or two faults at once: with more, the first hides the others.
        odd = dict(list(odd.items())[:3])
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                steps = play(form, **odd)
        except (ValueError, EnvironmentFault) as error:
            assert "\n" not in str(error) and 10 < len(str(error)) < 1_200, str(error)
            outcomes["refused"] += 1
            return
        outcomes["played"] += 1
        for step in steps:
            assert np.isfinite(step.reward).all() and step.reward.dtype == np.float32
            assert step.ended.dtype == step.terminated.dtype == np.bool_

    check()
    print(budget, outcomes)
    assert min(outcomes.values()) > budget // 20
