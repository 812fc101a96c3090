"""Tasks that need memory: by hand, against Gymnasium's environments, and against `popgym`."""

import subprocess
import sys

import gymnasium
import numpy as np
import pytest
import tensorflow as tf

from kytolly.environment.check import check_environment
from kytolly.environment.gym.adapter import make_host_env
from kytolly.environment.gym.make import make_env, registered_spec
from kytolly.environment.gym.spaces import observation_form
from kytolly.environment.gym.wrapped import wrapped_source
from kytolly.environment.registry import TENSOR_ENVIRONMENTS, tensor_environment
from kytolly.environment.spec import Discrete
from kytolly.environment.tensor.popgym import drawn_kind, without_card
from kytolly.environment.tensor.stepping import reset_all, step_and_reset
from kytolly.environment.tensor.t_maze import EAST, NORTH, SOUTH, WEST
from tests.environment.popgym_oracle import joined, played, recorded

NAMES = [
    name
    for name in TENSOR_ENVIRONMENTS
    if "NoVel" in name or name.startswith(("popgym-", "kytolly/"))
]


@pytest.mark.parametrize("name", NAMES)
def test_each_task_is_an_environment_that_many_agents_can_map(name):
    env = tensor_environment(name)
    check_environment(env)
    rng = np.random.default_rng(1)
    uniform = tf.constant(rng.random((2, 3, env.reset_uniforms + env.step_uniforms)), tf.float32)

    def first_reward_and_obs(uniform):
        state = env.reset(uniform[:, : env.reset_uniforms])
        is_discrete = isinstance(env.spec.action, Discrete)
        action = tf.zeros([3], tf.int32) if is_discrete else tf.ones([3, 1])
        state, reward, _ = env.step(state, action, uniform[:, env.reset_uniforms :])
        return reward, env.observe(state)

    together = tf.vectorized_map(first_reward_and_obs, uniform, fallback_to_while_loop=False)
    for member in range(2):
        alone = tf.nest.flatten(first_reward_and_obs(uniform[member]))
        for one, other in zip(alone, tf.nest.flatten(together), strict=True):
            np.testing.assert_allclose(other[member], one, rtol=1e-6)


HIDDEN = {
    "CartPoleNoVel-v1": [1, 3],
    "PendulumNoVel-v1": [2],
    "MountainCarContinuousNoVel-v0": [1],
}


@pytest.mark.parametrize(
    ("name", "hidden"),
    HIDDEN.items(),
)
def test_a_task_without_velocities_is_the_task_but_for_what_it_shows(name, hidden):
    env, plain = tensor_environment(name), tensor_environment(name.replace("NoVel", ""))
    assert env.spec._replace(name="") == plain.spec._replace(name="")
    draws = tf.constant(np.random.default_rng(0).random((5, env.reset_uniforms)), tf.float32)
    state = plain.reset(draws)
    action = tf.constant([1, 0, 1, 0, 1]) if "Cart" in name[:4] else tf.fill([5, 1], 0.7)
    ours, theirs = (each.step(state, action, tf.zeros([5, 0])) for each in (env, plain))
    for one, other in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(one, other)
    state, *_ = theirs
    shown = plain.observe(state).numpy()
    assert np.all(shown[:, hidden] != 0.0)
    shown[:, hidden] = 0.0
    np.testing.assert_array_equal(env.observe(state), shown)


@pytest.mark.parametrize(("name", "hidden"), HIDDEN.items())
def test_gymnasiums_task_without_velocities_is_the_task_too(name, hidden):
    usual = name.replace("NoVel", "")
    ours = make_env(registered_spec(name), render_mode="rgb_array")
    theirs = gymnasium.make(usual)
    spec = make_host_env(name).spec
    assert spec._replace(name=usual) == make_host_env(usual).spec
    assert spec.obs == tensor_environment(name).spec.obs
    obs, plain = (env.reset(seed=3)[0] for env in (ours, theirs))
    theirs.action_space.seed(0)
    for _ in range(5):
        shown = plain.copy()  # it may be the environment's own state
        shown[hidden] = 0.0
        np.testing.assert_array_equal(obs, shown)
        action = theirs.action_space.sample()
        (obs, *outcome, _), (plain, *expected, _) = (env.step(action) for env in (ours, theirs))
        assert outcome == expected
    assert ours.render().ndim == 3
    ours.close()


