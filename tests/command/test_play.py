"""`kytolly record` and `kytolly watch`, with an agent of the zoo: nothing is trained here."""

import json
import os
import shutil
import sys

import gymnasium
import pytest
from PIL import Image

from kytolly.command import entry
from kytolly.command.watch import has_display
from kytolly.deployment import rendered
from kytolly.deployment.loaded_agent import LoadedAgent
from kytolly.deployment.zoo import zoo_dir
from tests.helpers.commands import error_line

RUN, SHORT = "zoo:dqn/CartPole-v1", ["--env", "ShortCartPole-v0"]


@pytest.fixture(autouse=True)
def short_cart_pole(monkeypatch, tmp_path):
    """CartPole that ends after 5 steps, a display that draws nowhere, and a folder of its own."""
    made = gymnasium.envs.registration.EnvSpec(
        "ShortCartPole-v0", gymnasium.spec("CartPole-v1").entry_point, max_episode_steps=5
    )
    monkeypatch.setitem(gymnasium.registry, "ShortCartPole-v0", made)
    monkeypatch.setitem(os.environ, "SDL_VIDEODRIVER", "dummy")
    monkeypatch.setitem(os.environ, "DISPLAY", ":0")
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.chdir(tmp_path)


def test_record_prints_the_return_of_each_episode_and_writes_an_mp4(capsys, tmp_path):
    assert entry.main(["record", RUN, *SHORT, "--episodes", "2"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == [f"Episode {number}: return 5.0, 5 steps" for number in (1, 2)]
    assert lines[2].startswith("Video: CartPole-v1_dqn.mp4 (12 frames, ")
    assert [path.name for path in tmp_path.iterdir()] == ["CartPole-v1_dqn.mp4"]
    again = error_line(["record", RUN, *SHORT], capsys)
    assert "CartPole-v1_dqn.mp4 exists, expected a new file" in again


def test_record_writes_a_gif_and_one_json_object_last(capsys):
    words = ["record", RUN, *SHORT, "--out", "a.gif", "--episodes", "1", "--fps", "20", "--json"]
    assert entry.main(words) == 0
    captured = capsys.readouterr()
    summary = json.loads(captured.out)
    assert summary["episodes"] == [{"return": 5.0, "length": 5}]
    assert (summary["video"], summary["frames"]) == ("a.gif", 6)
    assert "Episode 1: return 5.0" in captured.err
    with Image.open("a.gif") as gif:
        assert (gif.n_frames, gif.size, gif.info["duration"]) == (6, (600, 400), 50)


class Doubled(gymnasium.RewardWrapper):
    def reward(self, reward):
        return 2 * float(reward)


def test_record_plays_in_the_wrappers_that_are_given(capsys):
    wrapper = ["--wrapper", f"{__name__}:Doubled"]
    assert entry.main(["record", RUN, *SHORT, *wrapper, "--episodes", "1"]) == 0
    assert "Episode 1: return 10.0, 5 steps" in capsys.readouterr().out


def test_record_says_how_far_it_is_while_an_episode_lasts(capsys, monkeypatch):
    monkeypatch.setattr("kytolly.command.record.PROGRESS_SECONDS", 0.0)
    assert entry.main(["record", RUN, *SHORT, "--episodes", "1"]) == 0
    assert "kytolly: episode 1 of 1, 6 frames so far" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["record", "watch"])
def test_ctrl_c_ends_cleanly(command, capsys, monkeypatch, tmp_path):
    monkeypatch.setattr(LoadedAgent, "host_action", interrupt)
    assert entry.main([command, RUN, *SHORT]) == 130
    assert "kytolly: interrupted. " in capsys.readouterr().err
    assert not list(tmp_path.iterdir())  # no half of a video


def interrupt(agent, obs):
    raise KeyboardInterrupt


def test_watch_plays_in_a_window_until_it_is_closed(capsys, monkeypatch):
    assert entry.main(["watch", RUN, *SHORT, "--episodes", "2"]) == 0
    assert capsys.readouterr().out.count("return 5.0, 5 steps\n") == 2
    checks = iter([False] * 8 + [True])
    monkeypatch.setattr(rendered, "is_window_closed", lambda: next(checks))
    assert entry.main(["watch", RUN, *SHORT, "--json"]) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out)["episodes"] == [{"return": 5.0, "length": 5}]


