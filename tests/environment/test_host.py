import functools
import os
import sys

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from kytolly.environment.faults import EnvironmentFault
from kytolly.environment.gym.adapter import make_host_env
from kytolly.environment.gym.sequential import SequentialEnvs
from kytolly.environment.gym.step import HostStep
from kytolly.environment.gym.vector import HostVector
from kytolly.environment.spec import Discrete
from kytolly.environment.tensor.cartpole import CartPole
from tests.environment.predictable import Predictable, vector

NUM_ENVS, STEPS = 3, 25


OneArray = functools.partial(Predictable, one_array=True)
SOURCES = {
    "separate": (lambda: Predictable, False),
    "separate, one array": (lambda: OneArray, False),
    "vector factory": (lambda: lambda: vector(AutoresetMode.SAME_STEP), False),
    "SAME_STEP": (lambda: vector(AutoresetMode.SAME_STEP), False),
    "NEXT_STEP": (lambda: vector(AutoresetMode.NEXT_STEP), False),
    "DISABLED": (lambda: vector(AutoresetMode.DISABLED), False),
    "SAME_STEP, one buffer": (lambda: vector(AutoresetMode.SAME_STEP, copy=False), False),
    "NEXT_STEP, one buffer": (lambda: vector(AutoresetMode.NEXT_STEP, copy=False), False),
    "DISABLED, one buffer": (lambda: vector(AutoresetMode.DISABLED, copy=False), False),
    "processes": (lambda: OneArray, True),
}


@pytest.fixture(params=SOURCES, scope="module")
def source(request):
    return request.param


@functools.cache
def play(source):
    """`STEPS` steps with known actions: first observations, actions, and the steps."""
    make, async_envs = SOURCES[source]
    env = make_host_env(make(), NUM_ENVS, seed=11, async_envs=async_envs)
    first = env.reset()
    actions = np.random.default_rng(0).integers(env.spec.num_actions, size=(STEPS, NUM_ENVS))
    steps = [env.step(action) for action in actions]
    env.close()
    return first, actions, steps


def test_every_row_is_the_transition_that_the_environment_made(source):
    obs, actions, steps = play(source)
    seeds = np.random.SeedSequence(11).generate_state(NUM_ENVS)
    np.testing.assert_array_equal(obs, [[seed % 1000, 0, 0] for seed in seeds])
    place = [[0, 0] for _ in range(NUM_ENVS)]  # episode and step of each environment
    terminations = truncations = 0
    for action, step in zip(actions, steps, strict=True):
        assert isinstance(step, HostStep)
        assert step.obs.dtype == step.next_obs.dtype == step.reward.dtype == np.float32
        for env in range(NUM_ENVS):
            if not step.valid[env]:
                continue
            episode, count = place[env]
            name = seeds[env] % 1000
            length = 2 + (name + episode) % 3
            over, even = count + 1 == length, episode % 2 == 0
            assert list(obs[env]) == [name, episode, count]
            assert list(step.next_obs[env]) == [name, episode, count + 1]
            assert step.reward[env] == 100 * episode + 10 * count + action[env]
            assert (step.terminated[env], step.truncated[env]) == (over and even, over > even)
            assert step.ended[env] == over
            terminations, truncations = terminations + (over and even), truncations + (over > even)
            place[env] = [episode + 1, 0] if over else [episode, count + 1]
        obs = step.obs
    assert terminations > 5 and truncations > 5


def test_dummy_steps_occur_only_with_next_step_and_are_marked(source):
    _, _, steps = play(source)
    valid, ended = (
        np.array([getattr(step, name) for step in steps]) for name in HostStep._fields[5:7]
    )
    if source.startswith("NEXT_STEP"):
        # the step after an end, and no other, is a dummy; it ends nothing and pays nothing
        np.testing.assert_array_equal(~valid[1:], ended[:-1])
        assert valid[0].all() and not ended[~valid].any()
        assert not any(step.reward[~step.valid].any() for step in steps)
    else:
        assert valid.all()


