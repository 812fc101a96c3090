"""Best weights that an evaluation of few episodes chose by luck."""

from __future__ import annotations

import math
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np

from kytolly.loop.session import Evaluate

if TYPE_CHECKING:
    from kytolly.callback.base import Outcome
    from kytolly.loop.session import Requests, TrainingSession


def better_weights(
    session: TrainingSession, final: Any, last: list[np.ndarray], chosen_by: float
) -> Requests[Outcome]:
    """Play the run's last weights too, keep the better ones, and say so; returns their evaluation.

    Args:
        session: A run that has ended. Its network has the best weights.
        final: Their evaluation.
        last: The network's weights at the end of training.
        chosen_by: The return of the evaluation that chose the best weights.
    """
    best, policy = session.best_weights, session.learner.policy
    other, score = None, -math.inf
    pairs = zip(best or last, last, strict=True)
    differ = any(not np.array_equal(one, two) for one, two in pairs)
    if best is not None and differ and all(np.isfinite(part).all() for part in last):
        policy.set_weights(last)
        other = yield Evaluate(session.report, None, session.clock.final_deadline)
        score = -math.inf if other.cut else other.score
        session.keeps_last = score > final.score
        session.best_weights = last if session.keeps_last else best
        policy.set_weights(session.best_weights)
    rest = "."
    if math.isfinite(score):
        rest = f"; the last ones return {score:.1f}"
        rest += ": best.keras has these." if session.keeps_last else "."
    episodes = session.state.config.evaluation_episodes
    warnings.warn(
        f"The weights of the best evaluation return {final.score:.1f} in {final.episodes} "
        f"episodes, and returned {chosen_by:.1f} when {episodes} chose them, by luck{rest} Raise "
        "evaluation_episodes to choose better.",
        stacklevel=2,
    )
    return other if session.keeps_last else final
