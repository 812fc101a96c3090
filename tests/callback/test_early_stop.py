import dataclasses
import math

import pytest

from kytolly.callback.early_stop import EarlyStop, RewardThreshold, TimeBudget
from kytolly.callback.training_warnings import StopOnNonFinite
from tests.helpers.states import make_state, metrics_row


def evaluations_until_stop(callback, returns, *, begin=None, **changes):
    callback.on_train_begin(begin or make_state(None))
    for count, value in enumerate(returns, 1):
        state = make_state(None, 100 * count, evaluation_return=value, **changes)
        callback.on_log(state)
        callback.on_evaluation(state)
        if callback.stop_reason:
            return count, callback.stop_reason
    return None


@pytest.mark.parametrize(
    ("patience", "min_improvement", "returns", "stops_after"),
    [
        (2, 0.0, [10, 11, 11, 11], 4),  # equal is no improvement
        (2, 0.0, [10, 9, 11, 10, 12], None),  # never two in a row
        (1, 0.0, [10, 9], 2),
        (2, 5.0, [10, 14, 15], 3),  # 15 is 5 above the best, not more than 5
        (2, 5.0, [10, 14, 15.5], None),  # measured against 10, not against 14
        (2, 5.0, [10, 14, 16, 20, 21], 5),  # then against 16
        (2, 0.0, [10, math.nan, math.nan], 3),
        (2, 0.0, [-math.inf, -500.0, -400.0, -300.0], None),
        (3, 1.0, [-500.0, -500.0, -498.9, -498.9, -498.9], None),
    ],
)
def test_early_stop_counts_evaluations_without_improvement(
    patience, min_improvement, returns, stops_after
):
    stopped = evaluations_until_stop(EarlyStop(patience, min_improvement), returns)
    assert stopped == (None if stops_after is None else (stops_after, "early_stop"))


def test_early_stop_of_a_resumed_run_is_measured_against_the_best_before_it():
    begin = make_state(None, 500, best_score=100.0)
    assert evaluations_until_stop(EarlyStop(2), [50, 60], begin=begin) == (2, "early_stop")
    assert evaluations_until_stop(EarlyStop(2), [50, 101, 60], begin=begin) is None


def test_early_stop_waits_for_the_first_update():
    assert evaluations_until_stop(EarlyStop(1), [10, 10, 10], updates=0) is None


def test_early_stop_begins_anew_where_episodes_are_cut_later():
    """Whole episodes cost more than those that were cut: their first score is the best one."""
    stop, resumed = EarlyStop(2), EarlyStop(2)
    stop.on_train_begin(make_state(None))
    for steps, (value, limit) in enumerate([(-40, 40), (-50, 40), (-60, 80), (-60, 80)], 1):
        state = make_state(None, 100 * steps, evaluation_return=value)
        longer = dataclasses.replace(state.evaluation, step_limit=limit)
        state = dataclasses.replace(state, evaluation=longer)
        if steps == 3:  # a run that was stopped before it
            resumed.on_train_begin(state)
            resumed.set_state(state, stop.get_state())
            resumed.on_evaluation(state)
            assert resumed.get_state() == {"best": -60, "without": 0, "limit": 80}
        stop.on_evaluation(state)
    assert stop.stop_reason is None and stop.get_state()["without"] == 1


def test_a_second_run_starts_with_all_patience():
    stop = EarlyStop(2)
    assert evaluations_until_stop(stop, [10, 9, 8]) == (3, "early_stop")
    assert evaluations_until_stop(stop, [5, 4]) is None
    assert stop.stop_reason is None


@pytest.mark.parametrize(
    ("returns", "stops_after"), [([474.9, 475.0], 2), ([474.9, math.nan], None), ([500.0], 1)]
)
def test_reward_threshold_stops_where_it_is_reached(returns, stops_after):
    stopped = evaluations_until_stop(RewardThreshold(475.0), returns)
    assert stopped == (None if stops_after is None else (stops_after, "reward_threshold"))


def test_time_budget_looks_at_rows_and_at_evaluations():
    for hook in ("on_log", "on_evaluation"):
        budget = TimeBudget(30.0)
        budget.on_train_begin(make_state(None))
        getattr(budget, hook)(make_state(None, 100, wall_seconds=29.9))
        assert budget.stop_reason is None
        getattr(budget, hook)(make_state(None, 200, wall_seconds=30.0))
        assert budget.stop_reason == "time"


def reason_after(updates, **row):
    stop = StopOnNonFinite()
    stop.on_train_begin(make_state(None, 300))  # 300 updates before
    stop.on_log(make_state(None, 400, updates=updates, metrics=metrics_row(**row)))
    return stop.stop_reason


@pytest.mark.parametrize("name", ["loss", "q_mean"])
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_metrics_that_are_no_numbers_end_a_run_that_learns(name, value):
    with pytest.warns(UserWarning, match=f"{name} is {value} after 400 env steps"):
        assert reason_after(301, **{name: value}) == "non_finite"


def test_a_row_without_an_update_or_without_an_episode_says_nothing():
    assert reason_after(300, loss=math.nan, q_mean=math.nan) is None
    assert reason_after(301, episode_return=math.nan, grad_norm=math.inf) is None


def test_updates_are_counted_since_the_row_before():
    stop = StopOnNonFinite()
    stop.on_train_begin(make_state(None))
    stop.on_log(make_state(None, 100, metrics=metrics_row()))
    stop.on_log(make_state(None, 200, updates=100, metrics=metrics_row(loss=math.nan)))
    assert stop.stop_reason is None


@pytest.mark.parametrize(
    "make",
    [
        lambda: EarlyStop(0),
        lambda: EarlyStop(1, -1.0),
        lambda: EarlyStop(1, math.nan),
        lambda: RewardThreshold(math.nan),
        lambda: TimeBudget(0.0),
        lambda: TimeBudget(math.nan),
    ],
)
def test_settings_that_make_no_sense_are_refused(make):
    with pytest.raises(ValueError, match="expected"):
        make()


def test_a_resumed_run_continues_to_count(tmp_path):
    first = EarlyStop(patience=3)
    first.on_train_begin(make_state(tmp_path))
    for value in (10.0, 9.0, 8.0):
        first.on_evaluation(make_state(tmp_path, 100, evaluation_return=value))
    for patience, reason in ((3, None), (2, "early_stop")):
        second = EarlyStop(patience)
        second.on_train_begin(make_state(tmp_path, 100, best_score=10.0))
        second.set_state(make_state(tmp_path, 100), first.get_state())
        assert second.stop_reason == reason
        second.on_evaluation(make_state(tmp_path, 200, evaluation_return=7.0))
        assert second.stop_reason == "early_stop"