def test_episode_statistics_are_those_of_the_episode_that_ended(source):
    _, _, steps = play(source)
    sums, lengths = np.zeros(NUM_ENVS), np.zeros(NUM_ENVS)
    for step in steps:
        sums, lengths = sums + step.reward, lengths + step.valid
        np.testing.assert_array_equal(step.episode_return[step.ended], sums[step.ended])
        np.testing.assert_array_equal(step.episode_length[step.ended], lengths[step.ended])
        sums, lengths = np.where(step.ended, 0, sums), np.where(step.ended, 0, lengths)
    assert lengths.max() > 0


def test_only_the_first_reset_seeds(source):
    make, async_envs = SOURCES[source]
    env = make_host_env(make(), NUM_ENVS, seed=11, async_envs=async_envs)
    assert env.has_dummy_steps == source.startswith("NEXT_STEP")
    first, second = env.reset(), env.reset()
    env.close()
    np.testing.assert_array_equal(second - first, [[0, 1, 0]] * NUM_ENVS)  # the next episode


class Careless(SyncVectorEnv):
    """Pays for its dummy steps and calls them terminations, which Gymnasium's own never does."""

    def step(self, actions):
        dummy = self._autoreset_envs.copy()
        obs, reward, terminated, truncated, info = super().step(actions)
        return obs, reward + 7.0 * dummy, terminated | dummy, truncated | dummy, info


def test_a_dummy_step_counts_for_nothing_whatever_it_returns():
    env = make_host_env(Careless([lambda: Predictable(length=2)]), seed=0)
    env.reset()
    steps = [env.step(np.array([1])) for _ in range(6)]
    assert [bool(step.valid[0]) for step in steps] == [True, True, False, True, True, False]
    assert [float(step.reward[0]) for step in steps] == [1, 11, 0, 101, 111, 0]
    assert [bool(step.ended[0]) for step in steps] == [False, True, False, False, True, False]
    assert [float(step.episode_return[0]) for step in steps if step.ended[0]] == [12, 212]


def test_the_first_observation_follows_the_end_at_once_except_with_next_step(source):
    _, _, steps = play(source)
    for step in steps:
        for env in np.flatnonzero(step.ended):
            name, episode, _ = step.next_obs[env]
            first = [name, episode + 1, 0]
            stays = list(step.next_obs[env])
            assert list(step.obs[env]) == (stays if source.startswith("NEXT_STEP") else first)


def test_earlier_steps_are_not_overwritten_by_later_ones(source):
    make, async_envs = SOURCES[source]
    env = make_host_env(make(), NUM_ENVS, seed=11, async_envs=async_envs)
    first = env.reset()
    kept = [(first, first.copy())]
    for _ in range(10):
        step = env.step(np.ones(NUM_ENVS, np.int64))
        kept += [(column, column.copy()) for column in step]
    env.close()
    for column, before in kept:
        np.testing.assert_array_equal(column, before)


def test_seeds_repeat_a_run_differ_between_environments_and_runs_and_count_only_once():
    def two_resets(seed, num_envs):
        env = make_host_env("CartPole-v1", num_envs, seed=seed)
        return env.reset(), env.reset()

    first, second = two_resets(3, 4)
    np.testing.assert_array_equal(first, two_resets(3, 4)[0])
    np.testing.assert_array_equal(second, two_resets(3, 4)[1])
    np.testing.assert_array_equal(first[:2], two_resets(3, 2)[0])
    assert len(np.unique(np.concatenate([first, second, two_resets(4, 4)[0]]), axis=0)) == 12


@pytest.mark.parametrize(
    "make",
    [
        lambda: Predictable,
        lambda: OneArray,
        lambda: "CartPole-v1",
        lambda: "Pendulum-v1",
        lambda: lambda: gymnasium.make("CartPole-v1", max_episode_steps=3),
    ],
)
def test_one_environment_steps_as_the_first_of_several(make):
    one, several = make_host_env(make(), 1, seed=11), make_host_env(make(), 3, seed=11)
    np.testing.assert_array_equal(one.reset(), several.reset()[:1])
    rng, discrete = np.random.default_rng(0), isinstance(one.spec.action, Discrete)
    for _ in range(210):
        action = rng.integers(2, size=3) if discrete else rng.uniform(-2, 2, (3, 1))
        for single, first in zip(one.step(action[:1]), several.step(action), strict=True):
            assert single.dtype == first.dtype
            np.testing.assert_array_equal(single, first[:1])


