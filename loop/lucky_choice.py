"""Best weights that an evaluation of few episodes chose by luck."""

from __future__ import annotations

import warnings
from collections.abc import Generator
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np

from kytolly.callback.base import Outcome, TrainState, places

if TYPE_CHECKING:
    from kytolly.loop.learn import Learner

LOSS = 0.05  # of the best, as `LUCK` of a session
REGAINED = 0.5  # of what luck had promised: less is noise
Play = TypeVar("Play")


class EndedSession(Protocol):
    """A `TrainingSession` whose run has ended."""

    learner: Learner
    state: TrainState
    best_weights: list[np.ndarray] | None
    keeps_last: bool


def better_weights(
    session: EndedSession, play: Play, final: Outcome, last: list[np.ndarray]
) -> Generator[Play, Any, Outcome]:
    """Play the run's last weights too, and keep them if they are better; returns the evaluation.

    Args:
        session: Its network has the best weights.
        play: Request of an evaluation of what the network has.
        final: That of the best weights.
        last: The network's weights at the end of training.
    """
    best, policy = session.best_weights, session.learner.policy
    chosen_by, newest = session.state.best_score, session.state.evaluation
    if best is None or newest is None or all(map(np.array_equal, best, last)):
        return final
    longer = final.summary()["length_mean"] > newest.step_limit  # than what chose played
    if final.cut or longer or chosen_by - final.score <= LOSS * abs(chosen_by):
        return final
    if not all(np.isfinite(part).all() for part in last):
        return final
    policy.set_weights(last)
    other = yield play
    if other.cut or other.score - final.score < REGAINED * (chosen_by - final.score):
        policy.set_weights(best)
        return final
    session.best_weights, session.keeps_last = last, True
    digits, count = places(chosen_by, final.score), session.state.config.evaluation_episodes
    episodes = final.summary()["episodes"]
    promised, kept = f"{chosen_by:.{digits}f}", f"{other.score:.{digits}f}"
    warnings.warn(
        f"The best weights returned {promised} when {count} episodes chose them, by luck, and "
        f"{final.score:.{digits}f} in {episodes}. The last ones return {kept}: best.keras "
        "has these. Raise evaluation_episodes to choose better.",
        stacklevel=2,
    )
    return other
