"""MinAtar in tensor code: against the package `minatar`, and by hand."""

import importlib.util

import numpy as np
import pytest
import tensorflow as tf

from kytolly import DQNConfig
from kytolly.environment.check import check_environment
from kytolly.environment.gym.make import registered_spec
from kytolly.environment.registry import tensor_environment
from kytolly.environment.tensor.minatar import enemies
from kytolly.model.nature_cnn import GridCNN
from kytolly.trainer import Trainer
from tests.environment.minatar_oracle import NAMES, first_difference, recording, repetition
from tests.environment.minatar_players import PLAYERS

needs_minatar = pytest.mark.skipif(
    importlib.util.find_spec("minatar") is None, reason="pip install --no-deps minatar"
)


def at_random(rng, obs):
    return int(rng.integers(6))


@needs_minatar
@pytest.mark.parametrize("name", NAMES)
def test_20_000_steps_of_each_of_two_players_are_those_of_the_package(name):
    repeat = repetition(tensor_environment(f"MinAtar/{name}-v0"))
    for choose in (PLAYERS[name], at_random):
        theirs, *what = recording(name, 20_000, choose)
        assert first_difference(theirs, repeat(*what)) is None
        assert theirs.reward.sum() > 0 and theirs.ended.sum() > 5


def row(*columns):
    return sum(1 << column for column in columns)


def one_brick():
    bricks = np.zeros((10, 10))
    bricks[3, [2, 7]] = 1
    return {"brick_map": bricks}, {"bricks": tf.constant([row(22, 27)])}


def one_low_alien():
    aliens = np.zeros((10, 10))
    aliens[6, 4] = 1
    board = np.zeros((1, 10), np.int32)
    board[0, 6] = row(4)
    return {"alien_map": aliens, "enemy_move_interval": 7}, {"aliens": board, "move_steps": [7]}


def fast_and_full():
    theirs = {"e_spawn_speed": 1, "e_spawn_timer": 1, "move_speed": 2, "diver_count": 6}
    theirs |= {"ramp_index": 22, "sub_y": 1, "surface": False, "d_spawn_timer": 0}
    ours = {"enemy_steps": 1, "enemy_timer": 1, "move_timer": 2, "crew": 6}
    ours |= {"ramp_index": 22, "y": 1, "surfaced": False, "diver_timer": 0}
    return theirs, {key: [value] for key, value in ours.items()}


@needs_minatar
@pytest.mark.parametrize(
    ("name", "start", "most"),
    [
        ("Breakout", one_brick, 3),
        ("SpaceInvaders", one_low_alien, 2),
        ("Seaquest", fast_and_full, 10),
    ],
)
def test_steps_from_rare_states_are_those_of_the_package(name, start, most):
    repeat, (theirs_start, ours_start) = (
        repetition(tensor_environment(f"MinAtar/{name}-v0")),
        start(),
    )

    def change(state):
        game = state.game._asdict()
        new = {key: tf.constant(ours_start[key], game[key].dtype) for key in ours_start}
        return state._replace(game=state.game._replace(**new))

    returns = []
    for seed in range(60):
        begin = {k: v.copy() if isinstance(v, np.ndarray) else v for k, v in theirs_start.items()}
        theirs, *what = recording(name, 120, PLAYERS[name], seed, begin)
        assert (seed, first_difference(theirs, repeat(*what, change))) == (seed, None)
        returns.append(theirs.reward[: 1 + theirs.ended.argmax()].sum())
    assert max(returns) >= most  # a second wall or wave was begun, a full crew was paid for


@needs_minatar
@pytest.mark.parametrize("name", NAMES)
def test_observations_and_minimal_actions_are_the_packages(name):
    from minatar import Environment

    theirs = Environment(NAMES[name])
    env = tensor_environment(f"MinAtar/{name}-v1")
    assert list(env.spec.obs.shape) == theirs.state_shape() and env.spec.obs.dtype == tf.bool
    assert list(env.actions) == theirs.minimal_action_set()
    assert len(env.channels) == len(theirs.env.channels)


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize("name", NAMES)
def test_the_registered_games_are_environments_of_grids(name, version):
    env = tensor_environment(f"MinAtar/{name}-v{version}")
    check_environment(env)
    assert env.spec.name == f"MinAtar/{name}-v{version}" and env.spec.grids == ("",)
    assert env.spec.num_actions == (6 if version == 0 else len(env.used_actions))


def test_of_an_unknown_game_the_message_speaks_of_no_other_package():
    with pytest.raises(ValueError, match=r"Nearest names: MinAtar/Seaquest-v1, .*\.$") as found:
        registered_spec("MinAtar/Seaqest-v1")
    assert "package" not in str(found.value)


