"""What training logs, from the sums over an interval."""

from __future__ import annotations

from typing import Any

import numpy as np

from kytolly.agent.kytolly import KytollyAgent
from kytolly.callback.base import TrainState
from kytolly.loop.learn import LoopMetrics


def log_row(session: Any, before: TrainState, seconds: float) -> dict[str, float]:
    """The metrics by name of a session's interval of so many seconds, and its state `before`."""
    row, now = averages(session.sums, session.agent), session.state
    if session.loop.env_restarts is not None:
        row["env_restarts"] = session.loop.env_restarts
    if session.loop.idle_seconds is not None:
        row["device_idle"], session.loop.idle_seconds = session.loop.idle_seconds / seconds, 0.0
    row["learning_rate"] = float(session.agent.policy.optimizer.learning_rate)
    row["env_steps_per_second"] = (now.env_steps - before.env_steps) / seconds
    row["updates_per_second"] = (now.updates - before.updates) / seconds
    return row


def averages(sums: LoopMetrics, agent: KytollyAgent) -> dict[str, float]:
    """Means over updates and over episodes, by name; NaN where there was none."""
    with np.errstate(invalid="ignore", divide="ignore"):
        fit = np.asarray(sums.fit, np.float64)
        fit = fit[0] / fit[1] if fit.ndim == 2 else fit / np.float64(sums.updates)
        episodes = np.array([sums.episode_return, sums.episode_length]) / np.float64(sums.episodes)
    names = *agent.policy.metric_names, *agent.latest_names, "episode_return", "episode_length"
    return dict(zip(names, map(float, [*fit, *np.asarray(sums.latest), *episodes]), strict=True))
