"""What is said, once, of a run that trains badly."""

import dataclasses
import json
import math
import re
import warnings
from pathlib import Path
from typing import Any, cast

import pytest

from kytolly.callback.base import notify
from kytolly.callback.training_warnings import MIN_ROWS, STAYS, TREND, WINDOW, TrainingWarnings
from kytolly.config.c51 import C51Config
from kytolly.config.dqn import DQNConfig
from kytolly.config.ppo import PPOConfig
from kytolly.config.supervised import SupervisedConfig
from kytolly.loop.supervised import SupervisedState, TaskEvaluation
from tests.helpers.states import make_state, metrics_row


def said(watcher, rows=(), evaluations=(), **changes):
    """The warnings of rows of metrics, 100 env steps and updates each, then of evaluations.

    An evaluation is (return while training, return of the evaluation); its deviation is 1.5.
    """
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        for number, row in enumerate(rows, 1):
            watcher.on_log(make_state(None, 100 * number, metrics=row, **changes))
        for number, (training, value) in enumerate(evaluations, 1):
            row = metrics_row(episode_return=training)
            watcher.on_evaluation(make_state(None, number, evaluation_return=value, metrics=row))
    return [str(one.message) for one in found]


def started():
    watcher = TrainingWarnings()
    watcher.on_train_begin(make_state(None))
    return watcher


@pytest.mark.parametrize(
    "settings, said",
    [
        ({"noise_scale": 0.3}, ["noise_scale is 0.3, and changes nothing without noisy"]),
        ({"priority_exponent": 0.7, "prioritized": True}, []),
        ({"huber_delta": 7.0}, ["huber_delta is 7.0, and changes nothing with c51: leave it out"]),
        ({"noisy": True, "epsilon_final": 0.5}, []),
        ({"impala_width": 1, "network": "cnn"}, ["impala_width is 1, .* without network impala"]),
        ({"impala_width": 1, "network": "dueling_impala"}, []),
        ({}, []),
    ],
)
def test_settings_that_change_nothing_are_named(settings, said):
    watcher, cfg = TrainingWarnings(), C51Config(**settings)
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        watcher.on_train_begin(make_state(None, config=cfg))
    assert len(found) == len(said)
    assert all(re.match(text, str(one.message)) for one, text in zip(found, said, strict=True))


def test_a_jump_of_the_loss_that_stays_is_said_once():
    def rows(loss, count=STAYS, **more):
        return [metrics_row(loss=loss, **more)] * count

    usual = rows(0.1, WINDOW)
    assert said(started(), [*usual, *rows(0.99)]) == []
    found = said(started(), [*usual, *rows(1.01), *rows(50.0)])
    assert len(found) == 1
    assert "loss is 1.01 after 2,600 env steps" in found[0] and "median 0.1" in found[0]
    assert len(said(started(), [*rows(0.1), *rows(9.0)])) == 1
    assert said(started(), [*rows(0.1, STAYS - 1), *rows(9.0, WINDOW)]) == []  # too early
    growing = [rows(15.0**n, 1)[0] for n in range(MIN_ROWS + STAYS)]
    assert said(started(), growing[:-1]) == [] and len(said(started(), growing)) == 1
    short = rows(1.01, STAYS - 1)
    assert said(started(), [*usual, *short, *rows(0.99, 1), *short]) == []  # does not stay
    # Of rewards that are found losses rise, and returns with them.
    usual = rows(0.1, WINDOW, episode_return=20.0)
    assert said(started(), [*usual, *rows(1.01, episode_return=30.0)]) == []
    for other in (10.0, math.nan):  # or no episode has ended
        assert len(said(started(), [*usual, *rows(1.01, episode_return=other)])) == 1


def test_of_a_policy_gradient_the_loss_of_the_values_counts():
    rows = [metrics_row(loss=0.001, value_loss=2.0)] * WINDOW
    assert said(started(), [*rows, metrics_row(loss=-5.0, value_loss=3.0)]) == []
    assert (
        "value_loss is 30" in said(started(), [*rows, *[metrics_row(value_loss=30.0)] * STAYS])[0]
    )