def test_a_closed_window_is_seen():
    import pygame

    pygame.display.init()
    try:
        assert not rendered.is_window_closed()
        pygame.event.post(pygame.event.Event(pygame.QUIT))
        assert rendered.is_window_closed()
    finally:
        pygame.display.quit()
    assert not rendered.is_window_closed()


@pytest.mark.parametrize(
    "system, variables, found",
    [
        ("linux", {"DISPLAY": ":1"}, True),
        ("linux", {"WAYLAND_DISPLAY": "wayland-0"}, True),
        ("linux", {"DISPLAY": ""}, False),
        ("linux", {}, False),
        ("darwin", {}, True),
        ("win32", {}, True),
    ],
)
def test_only_linux_can_be_without_a_display(system, variables, found):
    assert has_display(system, variables) is found


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="others always have a display")
def test_watch_without_a_display_names_record(capsys, monkeypatch):
    monkeypatch.delenv("DISPLAY")
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    line = error_line(["watch", RUN], capsys)
    assert "there is no display" in line and "`kytolly record " in line


def test_what_is_missing_is_named_with_what_to_do(capsys, monkeypatch, tmp_path):
    shutil.copytree(zoo_dir() / "DQN" / "CartPole-v1", tmp_path / "a")
    (tmp_path / "a" / "best.keras").unlink()
    assert "best.keras does not exist" in error_line(["record", "a"], capsys)
    config = tmp_path / "a" / "config.yaml"
    config.write_text(config.read_text().replace("CartPole-v1", "games:Game-v0"))
    assert "--trust, if you know who wrote" in error_line(["record", "a"], capsys)
    assert "cannot be imported" in error_line(["record", "a", "--trust"], capsys)
    config.write_text(config.read_text().replace("games:Game-v0", "Maze"))
    made_in_python = "trained in Maze, which is no id that Gymnasium knows, expected one: the env"
    assert made_in_python in error_line(["record", "a"], capsys)
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)
    assert 'pip install "kytolly[video]"' in error_line(["record", RUN], capsys)


@pytest.mark.parametrize(
    "words, found",
    [
        ("--out a.avi", "a.avi is no video, expected a name that ends with .mp4 or .gif"),
        ("--out no/a.gif", "no is no folder, expected one for a.gif"),
        ("--fps 0", "'0' was found, expected a number above 0 and at most 1,000"),
        ("--episodes 0", "expected a whole number above 0"),
        ("--env CartPol-v1", "unknown environment 'CartPol-v1'. Nearest names: CartPole-v"),
        ("--env Pendulum-v1", "Pendulum-v1 has observations"),
    ],
)
def test_words_that_do_not_fit_are_refused(words, found, capsys, tmp_path):
    assert found in error_line(["record", RUN, *words.split()], capsys)
    assert not list(tmp_path.iterdir())


def test_export_writes_nothing_into_the_zoo(capsys):
    assert "--out is missing" in error_line(["export", RUN, "--format", "saved_model"], capsys)


class CannotClose(gymnasium.Wrapper):
    def close(self):
        super().close()
        raise RuntimeError("stuck")


@pytest.mark.parametrize("command", ["record", "watch"])
def test_close_that_raises_costs_no_video(command, capsys):
    words = [command, RUN, *SHORT, "--wrapper", f"{__name__}:CannotClose", "--episodes", "1"]
    assert entry.main(words) == 0
    captured = capsys.readouterr()
    assert "return 5.0, 5 steps" in captured.out and "RuntimeError in close()" in captured.err