@pytest.mark.parametrize(("level", "steps"), [("Easy", 200), ("Medium", 400), ("Hard", 600)])
def test_position_only_cartpole_pays_one_for_an_episode_that_lasts(level, steps):
    env = tensor_environment(f"popgym-PositionOnlyCartPole{level}-v0")
    assert env.spec.max_episode_steps == steps
    state = tf.constant([[0.1, 0.2, 0.03, 0.4], [0.0, 0.0, 0.2094, 1.0]])
    after, reward, fallen = env.step(state, tf.constant([1, 1]), tf.zeros([2, 0]))
    np.testing.assert_array_equal(env.observe(state), state.numpy()[:, [0, 2]])
    np.testing.assert_array_equal(
        after,
        tensor_environment("CartPole-v1").step(state, tf.constant([1, 1]), tf.zeros([2, 0]))[0],
    )
    np.testing.assert_allclose(reward, [1 / steps, 1 / steps])
    np.testing.assert_array_equal(fallen, [False, True])


def test_cards_are_drawn_as_from_a_shuffled_deck():
    rng, num_games = np.random.default_rng(0), 20_000
    cards = tf.fill([num_games, 4], 13)
    order = []
    for _ in range(52):
        order.append(drawn_kind(cards, tf.constant(rng.random(num_games), tf.float32)).numpy())
        cards = without_card(cards, order[-1])
    np.testing.assert_array_equal(cards, np.zeros((num_games, 4)))
    order = np.array(order)
    # Of a shuffled deck, two neighbors have one suit with probability 12 / 51, wherever they lie.
    for t in (0, 25, 50):
        np.testing.assert_allclose((order[t] == order[t + 1]).mean(), 12 / 51, atol=0.012)
        np.testing.assert_allclose(np.bincount(order[t]) / num_games, 0.25, atol=0.012)


def test_the_highest_draw_takes_the_last_card_there_is():
    highest = tf.constant([np.nextafter(np.float32(1.0), np.float32(0.0))] * 3)
    cards = tf.constant([[39, 39, 39, 39], [1, 0, 0, 0], [0, 3, 5, 0]])
    np.testing.assert_array_equal(drawn_kind(cards, highest), [3, 0, 2])
    np.testing.assert_array_equal(drawn_kind(cards, tf.zeros([3])), [0, 0, 1])


def test_repeat_previous_asks_for_the_suit_of_three_steps_ago():
    env = tensor_environment("popgym-RepeatPreviousEasy-v0")
    dealt = np.array([0, 1, 2, 3, 3, 0] + [0] * 11 + [1] * 12 + [2] * 12 + [3] * 11)
    assert np.all(np.bincount(dealt) == 13)
    # Three cards are seen before any question; then those of steps 0, 1, 2, 3 ... are asked for.
    answers = np.concatenate([[3, 3, 3], dealt[:48]])
    answers[5] = 0  # the wrong one: it was 2
    seen, rewards, ends = played(env, dealt[:, None, None], answers[:, None])
    np.testing.assert_array_equal(seen[:, 0], np.eye(4)[dealt])
    np.testing.assert_allclose(rewards[:6, 0], [0, 0, 0, 1 / 48, 1 / 48, -1 / 48])
    np.testing.assert_allclose(rewards.sum(), 46 / 48, rtol=1e-5)
    assert list(np.flatnonzero(ends)) == [50]  # 51 steps: the reset deals the first of 52 cards


def test_autoencode_asks_for_the_deck_from_its_last_card_to_its_first():
    env = tensor_environment("popgym-AutoencodeEasy-v0")
    dealt = np.array([2, 1, 0, 3] + [0] * 12 + [1] * 12 + [2] * 12 + [3] * 12)
    answers = np.concatenate([np.zeros(51, int), dealt[::-1]])
    answers[52] = 1  # the wrong one: it was 3
    every = np.concatenate([dealt, np.full(52, -1)])
    seen, rewards, ends = played(env, every[:, None, None], answers[:, None])
    # Each step shows the newest card, while cards are left (1), or that the deck is empty (0).
    dealing = [1] * 51 + [0] * 53
    np.testing.assert_array_equal(seen[:, 0, :2], np.eye(2)[dealing])
    np.testing.assert_array_equal(seen[:, 0, 2:], np.eye(4)[[*dealt, *[0] * 52]])
    assert not rewards[:51].any()
    np.testing.assert_allclose(rewards[51:54, 0], [1 / 52, -1 / 52, 1 / 52])
    np.testing.assert_allclose(rewards.sum(), 50 / 52, rtol=1e-5)
    assert list(np.flatnonzero(ends)) == [102]  # 51 cards after the first one, and 52 answers


