"""Which actions are allowed, in each of three ways to say it, and Dict observations."""

import functools

import gymnasium
import numpy as np
import pytest
import tensorflow as tf
from gymnasium import spaces
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv

from kytolly.environment.faults import EnvironmentFault
from kytolly.environment.gym.adapter import make_host_env
from kytolly.environment.spec import ACTION_MASK, Discrete, MultiDiscrete
from tests.environment.masked import SOURCES, Masked, mask_at

NUM_ENVS, STEPS = 3, 25
MODES = [None, *AutoresetMode, "processes"]
PLAIN = {"entry": "place", "info": "observation", "method": "observation"}
BITS = spaces.MultiBinary(4)


def mask_env(source, mode, **settings):
    make = functools.partial(Masked, source, **settings)
    if isinstance(mode, AutoresetMode):
        return SyncVectorEnv([make] * NUM_ENVS, autoreset_mode=mode)
    return make


def host_env(source, mode, seed=11, **settings):
    processes = mode == "processes"
    env = mask_env(source, mode, **settings)
    return make_host_env(env, NUM_ENVS, seed=seed, async_envs=processes, masks=True)


@pytest.mark.parametrize("one_array", [False, True], ids=["arrays", "one array"])
@pytest.mark.parametrize("mode", MODES, ids=str)
@pytest.mark.parametrize("source", SOURCES)
def test_every_row_has_the_mask_of_its_own_observation(source, mode, one_array):
    if one_array and mode is AutoresetMode.SAME_STEP:
        pytest.skip("Gymnasium loses the last observation of an environment with one array")
    env = host_env(source, mode, one_array=one_array)
    place, obs, ends = PLAIN[source], env.reset(), 0
    seeds = np.random.SeedSequence(11).generate_state(NUM_ENVS) % 1000
    np.testing.assert_array_equal(obs[place], [[seed, 0, 0] for seed in seeds])
    assert env.spec.masked and env.spec.action == Discrete(4)
    assert env.spec.obs[ACTION_MASK] == tf.TensorSpec([4], tf.bool)
    for _ in range(STEPS):
        assert obs.keys() == env.spec.obs.keys()
        assert all(obs[key].dtype == spec.dtype.name for key, spec in env.spec.obs.items())
        step = env.step(np.argmax(obs[ACTION_MASK], axis=1))
        for env_index in range(NUM_ENVS):
            here, after = step.next_obs[place][env_index], step.obs[place][env_index]
            if step.valid[env_index]:
                np.testing.assert_array_equal(here - obs[place][env_index], [0, 0, 1])
            expected = [True] * 4 if step.ended[env_index] else mask_at(here)
            np.testing.assert_array_equal(step.next_obs[ACTION_MASK][env_index], expected)
            waits = step.ended[env_index] and mode is AutoresetMode.NEXT_STEP
            expected = [True] * 4 if waits else mask_at(after)
            np.testing.assert_array_equal(step.obs[ACTION_MASK][env_index], expected)
            assert after[2] == (here[2] if waits or not step.ended[env_index] else 0)
        ends += step.ended.sum()
        obs = step.obs
    env.close()
    assert ends >= 15


@pytest.mark.parametrize("mode", MODES[:-1], ids=str)
def test_all_entries_of_a_dict_are_those_before_and_after_the_reset(mode):
    env = host_env("entry", mode)
    env.reset()
    assert set(env.spec.obs) == {"place", "step", ACTION_MASK}
    for _ in range(STEPS):
        step = env.step(np.zeros(NUM_ENVS, np.int64))
        for seen in (step.obs, step.next_obs):
            np.testing.assert_array_equal(np.argmax(seen["step"], axis=1), seen["place"][:, 2])
            assert seen["step"].shape == (NUM_ENVS, 9) and seen["step"].sum() == NUM_ENVS
    env.close()


@pytest.mark.parametrize("mode", MODES[:-1], ids=str)
def test_earlier_dicts_are_not_overwritten_by_later_ones(mode):
    env = host_env("entry", mode, one_array=mode is not AutoresetMode.SAME_STEP)
    kept = []
    for obs in [env.reset(), *(env.step(np.zeros(NUM_ENVS, np.int64)).next_obs for _ in range(8))]:
        kept += [(value, value.copy()) for value in obs.values()]
    env.close()
    for value, before in kept:
        np.testing.assert_array_equal(value, before)