@pytest.mark.parametrize("num_envs", [1, 2])
def test_a_reward_that_is_an_array_overwritten_at_every_step_is_read_at_every_step(num_envs):
    class Paying(Predictable):
        pay = np.zeros(())

        def step(self, action):
            obs, reward, *rest = super().step(action)
            self.pay[...] = reward
            return obs, self.pay, *rest

    env = make_host_env(lambda: Paying(length=9), num_envs)
    env.reset()
    rewards = [env.step(np.zeros(num_envs, np.int64)).reward[0] for _ in range(3)]
    assert rewards == [0, 10, 20]


def test_an_id_is_stepped_exactly_as_gymnasium_steps_it_time_limit_included():
    env = make_host_env("MountainCar-v0", 1, seed=5)
    theirs = gymnasium.make("MountainCar-v0")
    seed = int(np.random.SeedSequence(5).generate_state(1)[0])
    obs, (their_obs, _) = env.reset(), theirs.reset(seed=seed)
    np.testing.assert_array_equal(obs[0], their_obs)
    actions = np.random.default_rng(1).integers(3, size=450)
    ends = []
    for index, action in enumerate(actions):
        step = env.step(np.array([action]))
        their_obs, reward, terminated, truncated, _ = theirs.step(action)
        np.testing.assert_array_equal(step.next_obs[0], their_obs)
        assert (step.reward[0], step.terminated[0], step.truncated[0]) == (
            reward,
            terminated,
            truncated,
        )
        if terminated or truncated:
            ends.append((index, step.episode_length[0], step.episode_return[0]))
            their_obs, _ = theirs.reset()
        np.testing.assert_array_equal(step.obs[0], their_obs)
    assert ends == [(199, 200, -200.0), (399, 200, -200.0)]
    assert env.spec[0] == "MountainCar-v0"
    assert (env.spec.max_episode_steps, env.spec.reward_threshold) == (200, -110.0)


@pytest.mark.parametrize(
    "make",
    [
        lambda: gymnasium.make("CartPole-v1", max_episode_steps=7),
        lambda: lambda: gymnasium.make("CartPole-v1", max_episode_steps=7),
    ],
    ids=["instance", "factory"],
)
def test_a_time_limit_of_the_users_own_holds(make):
    env = make_host_env(make(), seed=0)
    env.reset()
    steps = [env.step(np.array([index % 2])) for index in range(14)]
    assert [bool(step.truncated[0]) for step in steps] == ([False] * 6 + [True]) * 2
    assert env.spec.max_episode_steps == 7


@pytest.mark.parametrize(
    ("source", "num_envs", "adapter", "count"),
    [
        (lambda: "CartPole-v1", None, SequentialEnvs, 1),
        (lambda: "CartPole-v1", 5, SequentialEnvs, 5),
        (lambda: Predictable(), None, SequentialEnvs, 1),
        (lambda: Predictable(), 1, SequentialEnvs, 1),
        (lambda: Predictable, 2, SequentialEnvs, 2),
        (lambda: vector(AutoresetMode.NEXT_STEP), None, HostVector, NUM_ENVS),
        (lambda: lambda: gymnasium.make_vec("CartPole-v1", 4), 4, HostVector, 4),
    ],
)
def test_every_source_of_environments(source, num_envs, adapter, count):
    env = make_host_env(source(), num_envs, seed=0)
    assert isinstance(env, adapter) and env.num_envs == count
    assert env.reset().shape == (count, *env.spec.obs.shape)
    assert env.step(np.zeros(count, np.int64)).obs.shape == (count, *env.spec.obs.shape)


def test_gymnasiums_own_vector_of_cartpoles_ends_by_falling_and_takes_a_single_seed():
    env = make_host_env(gymnasium.make_vec("CartPole-v1", 2), seed=1)
    np.testing.assert_array_equal(
        env.reset(), make_host_env(gymnasium.make_vec("CartPole-v1", 2), seed=1).reset()
    )
    steps = [env.step(np.ones(2, np.int64)) for _ in range(40)]
    assert sum(step.ended.sum() for step in steps) >= 6
    fallen = np.concatenate([step.next_obs[step.ended] for step in steps])
    assert np.all(np.abs(fallen[:, 2]) > np.radians(12))
    assert all(np.all(step.valid | (np.abs(step.obs) <= 0.05).all(axis=1)) for step in steps)


