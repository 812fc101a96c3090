"""Saved states: an environment goes on exactly where it was, and what cannot be saved is named."""

import collections
import enum
import json
import threading

import gymnasium
import numpy as np
import pytest

from kytolly.environment.gym.adapter import make_host_env
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


@pytest.mark.parametrize(
    ("num_envs", "restart", "old"),
    [
        (1, False, "separate.SingleEnv"),
        (2, False, "separate.SeparateEnvs"),
        (2, True, "restarting.RestartingEnvs"),
    ],
)
def test_environments_of_an_earlier_version_go_on_where_they_were(num_envs, restart, old):
    def make():
        return make_host_env("CartPole-v1", num_envs, restart=restart)

    env, other = make(), make()
    env.reset()
    env.step(np.ones(num_envs, np.int64))
    state = json.dumps(saved_state(env))
    name = f"kytolly.environment.gym.{type(env).__module__.rpartition('.')[2]}.{type(env).__name__}"
    assert name in state
    other.reset()
    restore_state(other, json.loads(state.replace(name, f"kytolly.environment.gym.{old}")))
    steps = [each.step(np.zeros(num_envs, np.int64)) for each in (env, other)]
    np.testing.assert_array_equal(steps[0].obs, steps[1].obs)


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
        np.zeros(2, [("x", "f4"), ("y", "i8")]),
        np.ma.masked_array([1, 2], [True, False]),
        ListOfOwn([1]),
        open,
    ],
    ids=[
        "views",
        "lock",
        "iterator",
        "generator",
        "objects",
        "fields",
        "masked",
        "list",
        "function",
    ],
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


class Color(enum.Enum):
    RED = "red"
    GREEN = "green"


class Ball:
    """Something of which an environment holds a varying number."""

    def __init__(self, place):
        self.place, self.color = place, Color.GREEN


def test_objects_that_are_not_there_are_made_anew():
    env, other = Holder([Ball(1), Ball(2)]), Holder([])
    env.first, env.color, other.first, other.color = env.thing[0], Color.GREEN, None, None
    state = json.loads(json.dumps(saved_state(env)))
    restore_state(other, state)
    assert [ball.place for ball in other.thing] == [1, 2] and type(other.thing[1]) is Ball
    assert other.first is other.thing[0] and other.color is other.first.color is Color.GREEN
    restore_state(other, json.loads(json.dumps(saved_state(Holder([Ball(3)])))))
    assert [ball.place for ball in other.thing] == [3]


@pytest.mark.parametrize(
    "kind", ["tempfile.TemporaryDirectory", "json.decoder.JSONDecoder", "OwnState", "Holder"]
)
def test_a_file_cannot_name_any_other_class(kind):
    """Neither one of a module that the environment has no object of, nor an environment."""
    state = saved_state(Holder([Ball(1)]))
    text, own = json.dumps(state), f"{Ball.__module__}."
    wanted = kind if "." in kind else own + kind
    with pytest.raises(NotSavable, match=rf"thing\[0\] is a builtins.NoneType.* {wanted}"):
        restore_state(Holder([]), json.loads(text.replace(f"{own}Ball", wanted)))


def test_a_counter_that_is_not_there_is_no_plain_dict():
    env, other = Holder(collections.Counter("aab")), Holder(collections.Counter())
    restore_state(other, json.loads(json.dumps(saved_state(env))))
    assert other.thing == {"a": 2, "b": 1} and other.thing["c"] == 0
    with pytest.raises(NotSavable, match=r"thing is a builtins.NoneType, .* collections.Counter"):
        restore_state(Holder(None), json.loads(json.dumps(saved_state(env))))


def test_each_part_of_a_space_goes_on_drawing():
    parts = {"a": gymnasium.spaces.Discrete(1_000), "b": gymnasium.spaces.Box(-1, 1, (3,))}
    env, other = (
        Holder(gymnasium.spaces.Tuple([gymnasium.spaces.Dict(parts), parts["a"]])) for _ in range(2)
    )
    env.thing.seed(1)
    env.thing.sample()
    state = json.loads(json.dumps(saved_state(env)))
    expected = [str(env.thing.sample()) for _ in range(3)]
    restore_state(other, state)
    assert [str(other.thing.sample()) for _ in range(3)] == expected


def test_an_array_keeps_the_order_of_its_numbers_in_memory():
    table = np.arange(6.0).reshape(2, 3)
    other = Holder(None)
    restore_state(other, json.loads(json.dumps(saved_state(Holder(table.T.copy("F"))))))
    np.testing.assert_array_equal(other.thing, table.T)
    assert other.thing.flags.f_contiguous and other.thing.flags.writeable


class OwnState(gymnasium.Env):
    """An environment whose state nobody else can read."""

    def __init__(self):
        self.lock, self.count = threading.Lock(), 0

    def get_state(self):
        return {"count": self.count, "table": np.arange(3)}

    def set_state(self, state):
        self.count = state["count"] + int(state["table"].sum())


def test_what_only_a_method_holds_is_saved():
    env, other = (Holder(np.random.default_rng(seed).random) for seed in (1, 2))
    env.step = env.thing.__self__.integers
    other.step = other.thing.__self__.integers
    restore_state(other, json.loads(json.dumps(saved_state(env))))
    assert [other.thing(), other.step(9)] == [env.thing(), env.step(9)]


def test_an_environment_may_save_itself():
    env, other = OwnState(), OwnState()
    env.count = 5
    restore_state(other, json.loads(json.dumps(saved_state(env))))
    assert other.count == 8


@pytest.mark.parametrize("count", [1, 2, 4])
def test_a_state_of_another_number_of_environments_is_refused(count):
    env, other = make_host_env("CartPole-v1", 3), make_host_env("CartPole-v1", count)
    env.reset()
    other.reset()
    with pytest.raises(NotSavable):
        restore_state(other, json.loads(json.dumps(saved_state(env))))
    assert other.reset().shape == (count, 4)
    assert other.step(np.zeros(count, np.int64)).valid.all()


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


def test_what_stands_behind_a_physics_model_keeps_its_place():
    def make():
        env = gymnasium.make("CartPole-v1")
        model = type("MjModel", (), {"__module__": "mujoco._structs"})()
        env.unwrapped.__dict__ = {"model": model, "again": model, **vars(env.unwrapped)}
        env.unwrapped.twin = env.unwrapped.action_space
        return env

    restored, _ = assert_goes_on_where_it_was(make)
    assert restored.unwrapped.twin is restored.unwrapped.action_space
