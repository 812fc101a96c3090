"""The contracts between a session, a loop, and what evaluates and reports.

Only types are here: nothing of it is loaded when a run trains.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol, TypeAlias

import gymnasium
import keras

from kytolly.agent.kytolly import KytollyAgent
from kytolly.callback.base import Evaluation, JsonObject, Outcome, TrainState
from kytolly.environment.spec import EnvSpec, TensorEnvironment
from kytolly.loop.learn import LoopMetrics
from kytolly.loop.limits import EpisodeLimit

# What a user may give for an environment: an id, an environment or several, or what makes one.
EnvSource: TypeAlias = (
    str
    | gymnasium.Env
    | gymnasium.vector.VectorEnv
    | TensorEnvironment
    | Callable[[], gymnasium.Env | gymnasium.vector.VectorEnv]
)


class Loop(Protocol):
    """Trains a learner, whose state changes in place.

    Attributes:
        compile_seconds: Time of the last call that went into compiling a program, beside that of
            the call with 0; such a call is no measure of speed.
        env_restarts: Environments that were made anew; None where a fault ends a run.
    """

    compile_seconds: float

    def run(self, amount: int, deadline: float = math.inf) -> LoopMetrics:
        """Train for at least `amount` env steps, or at most `amount` updates; 0 only compiles.

        A loop may end in OutOfTime when `time.perf_counter()` passes the `deadline`.
        """
        ...

    def bring_up_to_date(self) -> None:
        """Give the `trackables` the state that the loop has elsewhere, before they are saved."""
        ...

    def take_idle_seconds(self) -> float | None:
        """Seconds that learning has waited since the last call; None where it never waits."""
        ...

    @property
    def env_restarts(self) -> int | None: ...

    @property
    def trackables(self) -> Mapping[str, object]:
        """TensorFlow objects by name, which a checkpoint holds beside the learner."""
        ...

    @property
    def xla(self) -> bool:
        """True if the program is compiled with XLA; known after the first call."""
        ...

    def close(self) -> None:
        """Release what the loop holds."""
        ...


class Evaluator(Protocol):
    """Plays episodes greedily, with the network as it is at each call."""

    limit: EpisodeLimit

    def evaluate(self, number: int = 0, deadline: float = math.inf) -> Evaluation:
        """The returns and lengths of the episodes, other ones for each `number`.

        If `time.perf_counter()` passes the `deadline`, only episodes that have ended count, or,
        where none has, what all of them have reached.
        """
        ...


class EnvRunner(Protocol):
    """Makes a loop and evaluators for one kind of environment.

    Attributes:
        loop_name: "device" or "host".
        num_envs: Environments that train.
        spec: What the environment is.
    """

    loop_name: str
    num_envs: int
    spec: EnvSpec

    def loop(self, agent: KytollyAgent, device: str | None) -> Loop:
        """The loop that trains, on a device such as "/GPU:0"; None leaves it to TensorFlow."""
        ...

    def reclaim(self) -> None:
        """Take back the environments of the newest loop, which has ended, for another one."""
        ...

    def evaluator(
        self,
        network: keras.Model,
        episodes: int,
        seed: int,
        *,
        xla: bool,
        device: str | None,
        step_limit: int | None = None,
    ) -> Evaluator:
        """Plays so many episodes, apart from the environments that train.

        `step_limit` cuts an episode that nothing else limits, in env steps.
        """
        ...

    def close(self) -> None:
        """Close the environments that were made here, but for those of a loop."""
        ...


class Report(Protocol):
    """Says in the words of its kind of training how far a run is, and how good.

    Attributes:
        name: Name of the environment or of the data.
        env_spec: What the environment is; None where there is none.
        outcome: The dataclass of the evaluations.
    """

    @property
    def outcome(self) -> type[Outcome]: ...

    @property
    def name(self) -> str: ...

    @property
    def env_spec(self) -> EnvSpec | None: ...

    def first_state(self, run_dir: Path) -> TrainState:
        """The run at its beginning."""
        ...

    def counts(self) -> dict[str, int]:
        """All that is counted, by the names of `TrainState`."""
        ...

    def evaluate(self, state: TrainState, deadline: float) -> Outcome:
        """The evaluation of the present weights, at that point of the run; others at another."""
        ...

    def evaluate_best(self, deadline: float) -> Outcome:
        """The evaluation of the best weights, which the network has, at the end of a run."""
        ...

    def is_steady(self, progress: int) -> bool:
        """True if the last call of the loop, which began there, is a measure of speed."""
        ...

    def row(
        self, sums: LoopMetrics, before: TrainState, now: TrainState, seconds: float
    ) -> dict[str, float]:
        """The metrics by name of the so many seconds between two states."""
        ...

    def summary(
        self, state: TrainState, speed: float, compile_seconds: float, evaluation: Outcome
    ) -> JsonObject:
        """The entries of `result.json` for this kind of training.

        Args:
            state: The run at its end.
            speed: Units in a second of the loop's program after warm-up.
            compile_seconds: Time that went into compiling.
            evaluation: The evaluation of the best weights.
        """
        ...