@pytest.mark.parametrize(
    ("source", "async_envs"),
    [
        (lambda: "CartPole-v1", False),
        (lambda: "CartPole-v1", True),
        (lambda: gymnasium.make("CartPole-v1"), False),
        (lambda: lambda: gymnasium.make("CartPole-v1"), True),
        (lambda: gymnasium.make_vec("CartPole-v1"), False),
        (lambda: vector(AutoresetMode.NEXT_STEP, lambda: gymnasium.make("CartPole-v1"), 1), False),
    ],
)
def test_the_registered_limit_and_threshold_are_known_however_it_was_made(source, async_envs):
    env = make_host_env(source(), async_envs=async_envs)
    assert (env.spec.name, *env.spec[2:5]) == ("CartPole-v1", Discrete(2), 500, 475.0)
    env.close()


def test_close_ends_what_was_made_here_and_leaves_what_was_given():
    closed = []

    class Closing(Predictable):
        def close(self):
            closed.append(self)

    make_host_env(Closing, 2).close()
    assert len(closed) == 2
    make_host_env(Closing()).close()
    make_host_env(vector(AutoresetMode.SAME_STEP, Closing)).close()
    assert len(closed) == 2


def test_the_environments_of_processes_are_not_made_in_this_one_and_are_closed(tmp_path):
    ours = os.getpid()

    class Counted(Predictable):
        def __init__(self):
            super().__init__()
            assert os.getpid() != ours
            (tmp_path / f"made{os.getpid()}").touch()

        def close(self):
            (tmp_path / f"closed{os.getpid()}").touch()

    make_host_env(Counted, 1, async_envs=True).close()
    names = [path.name for path in tmp_path.iterdir()]
    made = {name.removeprefix("made") for name in names if name.startswith("made")}
    assert len(made) == 2  # one shows its spaces, the other one would step
    assert made == {name.removeprefix("closed") for name in names if name.startswith("closed")}


def test_processes_of_their_own_do_not_load_tensorflow():
    class Reporting(Predictable):
        def observed(self):
            return np.full(3, "tensorflow" in sys.modules, np.float32)

        def action_masks(self):  # so that the process loads what handles masks, too
            return np.ones(4, np.int8)

    env = make_host_env(Reporting, 1, async_envs=True, masks=True)
    np.testing.assert_array_equal(env.reset()["observation"], [[0, 0, 0]])
    env.close()
    assert "tensorflow" in sys.modules


class TwoSame:
    def __init__(self):
        self.env = Predictable()

    def __call__(self):
        return self.env


BAD_ARGUMENTS = [
    (lambda: 3, {}, "env is 3, a int; expected a Gymnasium id"),
    (lambda: CartPole(), {}, "CartPole-v1 is written in tensor code"),
    (lambda: "CartPole-v1", {"num_envs": 0}, "num_envs is 0, expected an integer of at least 1"),
    (lambda: Predictable(), {"num_envs": 2}, "num_envs is 2, but Predictable is one .*=lambda"),
    (lambda: Predictable(), {"async_envs": True}, "async_envs needs .* What works: a function"),
    (
        lambda: vector(AutoresetMode.NEXT_STEP),
        {"num_envs": 4},
        "num_envs is 4, .* SyncVectorEnv has 3 environments. What works: num_envs=3",
    ),
    (lambda: TwoSame(), {"num_envs": 2}, "returned the same Predictable twice"),
    (lambda: lambda: "CartPole-v1", {}, "returned 'CartPole-v1', a str; expected a gymnasium.Env"),
    (lambda: "CartPol-v1", {}, "unknown environment 'CartPol-v1'. Nearest names: CartPole-v1"),
    (lambda: "LunarLander-v2", {}, "Nearest names: .*LunarLander-v3"),
    (lambda: "MinAtar/Freewy-v1", {}, "Nearest names: MinAtar/Freeway-v1"),
    (lambda: "Xyzzy", {}, "unknown environment 'Xyzzy'. No name is similar"),
    (
        lambda: "gymnasium:Xyzzy",
        {},
        r"similar\. The module gymnasium registers none of that name\.$",
    ),
    (lambda: "no_such_package:Env-v0", {}, r"neither no_such_package\.py in /.*, nor an inst"),
]


