import contextlib
import re
import sys
import types

import gymnasium
import imageio_ffmpeg
import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from kytolly.deployment.rendered import Episode, frames_per_second, make_rendered, play_episodes
from kytolly.deployment.video import record_video
from kytolly.environment.faults import EnvironmentFault
from kytolly.environment.spec import Discrete, EnvSpec
from tests.deployment.pixels import Pixels, pixel_agent
from tests.environment.masked import Masked, mask_at

# Two episodes: each is drawn before its first step and after every step, also the last one.
COLORS = [(40, 20 * step, 100) for step in range(4)] + [(80, 20 * step, 100) for step in range(5)]
# (1 + 2 + 3) + 3 x action 1, and (1 + 2 + 3 + 4) + 4
EPISODES = [Episode(9.0, 3), Episode(14.0, 4)]


def test_a_gif_shows_every_step_of_every_episode_in_its_color(tmp_path):
    seen = []
    played = record_video(
        pixel_agent(),
        Pixels("rgb_array"),
        tmp_path / "a.gif",
        2,
        watch=lambda frames, episode: seen.append((frames, episode)),
    )
    assert played == EPISODES
    assert seen[4] == (4, EPISODES[0]) and seen[-1] == (9, EPISODES[1])
    with Image.open(tmp_path / "a.gif") as gif:
        assert (gif.n_frames, gif.size) == (9, (16, 15))
        for index, color in enumerate(COLORS):
            gif.seek(index)
            assert gif.info["duration"] == 40  # ms: 25 frames in a second
            found = np.asarray(gif.convert("RGB"))
            np.testing.assert_allclose(found, np.broadcast_to(color, found.shape), atol=4)
    assert [path.name for path in tmp_path.iterdir()] == ["a.gif"]


def test_an_mp4_has_the_frames_and_the_speed_that_was_asked_for(tmp_path):
    path = tmp_path / "a.MP4"
    record_video(pixel_agent(), Pixels("rgb_array"), path, 2, fps=12.5)
    frames = imageio_ffmpeg.read_frames(str(path))
    facts = next(frames)
    assert (facts["codec"], facts["fps"], facts["source_size"]) == ("h264", 12.5, (16, 16))
    colors = [np.frombuffer(frame, np.uint8).reshape(16, 16, 3)[:15] for frame in frames]
    assert len(colors) == 9
    for frame, color in zip(colors, COLORS, strict=True):
        np.testing.assert_allclose(frame.mean((0, 1)), color, atol=6)


def test_a_gif_shows_no_more_frames_than_browsers_do(tmp_path):
    record_video(pixel_agent(), Pixels("rgb_array"), tmp_path / "a.gif", 2, fps=100)
    with Image.open(tmp_path / "a.gif") as gif:
        assert gif.info["duration"] == 20 and 4 <= gif.n_frames <= 6  # 9 frames in 0.09 s


def failing(frame, steps):
    raise RuntimeError("no OpenGL here")


@pytest.mark.parametrize(
    "drawn, words",
    [
        (lambda frame, steps: frame[: 15 - steps], r"shape (14, 16, 3) after frames of shape (15,"),
        (lambda frame, steps: frame / 255, "float64 of shape (15, 16, 3)' from render(), expected"),
        (lambda frame, steps: None if steps == 0 else frame, "'None' from render(), expected"),
        (failing, "raised RuntimeError in render(): no OpenGL here. A machine without a display"),
    ],
)
def test_what_is_no_frame_is_refused_and_no_file_stays(drawn, words, tmp_path):
    with pytest.raises(EnvironmentFault, match=re.escape(words)):
        record_video(pixel_agent(), Pixels("rgb_array", drawn), tmp_path / "a.gif", 1)
    assert not list(tmp_path.iterdir())


def test_an_agent_of_another_environment_is_refused(tmp_path):
    other = pixel_agent()
    other.env_spec = other.env_spec._replace(action=Discrete(3))
    with pytest.raises(ValueError, match="expected those of P, which trained this agent"):
        record_video(other, Pixels("rgb_array"), tmp_path / "a.gif", 1)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("source", ["info", "method"])
def test_a_masked_agent_sees_the_masks(source):
    seen = []

    def act(obs):
        seen.append((obs["observation"][0], obs["action_mask"][0]))
        return np.argmax(obs["action_mask"], axis=-1)

    entries = {
        "action_mask": tf.TensorSpec([4], tf.bool),
        "observation": tf.TensorSpec([3], tf.float32),
    }
    agent = types.SimpleNamespace(
        host_action=act,
        obs_spec=entries,
        env_spec=EnvSpec("Masked", entries, Discrete(4)),
        env_name="M",
    )
    list(play_episodes(agent, Masked(source), 2, 3, lambda: None))
    assert len(seen) > 3
    for obs, mask in seen:
        np.testing.assert_array_equal(mask, mask_at(obs))


@pytest.mark.parametrize(
    "found, fps", [(50, 50), (np.float64(12.5), 12.5), (None, 30), (0, 30), ("60", 30), (True, 30)]
)
def test_the_speed_is_that_of_the_environment(found, fps):
    env = Pixels()
    env.metadata = {"render_fps": found}
    assert frames_per_second(env) == fps


def test_an_environment_is_made_for_frames(monkeypatch):
    with contextlib.closing(make_rendered("CartPole-v1", "rgb_array")) as env:
        env.reset(seed=0)
        assert env.render_mode == "rgb_array" and np.shape(env.render()) == (400, 600, 3)
    monkeypatch.setitem(sys.modules, "pygame", None)
    with pytest.raises(ValueError, match=r'pip install "kytolly\[video\]"'):
        make_rendered("CartPole-v1", "rgb_array")


def test_an_environment_that_cannot_show_says_what_it_can(monkeypatch):
    known = gymnasium.envs.registration.EnvSpec("Pixels-v0", Pixels)
    monkeypatch.setitem(gymnasium.registry, "Pixels-v0", known)
    monkeypatch.setattr(Pixels, "metadata", {"render_modes": ["ansi", "depth_array"]})
    with pytest.raises(ValueError, match="render modes ansi, depth_array, expected rgb_array"):
        make_rendered("Pixels-v0", "rgb_array")
    monkeypatch.setattr(Pixels, "metadata", {})
    with pytest.raises(ValueError, match=r"render modes \(none\), expected human"):
        make_rendered("Pixels-v0", "human")
    with pytest.raises(ValueError, match="exists as tensor code only"):
        make_rendered("MinAtar/Breakout-v1", "rgb_array")
