import warnings

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from kytolly.environment.faults import EnvironmentFault
from kytolly.environment.gym.actions import ActionForm
from kytolly.environment.gym.adapter import make_host_env
from kytolly.environment.gym.spaces import ObservationForm, all_finite
from kytolly.environment.spec import Box, Discrete, MultiDiscrete


class Shown(gymnasium.Env):
    """Shows given observations in turn, three to an episode, and records its actions."""

    def __init__(self, observation_space, observations, action_space=None):
        self.observation_space = observation_space
        self.action_space = action_space or spaces.Discrete(3)
        self.observations, self.index, self.actions = observations, -1, []

    def reset(self, *, seed=None, options=None):
        return self.next(), {}

    def next(self):
        self.index += 1
        return self.observations[self.index % len(self.observations)]

    def step(self, action):
        assert self.action_space.contains(action)
        self.actions.append(np.copy(action))
        return self.next(), 0.0, self.index % 3 == 2, False, {}


def box(shape, dtype, low=0, high=100):
    return spaces.Box(low, high, shape, dtype)


IMAGE = np.arange(24, dtype=np.uint8).reshape(2, 4, 3)
SPACES = {
    "flat": (box((2,), np.float32), [np.array([0.5, 7], np.float32)], (2,), "float32"),
    "float64": (box((2,), np.float64), [np.array([0.1, 7.0])], (2,), "float32"),
    "float16": (box((2,), np.float16), [np.array([0.5, 7], np.float16)], (2,), "float32"),
    "integer": (box((2, 2), np.int64), [np.array([[1, 2], [3, 100]])], (2, 2), "float32"),
    "image": (box((2, 4, 3), np.uint8, 0, 255), [IMAGE, 255 - IMAGE], (2, 4, 3), "uint8"),
    "scalar": (box((), np.float32), [np.float32(3.5)], (1,), "float32"),
    "discrete": (spaces.Discrete(4, start=2), [2, np.int64(5), np.array(3)], (4,), "float32"),
    "kinds": (spaces.MultiDiscrete([2, 3], start=[0, 4]), [np.array([1, 4])], (5,), "float32"),
    "table of kinds": (
        spaces.MultiDiscrete([[2], [3]]),
        [np.array([[1], [0]]), np.array([[0], [2]])],
        (5,),
        "float32",
    ),
    "bits": (spaces.MultiBinary((2, 2)), [np.array([[0, 1], [1, 1]], np.int8)], (2, 2), "float32"),
    "list": (box((2,), np.float32), [[0.5, 7.0]], (2,), "float32"),
}
ONE_HOT = {
    "discrete": {(2,): [1, 0, 0, 0], (3,): [0, 1, 0, 0], (5,): [0, 0, 0, 1]},
    "kinds": {(1, 4): [0, 1, 1, 0, 0]},
    "table of kinds": {(1, 0): [0, 1, 1, 0, 0], (0, 2): [1, 0, 0, 0, 1]},
}


@pytest.mark.parametrize("name", SPACES)
@pytest.mark.parametrize("mode", [None, *AutoresetMode], ids=str)
def test_observations_arrive_in_one_shape_and_dtype_with_their_values(name, mode):
    space, observations, shape, dtype = SPACES[name]
    if mode is None:
        given = Shown(space, observations)
    else:
        given = SyncVectorEnv([lambda: Shown(space, observations)], autoreset_mode=mode)
    env = make_host_env(given)
    assert (tuple(env.spec.obs.shape), env.spec.obs.dtype.name) == (shape, dtype)
    shown = [env.reset()]
    for _ in range(3):
        step = env.step(np.array([0]))
        shown.append(step.obs)
        assert step.next_obs.shape == (1, *shape) and step.next_obs.dtype == dtype
    for index, obs in enumerate(shown[:2]):
        expected = observations[index % len(observations)]
        if name in ONE_HOT:
            expected = ONE_HOT[name][tuple(np.ravel(expected).tolist())]
        assert obs.shape == (1, *shape) and obs.dtype == dtype
        np.testing.assert_array_equal(obs[0], np.asarray(expected, dtype).reshape(shape))


