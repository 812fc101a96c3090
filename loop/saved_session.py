"""Continues a session from what `loop.host_state` gave, after a look at what a file holds."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any

import msgspec
import numpy as np
from msgspec import Meta

from kytolly.loop.learn import LoopMetrics

Kind = Annotated[str, Meta(pattern=r"\A[<>|][iuf][1248]\Z")]  # of numbers, as NumPy writes it

Number = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)] | float
EnvSteps = Annotated[int, Meta(ge=-1, le=10**12)]
Seconds = Annotated[float, Meta(ge=0, le=1e12)]


@dataclasses.dataclass
class SavedSession:
    """What `host_state` gives, with the types and ranges that a file must have."""

    interval_end: EnvSteps
    last_evaluation: EnvSteps
    wall_seconds: Seconds
    steady: tuple[Seconds, Seconds, EnvSteps]
    best_return: float
    evaluation: dict[str, Any] | None
    metrics: dict[str, Number]
    sums: Annotated[list[tuple[Kind, Any]], Meta(min_length=len(LoopMetrics._fields))] | None
    history: list[dict[str, Number]]
    callbacks: list[tuple[str, dict[str, Any]]]
    faults: list[dict[str, Any]] = dataclasses.field(default_factory=list)


def continue_session(
    session: Any, values: dict[str, Any], best_weights: list[np.ndarray] | None
) -> None:
    """Continue from what `host_state` gave; the callbacks follow in `set_callback_states`.

    Args:
        session: One that has not run.
        values: What `host_state` gave; empty where nothing was saved.
        best_weights: `network.get_weights()` at the best evaluation so far.
    """
    if not values:
        return
    try:
        saved = msgspec.convert(values, SavedSession)
        evaluation = saved.evaluation and msgspec.convert(saved.evaluation, session.evaluation_kind)
        sums = None if saved.sums is None else LoopMetrics(*map(array_of, saved.sums))
    except (TypeError, ValueError) as error:
        raise state_error(error) from error
    session.best_weights, session.callback_states = best_weights, saved.callbacks
    session.interval_end = saved.interval_end
    session.last_evaluation = saved.last_evaluation
    session.compile_seconds, session.steady_seconds, session.steady_env_steps = saved.steady
    session.history[:] = saved.history
    session.faults[:] = session.faults or saved.faults  # this process knows the newest
    # Without a fall it is a variable of an agent, which was restored.
    fixed = session.cfg.learning_rate
    if getattr(session.cfg, "learning_rate_final", 0.0) is not None:
        fixed = None
    fixed = getattr(session.agent, "fixed_rate", fixed)  # of an optimizer of the user's
    if fixed is not None:
        session.agent.policy.optimizer.learning_rate = fixed
    session.sums = sums
    session.state = dataclasses.replace(
        session.state,
        wall_seconds_before=saved.wall_seconds,
        best_score=saved.best_return,
        evaluation=evaluation,
        metrics=saved.metrics,
    )


def set_callback_states(session: Any) -> None:
    """Give each callback the saved state of the first callback of its class that is not taken."""
    states = list(session.callback_states)
    for callback in session.callbacks:
        name = type(callback).__name__
        index = next((i for i, (kind, _) in enumerate(states) if kind == name), None)
        if index is not None:
            try:
                callback.set_state(session.state, states.pop(index)[1])
            except (TypeError, ValueError, LookupError, AttributeError) as error:
                raise state_error(f"{name}: {type(error).__name__} {error}") from error


def state_error(reason: Any) -> ValueError:
    """For a state that no session wrote."""
    return ValueError(
        f"the newest checkpoint does not hold the state of a run ({reason}), expected "
        "what training wrote. Copy it back from where it came from, or remove it to continue from "
        "the checkpoint before."
    )


def array_of(saved: tuple[str, Any]) -> np.ndarray:
    """The array of which `dtype_and_numbers` gave these."""
    return np.asarray(saved[1], saved[0])