@pytest.mark.parametrize(("source", "arguments", "message"), BAD_ARGUMENTS)
def test_arguments_that_do_not_fit_are_refused_with_what_would_work(source, arguments, message):
    with pytest.raises(ValueError, match=message):
        make_host_env(source(), **arguments)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "Maze",
            r"has Maze: register .* gymnasium.register\('Maze-v0', 'ownmod:Maze'\), and give "
            r"'ownmod:Maze-v0'\.$",
        ),
        ("Maze-v3", "has Maze: register it there"),
        ("House-v0", r"of that name\. It registers OwnField-v0, OwnHouse-v1\.$"),
    ],
)
def test_a_module_that_does_not_register_the_id(name, message, tmp_path, monkeypatch):
    (tmp_path / "ownmod.py").write_text(
        "import gymnasium\nclass Maze(gymnasium.Env): pass\nclass House(Maze): pass\n"
        "for id in ('OwnField-v0', 'OwnHouse-v1'): gymnasium.register(id, 'ownmod:House')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    sys.modules.pop("ownmod", None)
    monkeypatch.setattr(gymnasium.envs.registration, "registry", dict(gymnasium.registry))
    monkeypatch.setattr(gymnasium, "registry", gymnasium.envs.registration.registry)
    with pytest.raises(ValueError, match=message):
        make_host_env(f"ownmod:{name}")


def test_a_part_of_a_package_that_may_register_the_id_is_named(tmp_path, monkeypatch):
    for path in ("ownpackage/__init__.py", "ownpackage/envs/__init__.py"):
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).touch()
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ValueError, match=r"Perhaps its part does: 'ownpackage\.envs:Far-v0'\.$"):
        make_host_env("ownpackage:Far-v0")


def test_a_missing_package_is_named_with_how_to_install_it():
    def needs_box2d():
        raise gymnasium.error.DependencyNotInstalled("Box2D is not installed")

    def silent():
        raise AssertionError

    def needs_module():
        import a_package_that_nobody_wrote  # noqa: F401

    spec = gymnasium.spec("CartPole-v1")
    gymnasium.register("test/Box2D-v0", entry_point=needs_box2d)
    gymnasium.register("test/Module-v0", entry_point=needs_module)
    try:
        with pytest.raises(ValueError, match=r"test/Box2D-v0 needs a package .* Box2D is not inst"):
            make_host_env("test/Box2D-v0")
        with pytest.raises(ValueError, match="Install the one that has the module a_pack"):
            make_host_env("test/Module-v0")
        gymnasium.registry["test/Box2D-v0"].entry_point = spec.entry_point + "Missing"
        with pytest.raises(EnvironmentFault, match="test/Box2D-v0 cannot be made, AttributeError"):
            make_host_env("test/Box2D-v0")
        gymnasium.registry["test/Box2D-v0"].entry_point = spec.entry_point
        gymnasium.registry["test/Box2D-v0"].kwargs = {"use_lidr": False}
        with pytest.raises(EnvironmentFault, match=r"argument 'use_lidr'.* given as --env-kw"):
            make_host_env("test/Box2D-v0")
        gymnasium.registry["test/Box2D-v0"].kwargs = {}
        gymnasium.registry["test/Box2D-v0"].entry_point = silent
        with pytest.raises(
            EnvironmentFault, match=r"AssertionError\(\) \(.*test_host.py, line \d+"
        ):
            make_host_env("test/Box2D-v0")
    finally:
        for name in ("test/Box2D-v0", "test/Module-v0"):
            gymnasium.registry.pop(name)


def test_stepping_before_reset_and_wrong_numbers_of_actions_are_refused(source):
    make, async_envs = SOURCES[source]
    env = make_host_env(make(), NUM_ENVS, async_envs=async_envs)
    with pytest.raises(ValueError, match=r"was stepped before reset\(\)"):
        env.step(np.zeros(NUM_ENVS, np.int64))
    env.reset()
    with pytest.raises(ValueError, match=f"got 2 actions for {NUM_ENVS} environments"):
        env.step(np.zeros(2, np.int64))
    env.close()
