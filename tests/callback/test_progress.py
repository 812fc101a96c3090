import dataclasses
import gc
import io
import math
import re
import sys
import types

import keras
import pytest

from kytolly.callback import progress
from kytolly.callback.base import Evaluation, places
from kytolly.callback.progress import ProgressBar, clock, rate
from tests.helpers.states import make_state, metrics_row


class Terminal(io.StringIO):
    def isatty(self):
        return True


class ClosedPipe(io.StringIO):
    def write(self, text):
        raise BrokenPipeError(32, "Broken pipe")


@pytest.fixture(autouse=True)
def wide_terminal(monkeypatch):
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "110")


def run_to(bar, tmp_path, *, rows=4):
    state = make_state(tmp_path)
    bar.on_train_begin(state)
    for row in range(1, rows + 1):
        bar._shown_at = -math.inf
        state = make_state(
            tmp_path, 100 * row, 57.25, metrics=metrics_row(), wall_seconds=2.0 * row
        )
        bar.on_log(state)
        bar.on_evaluation(dataclasses.replace(state, best_score=60.0))
    return state


def test_a_terminal_gets_a_bar_with_returns_speed_and_time_left(tmp_path):
    terminal = Terminal()
    bar = ProgressBar(terminal)
    bar.on_train_end(run_to(bar, tmp_path))
    picture = terminal.getvalue()
    # 400 of 1,000 env steps; 300 took 6 s after the first row, so 600 more take 12 s.
    for words in ("CartPole-v1", " 40%", "return 20.0", "evaluation 57.2", "100 steps/s"):
        assert words in picture
    assert "0:12 left" in picture


def test_everything_fits_into_eighty_columns(tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    terminal = Terminal()
    bar = ProgressBar(terminal)
    run_to(bar, tmp_path)
    newest = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", terminal.getvalue()).split("\r")[-1]
    assert len(newest.rstrip("\n")) <= 80
    assert "left" in newest and newest.count("━") >= 5


def test_no_terminal_gets_one_plain_line_for_each_evaluation(tmp_path):
    pipe = io.StringIO()
    bar = ProgressBar(pipe)
    bar.on_train_end(run_to(bar, tmp_path, rows=3))
    lines = pipe.getvalue().splitlines()
    assert len(lines) == 3
    assert "\x1b" not in pipe.getvalue()
    assert lines[2] == (
        "CartPole-v1: 300 of 1,000 env steps, evaluation return 57.2 ± 1.5 (best 60.0), "
        "100 env steps/s, 0:14 left"
    )


def test_standard_output_stays_untouched(tmp_path, capsys):
    bar = ProgressBar()
    bar.on_train_end(run_to(bar, tmp_path))
    captured = capsys.readouterr()
    assert captured.out == ""
    assert len(captured.err.splitlines()) == 4


def test_the_terminal_is_restored_when_an_exception_skips_the_end(tmp_path, monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr(sys, "stdout", Terminal())
    before = (sys.stdout, sys.stderr)
    bar = ProgressBar()
    run_to(bar, tmp_path)
    assert sys.stderr is not before[1]  # prints go above the bar while it stands
    del bar
    gc.collect()
    assert (sys.stdout, sys.stderr) == before
    shown, hidden = (terminal.getvalue().rfind(code) for code in ("\x1b[?25h", "\x1b[?25l"))
    assert shown > hidden


def test_the_cursor_is_visible_even_while_the_bar_stands(tmp_path):
    terminal = Terminal()
    bar = ProgressBar(terminal)
    run_to(bar, tmp_path)
    shown, hidden = (terminal.getvalue().rfind(code) for code in ("\x1b[?25h", "\x1b[?25l"))
    assert shown > hidden


@pytest.mark.parametrize("kind", [ClosedPipe, Terminal])
def test_a_reader_that_goes_away_does_not_end_training(tmp_path, kind):
    stream = kind()
    bar = ProgressBar(stream)
    state = run_to(bar, tmp_path, rows=1)
    stream.close()
    bar.on_log(dataclasses.replace(state, env_steps=500))
    bar.on_evaluation(dataclasses.replace(state, env_steps=500))
    bar.on_train_end(state)


def test_the_bar_is_drawn_at_most_once_in_the_refresh_interval(tmp_path, monkeypatch):
    now = [50.0]
    monkeypatch.setattr(progress, "time", types.SimpleNamespace(monotonic=lambda: now[0]))
    terminal = Terminal()
    bar = ProgressBar(terminal)
    state = run_to(bar, tmp_path, rows=1)
    drawn, draw = [], bar._draw
    monkeypatch.setattr(bar, "_draw", lambda state: drawn.append(now[0]) or draw(state))
    length = len(terminal.getvalue())
    for _ in range(200):
        bar.on_log(state)
    assert not drawn and len(terminal.getvalue()) == length  # nothing is written in between
    now[0] += progress.REFRESH_SECONDS * 1.01
    for _ in range(200):
        bar.on_log(state)
    assert drawn == now and len(terminal.getvalue()) > length


def test_an_end_without_a_beginning_is_quiet(tmp_path):
    terminal = Terminal()
    ProgressBar(terminal).on_train_end(make_state(tmp_path))
    assert terminal.getvalue() == ""


@pytest.mark.parametrize(("seconds", "words"), [(7.4, "0:07"), (71, "1:11"), (3_725, "1:02:05")])
def test_clock(seconds, words):
    assert clock(seconds) == words


def test_the_first_line_counts_the_parameters(tmp_path):
    pipe, network = io.StringIO(), keras.Sequential([keras.layers.Dense(3)])
    network.build((None, 4))
    ProgressBar(pipe).on_compile_begin(make_state(tmp_path, network=network))
    assert "15 parameters" in pipe.getvalue()  # 4 x 3 + 3


@pytest.mark.parametrize(
    "speed, text",
    [(0.6, "0.6"), (0.034, "0.034"), (9.94, "9.9"), (12.4, "12"), (9_999.6, "10,000")],
)
def test_a_slow_rate_is_not_0(speed, text):
    assert rate(speed) == text


def test_three_digits_of_a_return_are_shown():
    returns = [(489.31, 43.1), (57.2, 1.5), (9.333, 0.1), (0.7361, 0.44), (0.0, 0.0)]
    shown = [Evaluation(20, mean, deviation, 9.0).text for mean, deviation in returns]
    assert shown[:3] == ["return 489.3 ± 43.1", "return 57.2 ± 1.5", "return 9.33 ± 0.10"]
    assert shown[3:] == ["return 0.736 ± 0.440", "return 0.0 ± 0.0"]
    assert [places(-0.02, 0.001), places(math.nan), places(math.inf)] == [4, 1, 1]