def short_game(name, actions, reset=0.5, uniform=0.99, **options):
    """The environment, its states after each action, rewards and ends, of one game."""
    env = tensor_environment(name, **options)
    state, states, rewards, ends = env.reset(tf.fill([1, env.reset_uniforms], reset)), [], [], []
    for action in actions:
        draws = tf.fill([1, env.step_uniforms], uniform)
        state, reward, ended = env.step(state, tf.constant([action]), draws)
        states, rewards = [*states, state], [*rewards, float(reward[0])]
        ends.append(bool(ended[0]))
    return env, states, rewards, ends


def test_breakouts_ball_breaks_a_brick_and_is_lost_past_the_paddle():
    # From (0, 3) to the right and down: after six steps it would meet row 9 in column 6.
    env, states, rewards, ends = short_game("MinAtar/Breakout-v0", [3, 3, 0, 0, 0, 0, 0], reset=0.0)
    ball = [(int(s.game.x[0]), int(s.game.y[0])) for s in states]
    # The paddle stands in column 6: the ball turns round in both directions a row above it.
    assert ball == [(1, 4), (2, 5), (3, 6), (4, 7), (5, 8), (6, 8), (5, 7)]
    assert rewards == [0.0] * 7 and not any(ends)
    board = env.observe(states[0])[0].numpy()
    assert np.argwhere(board[:, :, 0]).tolist() == [[9, 5]]
    assert np.argwhere(board[:, :, 2]).tolist() == [[3, 0]]  # the trail
    assert board[1:4, :, 3].all() and board[:, :, 3].sum() == 30
    _, states, rewards, ends = short_game("MinAtar/Breakout-v0", [1] * 6, reset=0.0)
    assert ends == [False] * 5 + [True]
    # Sent back from column 6, it meets a brick of row 3 after five more steps, at (1, 3).
    _, states, rewards, _ = short_game("MinAtar/Breakout-v0", [3, 3] + [0] * 9, reset=0.0)
    assert rewards == [0.0] * 10 + [1.0] and int(states[-1].game.bricks[0]) == 2**30 - 1 - 2**21


def test_each_of_the_hundred_fields_is_seen_where_it_is():
    env = tensor_environment("MinAtar/Breakout-v0")
    state = env.reset(tf.zeros([100, env.reset_uniforms]))
    x, y = tf.range(100) % 10, tf.range(100) // 10
    boards = env.observe(state._replace(game=state.game._replace(x=x, y=y)))
    assert boards.shape == (100, 10, 10, 4) and boards.dtype == tf.bool
    ball = boards[..., 1].numpy().reshape(100, 100)
    assert np.array_equal(ball, np.eye(100, dtype=bool))


def test_freeways_chicken_walks_every_third_step_and_an_episode_has_2_501():
    # Every car drives to the left at speed 1 and is in column 4 only when the chicken is elsewhere.
    env, states, *_ = short_game("MinAtar/Freeway-v0", [2] * 8, reset=0.0)
    assert [int(s.game.chicken[0]) for s in states] == [9, 9, 9, 8, 8, 8, 7, 7]
    assert np.argwhere(env.observe(states[0])[0, :, :, 1].numpy()).tolist() == [
        [lane, 0] for lane in range(1, 9)
    ]
    state = states[-1]._replace(game=states[-1].game._replace(time_left=tf.constant([0])))
    *_, ended = env.step(state, tf.constant([0]), tf.fill([1, env.step_uniforms], 0.5))
    assert bool(ended[0]) and int(states[0].game.time_left[0]) == 2_499
    crossing = state.game._replace(chicken=tf.constant([1]), walk_timer=tf.constant([0]))
    _, reward, _ = env.step(state._replace(game=crossing), tf.constant([2]), tf.fill([1, 3], 0.5))
    assert float(reward[0]) == 1.0


def test_asterixs_gold_pays_and_an_enemy_ends_the_episode():
    env = tensor_environment("MinAtar/Asterix-v0")
    state = env.reset(tf.zeros([2, 0]))
    # Something one column to the left of the player, at (5, 5), moves to the right now.
    things = tf.tensor_scatter_nd_update(state.game.things, [[0, 4], [1, 4]], [16, 16])
    game = state.game._replace(
        things=things,
        right=things > 0,
        gold=tf.constant([[True] * 8, [False] * 8]),
        move_timer=tf.zeros([2], tf.int32),
    )
    after, reward, ended = env.step(
        state._replace(game=game), tf.constant([0, 0]), tf.fill([2, 4], 0.9)
    )
    np.testing.assert_array_equal(reward, [1.0, 0.0])
    np.testing.assert_array_equal(ended, [False, True])
    np.testing.assert_array_equal(after.game.things[:, 4], [0, 32])


def test_space_invaders_of_two_equally_near_columns_the_left_shoots():
    env = tensor_environment("MinAtar/SpaceInvaders-v0")
    state = env.reset(tf.zeros([1, 0]))
    aliens = np.zeros((1, 10), np.int32)
    aliens[0, 1], aliens[0, 2] = row(3, 7), row(3)
    game = state.game._replace(aliens=tf.constant(aliens), alien_shot_timer=tf.constant([0]))
    after, *_ = env.step(state._replace(game=game), tf.constant([5]), tf.fill([1, 1], 0.9))
    bombs, bullets = after.game.bombs.numpy()[0], after.game.bullets.numpy()[0]
    assert np.flatnonzero(bombs).tolist() == [2] and bombs[2] == row(3)
    assert np.flatnonzero(bullets).tolist() == [8] and bullets[8] == row(5)