def test_count_recall_counts_the_newest_card_too():
    env = tensor_environment("popgym-CountRecallEasy-v0")
    colors = np.array([1, 1, 0, 1] + [0] * 25 + [1] * 23)
    questions = np.array([1, 0, 0, 1] + [1] * 24 + [0] * 24)
    counts = [np.count_nonzero(colors[: t + 1] == questions[t]) for t in range(51)]
    assert counts[:4] == [1, 0, 1, 3]
    answers = np.array(counts)
    answers[3] = 2  # the count before the newest card
    dealt = np.stack([colors, questions], axis=1)[:, None]
    seen, rewards, ends = played(env, dealt, answers[:, None])
    np.testing.assert_array_equal(
        seen[:4, 0], [[0, 1, 0, 1], [0, 1, 1, 0], [1, 0, 1, 0], [0, 1] * 2]
    )
    np.testing.assert_allclose(rewards[:4, 0], np.array([1, 1, 1, -1]) / 51)
    np.testing.assert_allclose(rewards.sum(), 49 / 51, rtol=1e-5)
    assert list(np.flatnonzero(ends)) == [50]
    assert env.spec.action.count == 27  # none to all 26 of a color


def test_higher_lower_pays_for_the_direction_and_nothing_for_equal_ranks():
    env = tensor_environment("popgym-HigherLowerEasy-v0")
    first = [5, 7, 7, 12, 0]
    ranks = np.array(first + [r for r in range(13) for _ in range(4 - first.count(r))])
    actions = np.zeros(51, int)  # higher, but for one
    actions[2] = 1
    seen, rewards, ends = played(env, ranks[:, None, None], actions[:, None])
    np.testing.assert_array_equal(seen[:, 0], np.eye(13)[ranks])
    np.testing.assert_allclose(rewards[:4, 0], np.array([1, 0, -1, -1]) / 52)
    assert list(np.flatnonzero(ends)) == [50]


@pytest.mark.parametrize("level", ["Easy", "Medium", "Hard"])
@pytest.mark.parametrize("title", ["Autoencode", "CountRecall", "HigherLower", "RepeatPrevious"])
def test_card_games_are_those_of_the_package(title, level):
    pytest.importorskip("popgym")
    name, rng = f"popgym-{title}{level}-v0", np.random.default_rng(5)
    env, game = tensor_environment(name), gymnasium.make(name).unwrapped
    records = [recorded(game, seed, rng) for seed in range(4)]
    dealt, actions, obs, rewards, ends = (
        np.stack(columns, axis=1) for columns in zip(*records, strict=True)
    )
    ours = played(env, dealt, actions)
    form = observation_form(game.observation_space, name, env.spec.action)
    assert (form.spec, form.encodings) == (env.spec.obs, env.spec.encodings)
    flat = (
        form.agent_view(form.encode(tuple(one) if isinstance(form.spec, dict) else one))
        for one in obs.reshape(-1, *obs.shape[2:])
    )
    expected = np.stack([joined(one) for one in flat]).reshape(ours[0].shape)
    np.testing.assert_array_equal(ours[0], expected)
    np.testing.assert_allclose(ours[1], rewards, rtol=1e-6)
    np.testing.assert_array_equal(ours[2], ends)
    assert env.spec.action.count == game.action_space.n
    assert (rewards > 0).mean() > 0.2 and (rewards < 0).any()


