"""What a training run leaves, in memory and in `result.json`."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from kytolly.agent.kytolly import KytollyAgent
from kytolly.callback.base import Evaluation


@dataclasses.dataclass(frozen=True)
class TrainResult:
    """What a training run leaves."""

    agent: KytollyAgent  # with the run's best weights: `agent.act(observation)`
    history: list[dict[str, float]] = dataclasses.field(repr=False)  # one row a log interval
    evaluation: Evaluation  # greedy episodes with the best weights, at the end
    run_dir: Path
    stopped_by: str  # total_env_steps, reward_threshold, early_stop, time or non_finite
    summary: dict[str, Any] = dataclasses.field(repr=False)  # what `result.json` holds
    unwritten: dict[str, str] = dataclasses.field(default_factory=dict)  # why, by file


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
        "parameters": state.parameters,
        "env_steps": state.env_steps,
        "updates": state.updates,
        "wall_seconds": state.wall_seconds_before + seconds,
        "compile_seconds": session.compile_seconds,
        "env_steps_per_second": session.steady_env_steps / max(session.steady_seconds, 1e-9),
        "evaluation": evaluation.summary(),
        "stopped_by": stopped_by,
        "run_dir": str(state.run_dir),
        "memory": session.memory(),
        **({"faults": session.faults} if session.faults else {}),
        **({} if restarts is None else {"env_restarts": restarts}),
    }
