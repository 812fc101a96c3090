"""What a session knows beside its tensors, as JSON can hold it: for checkpoints, and the result."""

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
        "best_return": state.best_return,
        "evaluation": dataclasses.asdict(state.evaluation) if state.evaluation else None,
        "metrics": dict(state.metrics),
        "sums": None if sums is None else [dtype_and_numbers(np.asarray(part)) for part in sums],
        "history": session.history,
        "callbacks": [[type(c).__name__, c.get_state()] for c in session.callbacks],
    }


def result_summary(session: Any, evaluation: Any, stopped_by: str, seconds: float) -> dict:
    """What `result.json` holds of a run that has ended.

    Args:
        session: The session after its last call.
        evaluation: That of the best weights.
        stopped_by: What ended training.
        seconds: Wall time since training began, or was resumed.
    """
    state, restarts = session.state, session.loop.env_restarts
    return {
        "algorithm": state.config.algorithm,
        "environment": state.env_name,
        "loop": state.loop,
        "seed": state.config.seed,
        "env_steps": state.env_steps,
        "updates": state.updates,
        "wall_seconds": state.wall_seconds_before + seconds,
        "compile_seconds": session.compile_seconds,
        "env_steps_per_second": session.steady_env_steps / max(session.steady_seconds, 1e-9),
        "evaluation": evaluation.summary(),
        "stopped_by": stopped_by,
        "run_dir": str(state.run_dir),
        **({} if restarts is None else {"env_restarts": restarts}),
    }


def dtype_and_numbers(values: np.ndarray) -> list[Any]:
    """The dtype and the numbers of an array."""
    return [values.dtype.str, values.tolist()]