@pytest.mark.parametrize("mode", MODES[:-1], ids=str)
@pytest.mark.parametrize("source", ["info", "method"])
def test_masks_that_are_not_asked_for_change_nothing(source, mode):
    env = make_host_env(mask_env(source, mode), NUM_ENVS, seed=11)
    assert env.reset().shape == (NUM_ENVS, 3) and not env.spec.masked
    assert env.step(np.zeros(NUM_ENVS, np.int64)).obs.shape == (NUM_ENVS, 3)
    env.close()


def test_an_entry_is_the_mask_even_if_nobody_asks():
    assert make_host_env(Masked("entry")).spec.masked


def test_an_environment_without_a_mask_has_none_when_asked():
    env = make_host_env("CartPole-v1", masks=True, seed=3)
    assert not env.spec.masked
    np.testing.assert_array_equal(env.reset(), make_host_env("CartPole-v1", seed=3).reset())


@pytest.mark.parametrize("async_envs", [False, True])
def test_taxi_forbids_what_would_not_move_it(async_envs):
    taxi = next(name for name in gymnasium.registry if name.startswith("Taxi-"))
    env = make_host_env(taxi, 2, seed=0, async_envs=async_envs, masks=True)
    theirs = gymnasium.make(taxi).unwrapped
    obs = env.reset()
    for _ in range(30):
        states = np.argmax(obs["observation"], axis=1)
        expected = [theirs.action_mask(state) for state in states]
        np.testing.assert_array_equal(obs[ACTION_MASK], expected)
        obs = env.step(np.argmax(obs[ACTION_MASK], axis=1)).obs
    env.close()
    assert env.spec.obs["observation"].shape == (500,)


def test_the_method_of_environments_in_processes_that_were_given_is_found():
    make = functools.partial(Masked, "method")
    theirs = AsyncVectorEnv([make] * 2, context="forkserver", autoreset_mode="SameStep")
    env = make_host_env(theirs, seed=11, masks=True)
    for obs in (env.reset(), env.step(np.zeros(2, np.int64)).obs):
        expected = [mask_at(place) for place in obs["observation"]]
        np.testing.assert_array_equal(obs[ACTION_MASK], expected)
    theirs.close()


def test_a_vector_environments_own_method_is_asked():
    class Asked(SyncVectorEnv):
        def action_masks(self):
            return [[0, 0, 0, 1]] * self.num_envs

    env = make_host_env(Asked([lambda: Masked("none")] * 2), masks=True)
    np.testing.assert_array_equal(env.reset()[ACTION_MASK], [[False, False, False, True]] * 2)


@pytest.mark.parametrize("mode", MODES[:-1], ids=str)
@pytest.mark.parametrize(
    ("space", "agents"),
    [
        (spaces.MultiDiscrete([2, 2]), MultiDiscrete((2, 2))),
        (spaces.MultiBinary(2), MultiDiscrete((2, 2))),
    ],
)
def test_the_masks_of_several_components_lie_in_a_row(space, agents, mode):
    env = host_env("info", mode, space=space)
    obs = env.reset()
    assert env.spec.action == agents and env.spec.num_actions == 4
    expected = [mask_at(place) for place in obs["observation"]]
    np.testing.assert_array_equal(obs[ACTION_MASK], expected)
    env.step(np.zeros((NUM_ENVS, 2), np.int64))
    env.close()


def test_a_tuple_of_masks_is_one_mask():
    wrong = (np.array([0, 1], np.int8), np.array([1, 0], np.int8))
    env = host_env("info", None, wrong=wrong, length=9, space=spaces.MultiDiscrete([2, 2]))
    env.reset()
    steps = [env.step(np.zeros((NUM_ENVS, 2), np.int64)) for _ in range(3)]
    np.testing.assert_array_equal(steps[-1].obs[ACTION_MASK], [[0, 1, 1, 0]] * NUM_ENVS)


WRONG = {
    "three numbers": (np.ones(3, np.int8), r"shape \(3,\).* expected \(4,\)"),
    "two axes": (np.ones((1, 4), np.int8), r"shape \(1, 4\).* expected \(4,\)"),
    "nothing": (np.zeros(4, np.int8), r"forbids all 4 actions though .*\[0, 0, 0, 0\].*at least"),
    "probabilities": (np.full(4, 2, np.int8), "expected 1 for an allowed action and 0"),
}