@pytest.mark.parametrize("idle, count", [(0.4, 0), (0.6, 1)])
def test_an_idle_device_is_said_after_half_a_minute(idle, count):
    rows = [metrics_row(device_idle=idle, env_steps_per_second=10.0)] * 6  # 10 seconds each
    found = said(started(), rows)
    assert len(found) == count and all("waited for environments 60% of" in one for one in found)
    assert said(started(), rows[:2]) == []
    assert said(started(), [metrics_row(env_steps_per_second=1.0)] * 6) == []  # the device loop


def test_targets_beyond_the_bounds_of_distributions_are_said_once():
    def found(*shares):
        rows = [metrics_row(clipped_targets=share) for share in shares]
        cfg = C51Config(value_min=-5.0, value_max=10.0)
        return said(started(), rows, config=cfg)

    assert found(0.04, 0.04) == []
    (words,) = found(0.04, 0.31, 0.5)
    assert words.startswith("31% of the targets' probability lay beyond value_min -5 and value_max")
    assert "10 after 200 env steps" in words


def test_rising_training_and_falling_evaluations_are_said():
    # Training passes the evaluation at the fifth, which has fallen by 4, more than 2 * 1.5.
    rising = [(43.0 + n, 50.0 - n) for n in range(TREND)]
    (words,) = said(started(), evaluations=[*rising, (48.0, 45.0), (49.0, 44.0)])
    assert "return rose from 43 to 47, and the evaluation return fell from 50 to 46" in words
    assert said(started(), evaluations=rising[:-1]) == []
    assert said(started(), evaluations=[(47.0 - n, 50.0 - n) for n in range(TREND)]) == []
    within_noise = [(50.0 + n, 50.0 - 0.74 * n) for n in range(TREND)]  # 2.96 in all
    assert said(started(), evaluations=within_noise) == []
    still_better = [(10.0 + n, 50.0 - n) for n in range(TREND)]  # than the training episodes
    assert said(started(), evaluations=still_better) == []


def drawn_and_likeliest(scores, config, env_steps=80_000, **state):
    """The warnings of evaluations with a deviation of 1.5; training returned 15 to 17."""
    watcher = started()
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        for number, score in enumerate(scores):
            row = metrics_row(episode_return=17.0 - number % 3)
            returns = {"evaluation_return": score, "metrics": row}
            now = make_state(None, env_steps + number, config=config, **returns, **state)
            watcher.on_evaluation(now)
    return [str(one.message) for one in found]


def test_evaluations_that_play_far_more_than_training_are_said_of_the_host_loop():
    def found(between, loop="host"):  # an evaluation has two episodes of 20 env steps
        cfg = DQNConfig(total_env_steps=1_000, evaluation_interval_env_steps=between)
        return drawn_and_likeliest([16.0] * (TREND + 2), cfg, 100, loop=loop)

    (words,) = found(8)
    assert words.startswith("an evaluation plays 2 episodes of 20 env steps, 5 times as many")
    assert "two of them (8)" in words and "will play 100" in words
    assert found(9) == found(8, "device") == []


def test_likeliest_actions_that_do_worse_than_drawn_ones_are_said():
    ppo = PPOConfig(total_env_steps=100_000)
    (words,) = drawn_and_likeliest([10.0, 12.0, 11.0, 9.0, 10.0, 10.0], ppo)
    assert "returned 16.2, and the evaluations, which take the likeliest ones, 10.4" in words
    assert "agent.act(obs, deterministic=False)" in words
    assert drawn_and_likeliest([10.0, 12.0, 11.0, 9.0], ppo) == []
    assert drawn_and_likeliest([10.0, 12.0, 15.5, 9.0, 10.0], ppo) == []  # once as good
    assert drawn_and_likeliest([14.9, 14.9, 14.9, 14.9, 14.9], ppo) != []
    assert drawn_and_likeliest([10.0] * TREND, ppo, env_steps=50_000) == []  # much may change
    (words,) = drawn_and_likeliest([10.0] * TREND, DQNConfig(total_env_steps=100_000))
    assert "random actions, too, returned 16" in words and "action_mask" in words


