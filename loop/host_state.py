"""What a session knows beside its tensors: saved with every checkpoint, as JSON can hold it."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from kytolly.callback.base import Evaluation
from kytolly.loop.learn import LoopMetrics


def host_state(session: Any) -> dict[str, Any]:
    """Counters, metrics and evaluations of a session, and the states of its callbacks."""
    state, sums = session.state, session.sums
    return {
        "interval_end": session.interval_end,
        "last_evaluation": session.last_evaluation,
        "wall_seconds": session.wall_seconds(),
        "steady": [session.compile_seconds, session.steady_seconds, session.steady_env_steps],
        "best_return": state.best_return,
        "evaluation": dataclasses.asdict(state.evaluation) if state.evaluation else None,
        "metrics": dict(state.metrics),
        "sums": None if sums is None else [dtype_and_numbers(np.asarray(part)) for part in sums],
        "history": session.history,
        "callbacks": [[type(c).__name__, c.get_state()] for c in session.callbacks],
    }


def set_host_state(session: Any, saved: dict[str, Any]) -> None:
    """Continue from what `host_state` gave; the callbacks follow in `set_callback_states`."""
    evaluation, sums = saved["evaluation"], saved["sums"]
    session.interval_end = saved["interval_end"]
    session.last_evaluation = saved["last_evaluation"]
    session.compile_seconds, session.steady_seconds, session.steady_env_steps = saved["steady"]
    session.history[:] = saved["history"]
    session.sums = None if sums is None else LoopMetrics(*map(array_of, sums))
    session.state = dataclasses.replace(
        session.state,
        wall_seconds_before=saved["wall_seconds"],
        best_return=saved["best_return"],
        evaluation=None if evaluation is None else Evaluation(**evaluation),
        metrics=saved["metrics"],
    )


def set_callback_states(session: Any, saved: dict[str, Any]) -> None:
    """Give each callback the saved state of the first callback of its class that is not taken."""
    states = list(saved["callbacks"])
    for callback in session.callbacks:
        name = type(callback).__name__
        index = next((i for i, (kind, _) in enumerate(states) if kind == name), None)
        if index is not None:
            callback.set_state(session.state, states.pop(index)[1])


def dtype_and_numbers(values: np.ndarray) -> list[Any]:
    """The dtype and the numbers of an array."""
    return [values.dtype.str, values.tolist()]


def array_of(saved: list[Any]) -> np.ndarray:
    """The array of which `dtype_and_numbers` gave these."""
    return np.asarray(saved[1], saved[0])
