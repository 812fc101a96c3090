"""Saved states: an environment goes on exactly where it was, and what cannot be saved is named."""

import collections
import json
import threading

import gymnasium
import numpy as np
import pytest

from kytolly.environment.gym.saved_state import NotSavable, restore_state, saved_state

WRAPPERS = gymnasium.wrappers


def wrapped_cartpole():
    env = WRAPPERS.RecordEpisodeStatistics(gymnasium.make("CartPole-v1"))
    env = WRAPPERS.FrameStackObservation(env, 3)
    return WRAPPERS.NormalizeReward(WRAPPERS.NormalizeObservation(env))


MAKERS = {
    "CartPole-v1": lambda: gymnasium.make("CartPole-v1"),
    "Acrobot-v1": lambda: gymnasium.make("Acrobot-v1"),
    "Pendulum-v1": lambda: gymnasium.make("Pendulum-v1"),
    "MountainCar-v0": lambda: gymnasium.make("MountainCar-v0"),
    "Blackjack-v1": lambda: gymnasium.make("Blackjack-v1"),
    "FrozenLake-v1": lambda: gymnasium.make("FrozenLake-v1"),
    "wrapped CartPole": wrapped_cartpole,
    "vector of tensors": lambda: gymnasium.make_vec("CartPole-v1", 3),
    "sync vector": lambda: gymnasium.make_vec("Acrobot-v1", 2, vectorization_mode="sync"),
}


def play(env, actions):
    """All that an environment returns for the actions, with resets where episodes end."""
    outcomes = []
    for action in actions:
        obs, reward, terminated, truncated, _ = env.step(action)
        outcomes.append((obs, reward, terminated, truncated))
        if not isinstance(env, gymnasium.vector.VectorEnv) and (terminated or truncated):
            outcomes.append((env.reset()[0], 0.0, False, False))
    return outcomes


def assert_equal(found, expected):
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        for left, right in zip(one, other, strict=True):
            np.testing.assert_array_equal(left, right)


def assert_goes_on_where_it_was(make):
    env, other = make(), make()
    env.reset(seed=3)
    env.action_space.seed(0)
    play(env, [env.action_space.sample() for _ in range(57)])
    state = json.dumps(saved_state(env))
    actions = [env.action_space.sample() for _ in range(150)]
    expected = play(env, actions)
    restore_state(other, json.loads(state))  # never reset: as in a new process
    assert_equal(play(other, actions), expected)
    restore_state(other, json.loads(state))  # in the middle of another episode
    assert_equal(play(other, actions), expected)
    return other, state


@pytest.mark.parametrize("name", MAKERS)
def test_an_environment_goes_on_where_it_was(name):
    other, state = assert_goes_on_where_it_was(MAKERS[name])
    restore_state(other, json.loads(state))
    assert json.dumps(saved_state(other)) == state


class Holder(gymnasium.Env):
    """An environment that holds one thing."""

    def __init__(self, thing):
        self.thing = thing


class ListOfOwn(list):
    pass


ROW = np.zeros(4)
SHARED = [ROW, ROW[1:3]]  # restored apart, one would not see what is written into the other


@pytest.mark.parametrize(
    "thing",
    [
        SHARED,
        threading.Lock(),
        iter([1]),
        (x for x in [1]),
        np.array([object()]),
        ListOfOwn([1]),
        open,
    ],
    ids=["views", "lock", "iterator", "generator", "objects", "subclass", "function"],
)
def test_what_is_no_plain_data_is_named(thing):
    if thing is open:  # a function is no state
        assert saved_state(Holder(thing))
        return
    with pytest.raises(NotSavable, match=r"Holder\.thing(\[1\])? is"):
        saved_state(Holder(thing))


def test_shared_objects_stay_shared():
    row = [1, 2]
    env = Holder({"rows": (row, row), "last": collections.deque([row], 2), 3: {4.5, "x"}})
    env.self = env
    other = Holder(None)
    restore_state(other, json.loads(json.dumps(saved_state(env))))
    rows = other.thing["rows"]
    assert rows == (row, row) and rows[0] is rows[1] is other.thing["last"][0]
    assert other.thing["last"].maxlen == 2 and other.thing[3] == {4.5, "x"} and other.self is other


class OwnState(gymnasium.Env):
    """An environment whose state nobody else can read."""

    def __init__(self):
        self.lock, self.count = threading.Lock(), 0

    def get_state(self):
        return {"count": self.count, "table": np.arange(3)}

    def set_state(self, state):
        self.count = state["count"] + int(state["table"].sum())


def test_an_environment_may_save_itself():
    env, other = OwnState(), OwnState()
    env.count = 5
    restore_state(other, json.loads(json.dumps(saved_state(env))))
    assert other.count == 8


def test_a_state_of_another_environment_is_refused():
    state = saved_state(gymnasium.make("CartPole-v1"))
    with pytest.raises(NotSavable, match=r"AcrobotEnv, and the saved state is of a .*CartPoleEnv"):
        restore_state(gymnasium.make("Acrobot-v1"), state)


@pytest.mark.parametrize(
    ("package", "name"),
    [("mujoco", "Ant-v5"), ("ale_py", "ALE/Breakout-v5")],
)
def test_physics_and_atari_games_go_on_where_they_were(package, name):
    module = pytest.importorskip(package)
    if package == "ale_py":
        gymnasium.register_envs(module)
    assert_goes_on_where_it_was(lambda: gymnasium.make(name))