@pytest.mark.parametrize("level", ["Easy", "Medium", "Hard"])
def test_position_only_cartpole_is_the_packages(level):
    pytest.importorskip("popgym")
    name, rng = f"popgym-PositionOnlyCartPole{level}-v0", np.random.default_rng(2)
    env, game = tensor_environment(name), gymnasium.make(name).unwrapped
    game.reset(seed=0)
    rows = []
    for _ in range(300):
        game.state, game.steps_beyond_terminated = rng.uniform(-1, 1, 4) * [2.4, 3, 0.2, 3], None
        before, action = np.array(game.state), int(rng.integers(2))
        rows.append((before, action, *game.step(action)[:3]))
    before, actions, obs, rewards, ends = map(np.array, zip(*rows, strict=True))
    state, reward, ended = env.step(
        tf.constant(before, tf.float32), tf.constant(actions, tf.int32), tf.zeros([300, 0])
    )
    np.testing.assert_allclose(env.observe(state), obs, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(reward, rewards, rtol=1e-6)
    np.testing.assert_array_equal(ended, ends)
    assert ends.any() and not ends.all()
    game.reset(seed=0)
    assert game.max_episode_length == env.spec.max_episode_steps


def test_an_id_of_the_package_is_found_without_importing_it():
    pytest.importorskip("popgym")
    code = "from kytolly.environment.gym.make import registered_spec as find; import sys; "
    code += "print('popgym' in sys.modules, find('popgym-HigherLowerHard-v0').entry_point)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.split() == ["False", "popgym.envs.higher_lower:HigherLowerHard"]


def walk(env, moves, north):
    """Observations, rewards and ends of one walk."""
    state = env.reset(tf.constant([[0.4 if north else 0.6]]))
    seen, rewards, ends = [env.observe(state)[0].numpy().tolist()], [], []
    for move in moves:
        state, reward, ended = env.step(state, tf.constant([move]), tf.zeros([1, 0]))
        seen.append(env.observe(state)[0].numpy().tolist())
        rewards.append(round(float(reward[0]), 6))
        ends.append(bool(ended[0]))
    return seen, rewards, ends


@pytest.mark.parametrize("north", [True, False])
def test_the_t_maze_shows_its_sign_at_the_entrance_and_pays_at_the_junction(north):
    env = tensor_environment("kytolly/TMaze-v0", length=2)
    sign, way, junction = [0, 1, 1] if north else [1, 1, 0], [1, 0, 1], [0, 1, 0]
    moves = [NORTH, WEST, EAST, SOUTH, WEST, EAST, EAST, EAST, WEST, EAST, NORTH]
    seen, rewards, ends = walk(env, moves, north)
    after = [sign, sign, way, way, sign, way, junction, junction, way, junction]
    assert seen[:-1] == [sign, *after]
    goal = 4.0 if north else -0.1
    assert rewards == [-0.1, -0.1, 0.0, -0.1, 0.0, 0.0, 0.0, -0.1, 0.0, 0.0, goal]
    assert ends == [False] * 10 + [True]
    assert env.spec.max_episode_steps == 30


def test_the_passive_t_maze_pays_for_the_straight_way_and_for_memory():
    env = tensor_environment("kytolly/PassiveTMaze-v0", length=4)
    seen, rewards, ends = walk(env, [EAST] * 4 + [SOUTH], north=False)
    assert seen[:-1] == [[0, -1], [0, 0], [0, 0], [0, 0], [1, 0]]
    assert rewards == [0, 0, 0, 0, 1] and ends == [False] * 4 + [True]
    assert walk(env, [EAST] * 4 + [NORTH], north=False)[1] == [0, 0, 0, 0, 0]
    # Behind from the second step on; back at the entrance the sign is gone.
    seen, rewards, ends = walk(env, [EAST, WEST, EAST, EAST, EAST], north=True)
    assert seen[0] == [0, 1] and seen[2] == [0, 0]
    assert rewards == [0, -0.25, -0.25, -0.25, 0] and ends[-1]


def test_a_new_maze_begins_at_its_entrance_with_a_new_sign():
    env = tensor_environment("kytolly/PassiveTMaze-v0", length=1)
    state, obs = reset_all(env, tf.constant([[0.1], [0.9]]))
    np.testing.assert_array_equal(obs, [[0, 1], [0, -1]])
    for uniform in ([[0.9], [0.2]], [[0.8], [0.2]]):
        state, step = step_and_reset(env, state, tf.constant([EAST, EAST]), tf.constant(uniform))
    np.testing.assert_array_equal(step.ended, [True, True])
    np.testing.assert_array_equal(step.obs, [[0, -1], [0, 1]])


@pytest.mark.parametrize("value", [0, -3, 2.5, True, 10**7, "ten"])
def test_a_length_that_is_none_is_refused(value):
    with pytest.raises(ValueError, match=r"length is .* from 1 to 1,000,000"):
        tensor_environment("kytolly/TMaze-v0", length=value)


def test_the_length_of_a_maze_is_an_argument_of_its_environment():
    env = wrapped_source("kytolly/PassiveTMaze-v0", {"length": 7}, [])
    assert env.spec.max_episode_steps == 8
    with pytest.raises(ValueError, match="no argument size, expected some of length"):
        wrapped_source("kytolly/PassiveTMaze-v0", {"size": 7}, [])
    with pytest.raises(ValueError, match="tensor code alone"):
        wrapped_source(
            "kytolly/TMaze-v0", {"length": 7}, ["gymnasium.wrappers:TimeAwareObservation"]
        )
