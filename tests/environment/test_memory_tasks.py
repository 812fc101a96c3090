"""Tasks that need memory: by hand, against Gymnasium's environments, and against `popgym`."""

import gymnasium
import numpy as np
import pytest
import tensorflow as tf

from kytolly.environment.check import check_environment
from kytolly.environment.gym.wrapped import wrapped_source
from kytolly.environment.registry import TENSOR_ENVIRONMENTS, tensor_environment
from kytolly.environment.spec import Discrete
from kytolly.environment.tensor.popgym import drawn_kind, without_card
from kytolly.environment.tensor.stepping import reset_all, step_and_reset
from kytolly.environment.tensor.t_maze import EAST, NORTH, SOUTH, WEST
from tests.environment.popgym_oracle import played

NAMES = [
    name
    for name in TENSOR_ENVIRONMENTS
    if "NoVel" in name or name.startswith(("popgym-", "kytolly/"))
]
CARD_GAMES = {"RepeatPrevious": 4}  # and kinds of cards
LEVELS = "Easy", "Medium", "Hard"


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
        for one, other in zip(first_reward_and_obs(uniform[member]), together, strict=True):
            np.testing.assert_allclose(other[member], one, rtol=1e-6)


@pytest.mark.parametrize(
    ("name", "hidden"),
    [
        ("CartPoleNoVel-v1", [1, 3]),
        ("PendulumNoVel-v1", [2]),
        ("MountainCarContinuousNoVel-v0", [1]),
    ],
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


@pytest.mark.parametrize(("level", "steps"), zip(LEVELS, (200, 400, 600), strict=True))
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
    seen, rewards, ends = played(env, dealt[:, None, None], answers[:, None], 4)
    np.testing.assert_array_equal(seen[:, 0], np.eye(4)[dealt])
    np.testing.assert_allclose(rewards[:6, 0], [0, 0, 0, 1 / 48, 1 / 48, -1 / 48])
    np.testing.assert_allclose(rewards.sum(), 46 / 48, rtol=1e-5)
    assert list(np.flatnonzero(ends)) == [50]  # 51 steps: the reset deals the first of 52 cards


def answers_and_guesses(right, actions, rng):
    """Actions [T, E], of which seven in ten are the right ones [T, E]."""
    return np.where(rng.random(right.shape) < 0.7, right, rng.integers(0, actions, right.shape))


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("title", CARD_GAMES)
def test_card_games_are_those_of_the_package(title, level):
    pytest.importorskip("popgym")
    name, kinds, num_games = f"popgym-{title}{level}-v0", CARD_GAMES[title], 4
    env, rng = tensor_environment(name), np.random.default_rng(5)
    records = [record(gymnasium.make(name).unwrapped, rng, seed) for seed in range(num_games)]
    dealt, actions, obs, rewards, ends = (
        np.stack(columns, axis=1) for columns in zip(*records, strict=True)
    )
    (_, encoding), *_ = env.spec.encodings
    ours = played(env, dealt, actions, kinds)
    np.testing.assert_array_equal(ours[0], encoding.one_hot(obs))
    np.testing.assert_allclose(ours[1], rewards, rtol=1e-6)
    np.testing.assert_array_equal(ours[2], ends)
    assert (rewards > 0).mean() > 0.2 and (rewards < 0).any() and np.all(ends.sum(axis=0) == 1)


def record(game, rng, seed):
    """Cards dealt, actions, observations, rewards and ends of an episode of the package's game."""
    obs, _ = game.reset(seed=seed)
    decks, kinds_of, right_answer = decks_of(game)
    orders = [kinds_of[deck.idx[::-1]] for deck in decks]  # they are dealt from the end
    seen, actions, rewards, ended = [obs], [], [], []
    while not (ended and ended[-1]):
        guess = rng.integers(game.action_space.n)
        action = right_answer(orders, len(actions)) if rng.random() < 0.7 else guess
        obs, reward, terminated, _, _ = game.step(int(action))
        for column, value in zip(
            (seen, actions, rewards, ended), (obs, action, reward, terminated), strict=True
        ):
            column.append(value)
    dealt = np.full((len(seen), len(orders)), -1)
    for column, order in zip(dealt.T, orders, strict=True):
        column[: len(order)] = order[: len(seen)]
    return dealt, *map(np.array, (actions, seen, rewards, ended))


def decks_of(game):
    """The decks of the package's game, the kinds that count, and the right answer by step."""
    title = type(game).__name__
    if title.startswith("RepeatPrevious"):
        return [game.deck], game.deck.suits_idx, lambda orders, t: orders[0][max(0, t + 1 - game.k)]
    raise AssertionError(title)


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