class SecondWrong:
    """Makes environments of which each second in a group of three gives a wrong mask."""

    def __init__(self, source, wrong):
        self.source, self.wrong, self.made = source, wrong, 0

    def __call__(self):
        self.made += 1
        wrong = self.wrong if self.made % NUM_ENVS == 2 else None
        return Masked(self.source, length=9, wrong=wrong)


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_mask_is_a_fault_that_names_the_environment(source, name):
    wrong, message = WRONG[name]
    env = make_host_env(SecondWrong(source, wrong), NUM_ENVS, masks=True)
    env.reset()
    env.step(np.zeros(NUM_ENVS, np.int64))
    env.step(np.zeros(NUM_ENVS, np.int64))
    with pytest.raises(
        EnvironmentFault, match=rf"Masked .*{message}.* \(environment 1 of 3, after"
    ):
        env.step(np.zeros(NUM_ENVS, np.int64))


@pytest.mark.filterwarnings("ignore::UserWarning")  # Gymnasium repeats the worker's traceback
@pytest.mark.parametrize("mode", MODES[1:], ids=str)
@pytest.mark.parametrize("name", ["three numbers", "nothing"])
@pytest.mark.parametrize("source", ["info", "method"])
def test_a_wrong_mask_in_a_vector_is_a_fault(source, name, mode):
    wrong, message = WRONG[name]
    env = host_env(source, mode, wrong=wrong, length=9)
    env.reset()
    env.step(np.zeros(NUM_ENVS, np.int64))
    env.step(np.zeros(NUM_ENVS, np.int64))
    try:
        if name == "three numbers":
            # Gymnasium itself fails to collect an info array that changes its shape
            message = rf"{message}|for environment 0 of 3, expected \(4,\)|raised ValueError"
        with pytest.raises(EnvironmentFault, match=message):
            env.step(np.zeros(NUM_ENVS, np.int64))
    finally:
        env.close()


def test_a_component_of_which_nothing_is_left_is_named():
    wrong, space = np.array([1, 1, 0, 0]), spaces.MultiDiscrete([2, 2])
    env = host_env("info", None, wrong=wrong, length=9, space=space)
    env.reset()
    with pytest.raises(EnvironmentFault, match="forbids all 2 actions of component 1 though"):
        for _ in range(3):
            env.step(np.zeros((NUM_ENVS, 2), np.int64))


@pytest.mark.parametrize("mode", MODES[:-1], ids=str)
def test_an_info_that_stops_to_say_what_is_allowed_is_a_fault(mode):
    class Silent(Masked):
        def step(self, action):
            *step, info = super().step(action)
            return *step, info if self.steps < 3 else {}

    env = SyncVectorEnv([lambda: Silent("info", 9)], autoreset_mode=mode) if mode else Silent
    env = make_host_env(env if mode else env("info", 9), masks=True)
    env.reset()
    with pytest.raises(EnvironmentFault, match=r"returned no info\['action_mask'\].*episode goes"):
        for _ in range(3):
            env.step(np.zeros(1, np.int64))
    assert env.spec.masked


class Spaced(Masked):
    """Only its spaces matter."""

    def __init__(self, source="none", **entries):
        super().__init__(source)
        if entries:
            self.observation_space = spaces.Dict(**entries)


BAD_SPACES = [
    (
        {"a": spaces.Discrete(2), "words": spaces.Text(4)},
        ValueError,
        "the entry 'words' of the observations of Spaced is .*a Text space; supported are Box",
    ),
    (
        {"a": spaces.Discrete(2), "b": spaces.Dict(c=spaces.Tuple([spaces.Text(4)]))},
        ValueError,
        "the entry 'b/c/0' of the observations .*a Text space.*FilterObservation",
    ),
    ({"action_mask": BITS}, ValueError, "expected at least one entry to observe"),
    (
        {"a": spaces.Discrete(2), "action_mask": spaces.MultiBinary(3)},
        EnvironmentFault,
        r"mask of shape \(3,\) in its observation space, expected \(4,\)",
    ),
    (
        {"a": spaces.Discrete(2), "action_mask": spaces.Discrete(4)},
        ValueError,
        "'action_mask' of the observations of Spaced is .* a Discrete space, expected a MultiB",
    ),
]