def test_seaquests_six_divers_pay_by_the_oxygen_and_leave_minus_one():
    env = tensor_environment("MinAtar/Seaquest-v0")
    state = env.reset(tf.zeros([3, 0]))
    game = state.game._replace(
        y=tf.constant([1, 1, 1]),
        surfaced=tf.constant([False] * 3),
        oxygen=tf.constant([119, 119, 119]),
        crew=tf.constant([6, 3, 0]),
    )
    after, reward, ended = env.step(
        state._replace(game=game), tf.constant([2] * 3), tf.fill([3, 6], 0.9)
    )
    np.testing.assert_array_equal(reward, [5.0, 0.0, 0.0])  # 119 * 10 // 200
    np.testing.assert_array_equal(after.game.crew, [-1, 2, 0])
    np.testing.assert_array_equal(after.game.oxygen, [200, 200, 119])
    np.testing.assert_array_equal(after.game.enemy_steps, [19, 19, 20])
    np.testing.assert_array_equal(ended, [False, False, True])


def test_of_enemies_in_one_column_the_oldest_is_hit_and_moves():
    board = tf.constant([[0, row(3)] + [0] * 8])
    timed = enemies.with_timer(board, tf.constant([0])) | enemies.with_timer(
        board, tf.constant([2])
    )
    left = enemies.without_oldest(timed, board)
    np.testing.assert_array_equal(left, enemies.with_timer(board, tf.constant([2])))
    # One that shoots in nine steps came two steps before one that shoots in 11, that is in 0.
    shots = enemies.Shots(tf.cast(board, tf.uint64), tf.cast(board, tf.uint64) * 2**30)
    moving = enemies.shots_of_oldest(shots, board)
    np.testing.assert_array_equal(moving.low, tf.zeros_like(shots.low))
    np.testing.assert_array_equal(moving.high, shots.high)
    left = enemies.shots_without_oldest(shots, board)
    np.testing.assert_array_equal(left.low, shots.low)
    np.testing.assert_array_equal(left.high, tf.zeros_like(shots.high))


def test_a_sticky_action_is_the_one_before_and_survives_a_reset():
    env, states, *_ = short_game("MinAtar/Breakout-v1", [2, 1], uniform=0.05)
    assert [int(s.last_action[0]) for s in states] == [0, 0]  # both draws stick to nothing
    env, states, *_ = short_game("MinAtar/Breakout-v1", [2, 1], uniform=0.05, sticky_actions=0.0)
    assert [int(s.last_action[0]) for s in states] == [3, 1]  # of the six: right, left
    fresh = env.reset_after(states[0], tf.fill([1, 1], 0.5))
    assert int(fresh.last_action[0]) == 3 and int(fresh.game.paddle[0]) == 4


def test_variants_have_a_time_limit_and_no_ramping_and_refuse_what_is_no_probability():
    env = tensor_environment("MinAtar/Asterix-v1", max_episode_steps=1000, difficulty_ramping=False)
    assert env.spec.max_episode_steps == 1000 and env.spec.num_actions == 5
    state = env.reset(tf.zeros([1, 0]))
    state = state._replace(game=state.game._replace(ramp_timer=tf.constant([-1])))
    after, *_ = env.step(state, tf.constant([0]), tf.fill([1, 4], 0.9))
    assert int(after.game.spawn_steps[0]) == 10
    bad = [("sticky_actions", 1.5), ("sticky_actions", True), ("difficulty_ramping", "no"),
           ("max_episode_steps", -3), ("minimal_actions", 5)]  # fmt: skip
    for name, value in bad:
        with pytest.raises(ValueError, match=rf"{name} of a MinAtar game is {value!r}, expected"):
            tensor_environment("MinAtar/Asterix-v0", **{name: value})


def test_dqn_trains_on_a_variant_with_the_network_for_grids(tmp_path):
    cfg = DQNConfig(
        total_env_steps=200,
        num_envs=2,
        warmup_env_steps=64,
        batch_size=16,
        xla=False,
        seed=1,
        env_kwargs={"sticky_actions": 0.0, "max_episode_steps": 9},
    )
    result = Trainer(log_dir=tmp_path / "run").train_dqn(cfg, env="MinAtar/Breakout-v1")
    layers = result.agent.policy.network._flatten_layers()
    assert any(isinstance(layer, GridCNN) for layer in layers)
    again = Trainer().evaluate(result.run_dir, episodes=3)
    assert again.length_mean <= 9
    with pytest.raises(ValueError, match="MinAtar/Breakout-v1 has no argument sticky, expected"):
        tensor_environment("MinAtar/Breakout-v1", sticky=0.0)
