"""What a session knows beside its tensors: saved with every checkpoint, as JSON can hold it."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np


def host_state(session: Any) -> dict[str, Any]:
    """Counters, metrics and evaluations of a session, and the states of its callbacks."""
    state, sums = session.state, session.sums
    return {
        "interval_end": session.interval_end,
        "last_evaluation": session.last_evaluation,
        "wall_seconds": session.wall_seconds(),
        "steady": [session.compile_seconds, session.steady_seconds, session.steady_env_steps],
        "best_return": state.best_score,
        "evaluation": dataclasses.asdict(state.evaluation) if state.evaluation else None,
        "metrics": dict(state.metrics),
        "sums": None if sums is None else [dtype_and_numbers(np.asarray(part)) for part in sums],
        "history": session.history,
        "faults": session.faults,
        "callbacks": [[type(c).__name__, c.get_state()] for c in session.callbacks],
    }


def dtype_and_numbers(values: np.ndarray) -> list[Any]:
    """The dtype and the numbers of an array."""
    return [values.dtype.str, values.tolist()]