@pytest.mark.parametrize(("entries", "kind", "message"), BAD_SPACES)
def test_entries_that_do_not_fit_are_refused_by_name(entries, kind, message):
    with pytest.raises(kind, match=message):
        make_host_env(Spaced(**entries))


@pytest.mark.parametrize("source", SOURCES)
def test_masks_for_a_box_are_refused(source):
    env = Masked(source, space=spaces.Box(-1, 1, (4,)))
    with pytest.raises(ValueError, match=r"Masked .*mask.* Box, .*DiscretizeAction"):
        make_host_env(env, masks=True)
    if source != "entry":
        make_host_env(env)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda obs: obs.pop("step"), "without the entry 'step' of its observation space"),
        (lambda obs: obs.update(step=9), "the observation 'step' 9, expected an integer from 0"),
        (lambda obs: obs.update(place=np.zeros(2)), r"observation 'place' of shape \(2,\), but"),
        (lambda obs: obs["place"].fill(np.nan), "observation 'place' with NaN or infinite"),
    ],
)
def test_a_bad_entry_is_a_fault_that_names_it(change, message):
    class Bad(Masked):
        def step(self, action):
            obs, *rest = super().step(action)
            change(obs)
            return obs, *rest

    env = make_host_env(lambda: Bad("entry"), 2)
    env.reset()
    with pytest.raises(EnvironmentFault, match=rf"Bad .*{message}.*\(environment 0 of 2"):
        env.step(np.zeros(2, np.int64))


def test_every_kind_of_entry_arrives_and_a_dict_within_is_flattened():
    place = {
        "box": spaces.Box(0, 9, (2, 1), np.float64),
        "image": spaces.Box(0, 255, (2, 2, 1), np.uint8),
        "kind": spaces.Discrete(3, start=1),
        "kinds": spaces.MultiDiscrete([2, 3]),
        "inner": spaces.Dict(bits=BITS, deeper=spaces.Dict(scalar=spaces.Box(0, 9, ()))),
    }
    shown = {
        "box": np.array([[1.5], [2.0]]),
        "image": np.full((2, 2, 1), 200, np.uint8),
        "kind": 3,
        "kinds": np.array([1, 0]),
        "inner": {"bits": np.array([0, 1, 1, 0], np.int8), "deeper": {"scalar": np.float32(4)}},
    }
    expected = {
        "box": np.array([[1.5], [2.0]], np.float32),
        "image": np.full((2, 2, 1), 200, np.uint8),
        "kind": np.array([0, 0, 1], np.float32),
        "kinds": np.array([0, 1, 1, 0, 0], np.float32),
        "inner/bits": np.array([0, 1, 1, 0], np.float32),
        "inner/deeper/scalar": np.array([4], np.float32),
    }

    class Rich(Masked):  # a local class, so that the processes do not load this file
        def __init__(self):
            super().__init__("none")
            self.observation_space = spaces.Dict(**place)

        def shown(self, obs, over):
            return shown, {}

    for async_envs in (False, True):
        env = make_host_env(Rich, 2, async_envs=async_envs)
        for obs in (env.reset(), env.step(np.zeros(2, np.int64)).next_obs):
            assert obs.keys() == expected.keys() == env.spec.obs.keys()
            for key, value in expected.items():
                assert obs[key].dtype == value.dtype == env.spec.obs[key].dtype.name
                assert obs[key].flags.c_contiguous
                np.testing.assert_array_equal(obs[key], [value, value])
        env.close()


@pytest.mark.parametrize("mode", MODES, ids=str)
def test_where_time_ran_out_the_mask_is_the_one_that_the_environment_gives(mode):
    """Taxi gives one with every info: targets count on what may follow."""
    make = functools.partial(gymnasium.make, "Taxi-v4", max_episode_steps=3)
    vector = isinstance(mode, AutoresetMode)
    given = SyncVectorEnv([make] * 2, autoreset_mode=mode) if vector else make
    env = make_host_env(given, 2, seed=0, async_envs=mode == "processes", masks=True)
    env.reset()
    last = [env.step(np.zeros(2, np.int32)) for _ in range(3)][-1]
    states = np.argmax(last.next_obs["observation"], axis=1)
    expected = [make().unwrapped.action_mask(state) for state in states]
    assert last.truncated.all()
    np.testing.assert_array_equal(last.next_obs[ACTION_MASK], expected)
    env.close()
