"""Lets a session continue from a checkpoint, after a look at types and ranges in its file."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, TypeVar

import msgspec
import numpy as np
from msgspec import Meta

from kytolly.callback.base import Callback, JsonObject, TrainState
from kytolly.loop.learn import LoopMetrics
from kytolly.loop.session import TrainingSession

Kind = Annotated[str, Meta(pattern=r"\A[<>|][iuf][1248]\Z")]  # of numbers, as NumPy writes it

Number = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)] | float
EnvSteps = Annotated[int, Meta(ge=-1, le=10**12)]
Seconds = Annotated[float, Meta(ge=0, le=1e12)]

Evaluated = TypeVar("Evaluated")


@dataclasses.dataclass
class SavedSession:
    """The contents of `session_state`, with the types and ranges that a file must have."""

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


def read_session_state(
    values: Mapping[str, object], evaluation_kind: type[Evaluated]
) -> tuple[SavedSession, Evaluated | None, LoopMetrics | None]:
    """A session in a checkpoint: its values, the newest evaluation, the open sums.

    Args:
        values: What `TrainingSession.session_state` gave, read from a file.
        evaluation_kind: The dataclass of the evaluation.
    """
    try:
        saved = msgspec.convert(values, SavedSession)
        evaluation = None
        if saved.evaluation:
            evaluation = msgspec.convert(saved.evaluation, evaluation_kind)
        sums = None
        if saved.sums is not None:
            sums = LoopMetrics(*(np.asarray(numbers, kind) for kind, numbers in saved.sums))
    except (TypeError, ValueError) as error:
        raise state_error(error) from error
    return saved, evaluation, sums


def restore_session(
    session: TrainingSession,
    values: Mapping[str, object],
    best_weights: list[np.ndarray] | None,
) -> None:
    """Let a session continue from a checkpoint; called before `run`, when tensors are restored.

    Args:
        session: At its beginning.
        values: What its `session_state` gave; empty where nothing was saved.
        best_weights: `network.get_weights()` at the best evaluation so far.
    """
    if not values:
        return
    saved, evaluation, sums = read_session_state(values, session.report.outcome)
    session.best_weights, session.sums = best_weights, sums
    session.interval_end, session.last_evaluation = saved.interval_end, saved.last_evaluation
    session.compile_seconds, session.steady_seconds, session.steady_units = saved.steady
    session.history[:] = saved.history
    session.faults[:] = session.faults or saved.faults  # this process knows the newest
    session.restore_callbacks = functools.partial(
        restore_callbacks, session.callbacks, saved.callbacks
    )
    learner = session.learner
    if learner.fixed_rate is not None:  # the checkpoint's may be of another config
        learner.policy.optimizer.learning_rate = learner.fixed_rate
    session.state = dataclasses.replace(
        session.state,
        wall_seconds_before=saved.wall_seconds,
        best_score=saved.best_return,
        evaluation=evaluation,
        metrics=saved.metrics,
        longest_episode=max([0.0, *(row.get("episode_length", 0.0) for row in saved.history)]),
    )


def restore_callbacks(
    callbacks: Sequence[Callback], saved: Sequence[tuple[str, JsonObject]], state: TrainState
) -> None:
    """Give each callback the saved state of the first callback of its class that is not taken."""
    states = list(saved)
    for callback in callbacks:
        name = type(callback).__name__
        index = next((i for i, (kind, _) in enumerate(states) if kind == name), None)
        if index is not None:
            try:
                callback.set_state(state, states.pop(index)[1])
            except (TypeError, ValueError, LookupError, AttributeError) as error:
                raise state_error(f"{name}: {type(error).__name__} {error}") from error


def state_error(reason: str | Exception) -> ValueError:
    """For a state that no session wrote."""
    return ValueError(
        f"the newest checkpoint does not hold the state of a run ({reason}), expected "
        "what training wrote. Copy it back from where it came from, or remove it to continue from "
        "the checkpoint before."
    )