def equal_returns(value, count, config, **changes):
    """The warnings of evaluations whose episodes all return the same, as do those of training."""
    watcher = started()
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        for number in range(1, count + 1):
            returns = {"evaluation_return": value, "metrics": metrics_row(episode_return=value)}
            returns |= changes if number == count else {}
            state = make_state(None, 100 * number, config=config, **returns)
            alone = dataclasses.replace(cast(Any, state.evaluation), return_std=0.0)
            watcher.on_evaluation(dataclasses.replace(state, evaluation=alone))
    return [str(one.message) for one in found]


def test_a_run_whose_episodes_all_return_the_same_is_told_once():
    (words,) = equal_returns(-20_000.0, 2 * TREND, PPOConfig())
    assert f"up to env step {100 * TREND} returned -20000: nothing says yet" in words
    assert "set normalize_advantage to false" in words
    (words,) = equal_returns(-20_000.0, TREND, DQNConfig())
    assert "normalize_advantage" not in words
    assert equal_returns(-20_000.0, TREND - 1, PPOConfig()) == []
    assert equal_returns(-20_000.0, TREND, PPOConfig(), evaluation_return=-19_000.0) == []
    other = metrics_row(episode_return=-19_900.0)
    assert equal_returns(-20_000.0, TREND, PPOConfig(), metrics=other) == []


def supervised(losses, scores, watcher=None):
    """The warnings of texts: two rows of metrics for each evaluation, their losses 0.2 apart."""
    watcher = watcher or started()
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        for number, (loss, score) in enumerate(zip(losses, scores, strict=True), 1):
            state = SupervisedState(Path(), SupervisedConfig(), "texts", "device", "/CPU:0")
            for part, updates in ((-0.1, 10 * number - 5), (0.1, 10 * number)):
                state = dataclasses.replace(state, updates=updates, metrics={"loss": loss + part})
                watcher.on_log(state)
            evaluation = TaskEvaluation("macro_f1", {"macro_f1": score})
            watcher.on_evaluation(dataclasses.replace(state, evaluation=cast(Any, evaluation)))
    return [str(one.message) for one in found]


def test_texts_that_are_learned_by_heart_are_said():
    losses, scores = [0.9, 0.7, 0.5, 0.4, 0.3, 0.2], [0.7, 0.69, 0.68, 0.66, 0.65, 0.6]
    (words,) = supervised(losses, scores)
    assert "up to update 50 the training loss fell from 0.9 to 0.3" in words
    assert "macro_f1 of the evaluations fell from 0.7 to 0.65" in words
    assert len(supervised(losses, [0.7, 0.66, 0.68, 0.65, 0.67, 0.66])) == 1
    assert supervised(losses, scores[::-1]) == []  # it learns
    assert supervised(losses[::-1], scores) == []  # it forgets
    assert supervised(losses[:4], scores[:4]) == []
    assert supervised(losses, [0.7 - 0.001 * n for n in range(6)]) == []  # 0.6% less
    first, second = started(), started()
    assert supervised(losses[:3], scores[:3], first) == []
    second.set_state(make_state(None), json.loads(json.dumps(first.get_state())))
    assert len(supervised(losses[3:], scores[3:], second)) == 1


def test_a_warning_is_of_the_users_line():
    """Not of contextlib, through which hooks are called."""
    rows = [*[metrics_row(loss=0.1)] * WINDOW, *[metrics_row(loss=5.0)] * STAYS]
    watcher = started()
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        for number, row in enumerate(rows, 1):
            notify([watcher], "on_log", make_state(None, number, metrics=row), {})
    assert [one.filename for one in found] == [__file__]


def test_a_resumed_run_says_nothing_twice():
    first = started()
    rows = [*[metrics_row(loss=0.1)] * WINDOW, *[metrics_row(loss=5.0)] * STAYS]
    assert len(said(first, rows)) == 1
    second = started()
    second.set_state(make_state(None), first.get_state())
    assert said(second, [metrics_row(loss=9.0)] * STAYS) == []