HALVES = spaces.Box(-0.5, 0.5, (2,), np.float32)
ACTIONS = {  # space, what the agent chooses from, its actions, those that arrive
    "discrete": (spaces.Discrete(3, start=-1), Discrete(3), [0, 2], [-1, 1]),
    "kinds": (
        spaces.MultiDiscrete([2, 3]),
        MultiDiscrete((2, 3)),
        [[1, 0], [0, 2]],
        [[1, 0], [0, 2]],
    ),
    "kinds with a start": (
        spaces.MultiDiscrete([2, 3], start=[4, -1]),
        MultiDiscrete((2, 3)),
        [[1, 0], [0, 2]],
        [[5, -1], [4, 1]],
    ),
    "table of kinds": (
        spaces.MultiDiscrete([[2], [3]], dtype=np.int32),
        MultiDiscrete((2, 3)),
        [[1, 2]],
        [[[1], [2]]],
    ),
    "bits": (
        spaces.MultiBinary((2, 2)),
        MultiDiscrete((2,) * 4),
        [[0, 1, 1, 1]],
        [[[0, 1], [1, 1]]],
    ),
    "box": (HALVES, Box((-0.5, -0.5), (0.5, 0.5)), [[-0.5, 0.25]], [[-0.5, 0.25]]),
    "box with axes": (
        spaces.Box(np.array([[-1.0], [-np.inf]]), np.array([[2.0], [np.inf]]), dtype=np.float32),
        Box((-1.0, -np.inf), (2.0, np.inf)),
        [[2.0, 1e9]],
        [[[2.0], [1e9]]],
    ),
    "scalar box": (spaces.Box(0, 1, (), np.float32), Box((0.0,), (1.0,)), [[0.5]], [0.5]),
    "float16": (spaces.Box(-2, 2, (1,), np.float16), Box((-2.0,), (2.0,)), [[0.5]], [[0.5]]),
    # 0.1 is no float32: the nearest one lies above it, and outside the space.
    "float64": (spaces.Box(-0.1, 0.1, (1,), np.float64), Box((-0.1,), (0.1,)), [[0.1]], [[0.1]]),
}


@pytest.mark.parametrize("name", ACTIONS)
@pytest.mark.parametrize("mode", [None, *AutoresetMode], ids=str)
def test_actions_arrive_in_their_space(name, mode):
    space, agents, actions, arrive = ACTIONS[name]
    shown = Shown(box((1,), np.float32), [np.zeros(1, np.float32)], space)
    given = shown if mode is None else SyncVectorEnv([lambda: shown], autoreset_mode=mode)
    env = make_host_env(given)
    env.reset()
    assert env.spec.action == agents
    kind = np.float32 if isinstance(agents, Box) else np.int64
    for action in actions:
        env.step(np.array([action], kind))
    np.testing.assert_array_equal(shown.actions, np.array(arrive, space.dtype))
    assert {action.dtype for action in shown.actions if action.ndim} <= {np.dtype(space.dtype)}


def test_an_environment_that_writes_into_its_action_does_not_write_into_the_agents():
    class Writing(Shown):
        def step(self, action):
            action[:] = 0
            return super().step(action)

    env = make_host_env(Writing(HALVES, [np.zeros(2, np.float32)], HALVES))
    env.reset()
    action = np.full((1, 2), 0.25, np.float32)
    env.step(action)
    np.testing.assert_array_equal(action, [[0.25, 0.25]])


@pytest.mark.parametrize("name", ["kinds", "box"])
def test_actions_of_the_wrong_shape_are_refused(name):
    space = ACTIONS[name][0]
    env = make_host_env(lambda: Shown(HALVES, [np.zeros(2, np.float32)], space), 3)
    env.reset()
    for shape in [(3,), (3, 1), (3, 2, 1)]:
        with pytest.raises(ValueError, match=r"got actions of shape .*, expected \[3, 2\]"):
            env.step(np.zeros(shape, np.int64))


@pytest.mark.parametrize(
    "space", [spaces.Text(5), spaces.Sequence(spaces.Discrete(2)), spaces.Graph(HALVES, None)]
)
def test_other_observations_are_refused_by_name(space):
    message = f"observations of Shown are .* a {type(space).__name__} .* Tuple of .*write a wrapper"
    with pytest.raises(ValueError, match=message):
        make_host_env(Shown(space, [space.sample()]))


TUPLE = spaces.Tuple([spaces.Discrete(3, start=1), spaces.Dict(x=HALVES), spaces.MultiBinary(2)])
PARTS = [(3, {"x": np.array([0.5, -0.5], np.float32)}, np.array([0, 1], np.int8))]


@pytest.mark.parametrize("mode", [None, *AutoresetMode], ids=str)
def test_the_parts_of_a_tuple_are_entries_named_by_their_numbers(mode):
    given = Shown(TUPLE, PARTS)
    if mode is not None:
        given = SyncVectorEnv([lambda: Shown(TUPLE, PARTS)] * 2, autoreset_mode=mode)
    env = make_host_env(given)
    expected = {"0": [0, 0, 1], "1/x": [0.5, -0.5], "2": [0, 1]}
    obs = [env.reset()]
    for _ in range(3):
        step = env.step(np.zeros(env.num_envs, int))
        obs += [step.obs, step.next_obs]
    for one in obs:
        assert one.keys() == expected.keys()
        for name, part in expected.items():
            np.testing.assert_array_equal(one[name], [part] * env.num_envs)


