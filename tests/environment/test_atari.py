"""Atari games: the preprocessing, its settings, and what the learner hears of them."""

import itertools

import gymnasium
import numpy as np
import pytest

from kytolly.environment.gym.adapter import make_host_env
from kytolly.environment.gym.atari import Atari, FrameStack, band
from kytolly.environment.gym.make import make_env, registered_spec
from kytolly.environment.gym.saved_state import restore_state, saved_state
from kytolly.environment.gym.wrapped import wrapped_source
from kytolly.environment.spec import Discrete

pytest.importorskip("ale_py")
PONG = "ALE/Pong-v5"


def game(name=PONG, **arguments):
    return make_env(registered_spec(name), **arguments)


def test_new_pixels_are_means_of_the_old_ones_by_area():
    # 3 pixels for 2: the middle one is shared, each new pixel covers 1.5 old ones
    np.testing.assert_allclose(band(3, 2), [[2 / 3, 1 / 3, 0], [0, 1 / 3, 2 / 3]])
    assert band(210, 84).shape == (2, 5) and band(160, 84).shape == (21, 40)
    np.testing.assert_allclose(band(160, 84).sum(axis=1), 1.0, rtol=1e-6)


@pytest.mark.parametrize("size", [84, 64])
def test_a_screen_is_the_mean_of_the_two_frames_maximum(size):
    """Against products with the whole matrices, from frames that are taken one by one."""
    env = game(noop_max=0, repeat_action_probability=0.0, screen_size=size)
    single = gymnasium.make(
        PONG, frameskip=1, obs_type="grayscale", repeat_action_probability=0.0
    ).unwrapped
    stacks = [env.reset(seed=1)[0]]
    single.reset(seed=1)

    def whole(old, new):
        pattern = band(old, new).astype(float)
        return np.kron(np.eye(old // pattern.shape[1]), pattern)

    for action in (2, 3, 0, 2, 2, 5) * 4:
        stacks.append(env.step(action)[0])
        frames = [single.step(action)[0] for _ in range(4)]
        seen = np.maximum(frames[2], frames[3]).astype(float)
        expected = whole(210, size) @ seen @ whole(160, size).T
        assert np.abs(stacks[-1][..., -1] - expected).max() <= 0.5001
    assert len({stack[..., -1].tobytes() for stack in stacks}) > 12, "nothing moved"
    for before, after in itertools.pairwise(stacks):
        np.testing.assert_array_equal(after[..., :-1], before[..., 1:])


def test_an_episode_begins_with_its_first_screen_four_times_after_frames_without_action():
    env = game(noop_max=30)
    waited = set()
    for seed in range(8):
        stack, _ = env.reset(seed=seed)
        for place in range(3):
            np.testing.assert_array_equal(stack[..., place], stack[..., 3])
        waited.add(env.ale.getEpisodeFrameNumber())
    assert len(waited) > 3 and max(waited) <= 30 and min(waited) >= 1


def test_the_learner_hears_of_the_stack_and_of_the_clipping_also_from_a_process():
    for name, clips in ((PONG, True), ("ALE/Breakout-v5", False)):
        source = wrapped_source(name, None if clips else {"clip_rewards": False}, ())
        for in_process in (False, True):
            env = make_host_env(source, 1, async_envs=in_process)
            assert env.spec.name == name
            assert (env.spec.frame_stack, env.spec.clips_rewards) == (4, clips)
            assert isinstance(env.spec.action, Discrete)
            env.close()


def test_without_preprocessing_the_game_is_gymnasiums():
    env = game(preprocess=False, obs_type="ram")
    assert env.observation_space.shape == (128,)
    assert make_host_env(lambda: game(preprocess=False), 1).spec.frame_stack == 0


@pytest.mark.parametrize(
    "arguments, words",
    [
        ({"repeat_action_probability": 2}, "is 2, expected a number from 0 to 1"),
        ({"repeat_action_probability": True}, "is True, expected a number from 0 to 1"),
        ({"full_action_space": "no"}, "is 'no', expected true or false"),
        ({"mode": 77}, r"got \{'mode': 77\}, expected one of the modes \[0, 1\]"),
    ],
)
def test_arguments_of_the_emulator_are_checked(arguments, words):
    with pytest.raises(ValueError, match=words):
        game(**arguments)


def test_a_life_ends_an_episode_only_where_agents_learn():
    arguments = {"terminal_on_life_loss": True, "noop_max": 0}
    source = wrapped_source("ALE/Breakout-v5", arguments, ())
    ends = {}
    for playing, make in ((False, source), (True, source.whole_games())):
        env = make()
        env.reset(seed=0)
        lives, ends[playing] = [], 0
        for step in range(700):
            _, _, terminated, truncated, info = env.step(1 if step % 20 == 0 else 3)
            lives.append(info["lives"])
            if terminated or truncated:
                ends[playing] += 1
                env.reset()
        assert min(lives) < 5
    assert ends[False] >= 5 * max(1, ends[True]) > 0


def test_a_saved_state_goes_on_as_the_game_did():
    env, other = game(), game()
    env.reset(seed=3)
    other.reset(seed=4)
    for action in (0, 2, 3, 2):
        env.step(action)
    restore_state(other, saved_state(env))
    for action in (2, 3, 3, 0, 2) * 20:
        found, expected = other.step(action), env.step(action)
        np.testing.assert_array_equal(found[0], expected[0])
        assert found[1:4] == expected[1:4]


@pytest.mark.parametrize(
    "arguments,message",
    [
        ({"frame_skip": 0}, "frame_skip of ALE/Pong-v5 is 0, expected a whole number from 1"),
        ({"clip_rewards": 1}, "clip_rewards of ALE/Pong-v5 is 1, expected true or false"),
        ({"frameskip": 2}, "Give frame_skip, or set preprocess to false"),
        ({"obs_type": "ram"}, "which the preprocessing decides. Set preprocess to false"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        game(**arguments)


@pytest.mark.parametrize("name", ["ALE/Pnog-v5", "Pong-v5", "ale/pong", "PongDeterministic-v9"])
def test_a_game_that_does_not_exist_gets_the_nearest_name(name):
    with pytest.raises(ValueError, match="Nearest names: ALE/Pong-v5"):
        registered_spec(name)


def test_a_missing_rom_is_told_with_the_command(monkeypatch, tmp_path):
    monkeypatch.setenv("ALE_ROMS_DIR", str(tmp_path))
    with pytest.raises(ValueError, match=r'pip install "kytolly\[atari\]" --force-reinstall'):
        game()


def test_the_space_says_what_it_is():
    env = game(frame_stack=2, screen_size=32)
    assert type(env) is Atari and type(env.observation_space) is FrameStack
    assert env.observation_space.shape == (32, 32, 2) and env.observation_space.frame_stack == 2
    assert env.observation_space.contains(env.reset(seed=0)[0])
