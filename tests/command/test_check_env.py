"""`kytolly check-env`."""

import json
import os
import subprocess
import sys

import gymnasium
import pytest

from kytolly.command import check_env
from kytolly.command.check_env import verdict
from kytolly.command.entry import main


def test_findings_are_printed_and_returned_as_json(capsys):
    assert main(["check-env", "CartPole-v1", "--steps", "50", "--json"]) == 0
    printed = capsys.readouterr()
    found = json.loads(printed.out)
    assert found["ok"] and found["environment"] == "CartPole-v1"
    assert {finding["level"] for finding in found["findings"]} == {"ok"}
    lines = [line for line in printed.err.splitlines() if line.startswith("ok ")]
    assert len(lines) == len(found["findings"]) and "does what it promises" in printed.err


def test_the_verdict_is_as_good_as_the_worst_finding():
    assert verdict(["ok", "error", "warning"]) == "cannot be trusted yet"
    assert verdict(["ok", "warning"]) == "can be trained in, with what the warning says"
    assert verdict(["warning", "warning"]) == "can be trained in, with what the warnings say"
    assert verdict(["ok"]) == "does what it promises"


def test_a_check_that_takes_long_says_what_makes_it_shorter(monkeypatch, capsys):
    class AtOnce:
        def __init__(self, seconds, function, words):
            function(*words)

        def start(self): ...

        def cancel(self): ...

    monkeypatch.setattr(check_env.threading, "Timer", AtOnce)
    assert main(["check-env", "CartPole-v1", "--steps", "2000"]) == 0
    line = "Each of several checks plays 2,000 env steps, which takes a while here: --steps gives"
    assert line in capsys.readouterr().err


class Letters(gymnasium.Env):
    """An environment that shows a text, which no network here reads."""

    observation_space = gymnasium.spaces.Text(5)
    action_space = gymnasium.spaces.Discrete(2)


def test_an_environment_that_cannot_be_used_is_exit_status_1(capsys):
    gymnasium.register("Letters-v0", Letters)
    try:
        assert main(["check-env", "Letters-v0", "--steps", "5"]) == 1
    finally:
        del gymnasium.registry["Letters-v0"]
    assert "Text" in capsys.readouterr().out


def test_an_unknown_environment_is_exit_status_2(capsys):
    assert main(["check-env", "CarPole-v1"]) == 2
    assert "CartPole-v1" in capsys.readouterr().err


@pytest.mark.learning
def test_a_window_without_a_display_does_not_end_the_process():
    program = "import sys; from kytolly.command.entry import main; sys.exit(main(sys.argv[1:]))"
    words = "check-env CartPole-v1 --steps 3 --env-kwargs render_mode=human --json".split()
    screens = ("DISPLAY", "WAYLAND_DISPLAY", "PYGAME_HIDE_SUPPORT_PROMPT")
    left_out = [name for name in os.environ if name in screens or name.startswith("SDL_")]
    environ = {name: value for name, value in os.environ.items() if name not in left_out}
    done = subprocess.run(
        [sys.executable, "-c", program, *words], env=environ, capture_output=True, text=True
    )
    assert done.returncode == 0, done
    assert json.loads(done.stdout)["ok"]  # and no greeting of pygame