@pytest.mark.parametrize("given", [(3,), 3, {"0": 3}, None, "abc"])
def test_an_observation_that_lacks_a_part_of_its_tuple_is_refused(given):
    env = make_host_env(Shown(TUPLE, [given]))
    with pytest.raises(EnvironmentFault, match=r"without the entry|shape|expected an integer"):
        env.reset()


@pytest.mark.parametrize(
    ("space", "message"),
    [
        (spaces.Box(0, 9, (1,), np.int64), "a Box space of int64; .*MultiDiscrete.*float dtype"),
        (spaces.Box(0, 255, (1,), np.uint8), "a Box space of uint8; .*MultiDiscrete"),
        (spaces.Dict(a=spaces.Discrete(2)), "a Dict space; .*TransformAction"),
        (spaces.Tuple([spaces.Discrete(2)]), "a Tuple space; .*TransformAction"),
        (spaces.Text(5), "a Text space; .*write a wrapper"),
    ],
)
def test_other_actions_are_refused_by_name_with_what_works(space, message):
    with pytest.raises(ValueError, match=f"actions of Push are .*{message}"):
        ActionForm(space, "Push")


def test_a_wrapper_that_makes_continuous_actions_discrete_works():
    env = make_host_env(gymnasium.wrappers.DiscretizeAction(gymnasium.make("Pendulum-v1"), 5))
    env.reset()
    assert env.spec.num_actions == 5 and np.isfinite(env.step(np.array([4])).reward).all()


@pytest.mark.parametrize(
    ("space", "observation", "message"),
    [
        (box((2,), np.float32), np.zeros(3, np.float32), r"shape \(3,\), but .* shape \(2,\)"),
        (box((2,), np.float32), np.float32(0), r"shape \(\), but .* shape \(2,\)"),
        (box((2,), np.float32), np.zeros((1, 2)), r"shape \(1, 2\), but .* shape \(2,\)"),
        (box((2,), np.float32), np.array(["a", "b"]), "is not numbers"),
        (box((2,), np.uint8), np.array([0.5, 1.0]), "float64 observation .* uint8"),
        (box((2,), np.uint8), np.array([0, 256]), "int64 observation .* uint8"),
        (spaces.Discrete(3), 3, "the observation 3, expected an integer from 0 to 2"),
        (spaces.Discrete(3), -1, "the observation -1, expected an integer from 0 to 2"),
        (spaces.Discrete(3, start=1), 0, "the observation 0, expected an integer from 1 to 3"),
        (spaces.MultiDiscrete([2, 3]), np.array([1, 3]), r"integers from \[0, 0\] to \[1, 2\]"),
        (spaces.MultiDiscrete([2, 3]), np.array([1.0, 1.0]), r"integers from \[0, 0\]"),
        (spaces.MultiDiscrete([2, 3]), np.array([1]), r"shape \(1,\), but .* shape \(2,\)"),
        (spaces.MultiBinary(2), np.zeros(3), r"shape \(3,\), but .* shape \(2,\)"),
        (spaces.Discrete(3), 1.0, "the observation 1.0, expected an integer from 0 to 2"),
    ],
)
def test_observations_outside_their_space_are_faults(space, observation, message):
    with pytest.raises(EnvironmentFault, match=f"Bad returned an? .*{message}|Bad .*{message}"):
        ObservationForm(space, "Bad").encode(observation)


def test_fractions_in_a_uint8_box_are_a_fault_and_not_zeros():
    space = box((2,), np.uint8, 0, 1)
    env = make_host_env(Shown(space, [np.zeros(2, np.uint8), np.array([0.5, 0.2])]))
    env.reset()
    with pytest.raises(EnvironmentFault, match=r"float64 observation .* uint8"):
        env.step(np.array([0]))


@pytest.mark.parametrize("size", [3, 1000])
def test_all_finite_sees_every_bad_number_and_forgives_an_overflow(size):
    values = np.full((2, size), 3e38, np.float32)  # their sum overflows float32
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert all_finite(values) and all_finite(-values)
        assert all_finite(np.zeros((2, size), np.uint8))
        for bad in (np.nan, np.inf, -np.inf):
            for place in (0, size, 2 * size - 1):
                changed = values.copy()
                changed.flat[place] = bad
                assert not all_finite(changed)
        both = values.copy()
        both.flat[0], both.flat[1] = np.inf, -np.inf
        assert not all_finite(both)
