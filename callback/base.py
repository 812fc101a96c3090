"""The hooks of a callback and the read-only state that they receive."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

JsonObject: TypeAlias = dict[str, Any]  # what JSON can hold; whoever reads one knows its names


class Outcome(Protocol):
    """An evaluation: greedy episodes of an agent, or a task's metrics on held-out data.

    Attributes:
        score: The number that says which of two evaluations is better.
        cut: Time was up before it had ended.
        step_limit: Env steps after which an episode was cut; 0 where there are none.
        best_metric: Name of the metric that is the score; None where that is the mean return.
        text: The text of the progress display.
        digits: After the point, where the progress display shows the score.
    """

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def digits(self) -> int: ...

    @property
    def score(self) -> float: ...

    @property
    def cut(self) -> bool: ...

    @property
    def step_limit(self) -> int: ...

    @property
    def best_metric(self) -> str | None: ...

    @property
    def text(self) -> str: ...

    def logs(self) -> dict[str, float]:
        """The metrics by the names that Keras callbacks get."""
        ...

    def summary(self) -> dict[str, float]:
        """The metrics that a result file holds."""
        ...


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """Greedy episodes in fresh environments.

    Attributes:
        episodes: Number of episodes.
        return_mean, return_std: Mean and standard deviation over episodes, in reward units.
        length_mean: Mean length of an episode, in env steps.
        returns: Return of every episode.
        cut: Time was up before all episodes had ended.
        step_limit: Env steps after which an episode was cut; 0 where an older build wrote it.
    """

    episodes: int
    return_mean: float
    return_std: float
    length_mean: float
    returns: tuple[float, ...] = dataclasses.field(repr=False, default=())
    cut: bool = False
    step_limit: int = 0

    @property
    def digits(self) -> int:
        """So many that three of the return, or of its deviation if that is larger, are shown."""
        return places(self.return_mean, self.return_std)

    @property
    def best_metric(self) -> None:
        """None: the mean return says which of two evaluations is better."""

    @property
    def score(self) -> float:
        """The number that says which of two evaluations is better."""
        return self.return_mean

    @property
    def limit_of_endless(self) -> int | None:
        """Its `step_limit`, if that cut every episode: longer ones would say no more."""
        return self.step_limit if self.length_mean >= self.step_limit > 0 else None

    @property
    def text(self) -> str:
        """The text of the progress display."""
        return f"return {self.return_mean:.{self.digits}f} ± {self.return_std:.{self.digits}f}"

    def logs(self) -> dict[str, float]:
        """The metrics by the names that Keras callbacks get."""
        metrics = {"return": self.return_mean, "return_std": self.return_std}
        return {f"evaluation_{k}": v for k, v in (metrics | {"length": self.length_mean}).items()}

    @classmethod
    def of_episodes(
        cls, returns: ArrayLike, lengths: ArrayLike, cut: bool = False, step_limit: int = 0
    ) -> Evaluation:
        """The evaluation of [N] episodes with these returns and lengths."""
        returns, lengths = np.asarray(returns), np.asarray(lengths)
        return cls(
            episodes=len(returns),
            return_mean=float(np.mean(returns)),
            return_std=float(np.std(returns)),
            length_mean=float(np.mean(lengths)),
            returns=tuple(map(float, returns)),
            cut=cut,
            step_limit=step_limit,
        )

    def summary(self) -> dict[str, float]:
        """The metrics that a result file holds."""
        names = ("episodes", "return_mean", "return_std", "length_mean")
        return {name: getattr(self, name) for name in names}


def places(*numbers: float) -> int:
    """Digits after the point, at least one, that leave three of the largest of some numbers."""
    size = max(map(abs, numbers))
    return 2 - math.floor(math.log10(size)) if 1e-4 < size < 10 else 1


@dataclasses.dataclass(frozen=True)
class TrainState:
    """The state of a run, as callbacks see it.

    Attributes:
        run_dir: The run's folder.
        config: The run's configuration dataclass.
        env_name: Name of the environment.
        loop: "device" or "host".
        device: Name of the device that trains, such as "/device:CPU:0".
        env_steps, updates, episodes: Counts so far, including those before a run was resumed.
        wall_seconds: Time spent on the run, including that before it was resumed.
        wall_seconds_before: The part of it before the run was resumed.
        metrics: The newest row of metrics, by name (units in docs/metrics.md); NaN where there is
            no value, such as the return of a period in which no episode ended. A number that a
            callback adds in `on_log` or `on_evaluation` is logged with the others.
        evaluation: The newest evaluation.
        best_score: Highest score of an evaluation so far, an agent's is the mean return; of those
            since the last time that episodes became longer than an evaluation's limit.
        is_best: The newest evaluation is the best one.
        longest_episode: Highest mean length of the episodes of a row of metrics, in env steps.
        trackables: Named TensorFlow objects that together hold the whole state of the run.
        network: The Keras model that acts.
        session_state: Makes what belongs to the run beside `trackables`, as JSON can hold it.
    """

    run_dir: Path
    config: Any
    env_name: str
    loop: str
    device: str
    env_steps: int = 0
    updates: int = 0
    episodes: int = 0
    wall_seconds: float = 0.0
    wall_seconds_before: float = 0.0
    metrics: dict[str, float] = dataclasses.field(default_factory=dict)
    evaluation: Outcome | None = None
    best_score: float = -float("inf")
    is_best: bool = False
    longest_episode: float = 0.0
    trackables: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    network: Any = None
    session_state: Callable[[], JsonObject] = dict
    unit: ClassVar[str] = "env_steps"  # in which the run's length and its intervals are counted

    @property
    def units(self) -> str:
        """`unit` in words."""
        return self.unit.replace("_", " ")

    @property
    def progress(self) -> int:
        """The part of the run that is done, in `unit`."""
        return getattr(self, self.unit)

    @property
    def total(self) -> int:
        """The end of the run, unless something stops it earlier, in `unit`."""
        return getattr(self.config, f"total_{self.unit}")

    @property
    def parameters(self) -> int:
        """Numbers in the weights that training changes."""
        return sum(math.prod(weight.shape) for weight in self.network.trainable_variables)

    def interval(self, name: str, share_of_run: int) -> int:
        """The interval between two logs, evaluations or checkpoints; by default a share."""
        interval = getattr(self.config, f"{name}_interval_{self.unit}")
        return interval if interval is not None else max(1, self.total // share_of_run)


class Callback:
    """Watches a run. A subclass overrides the hooks that it needs.

    A callback that wants to end the run sets `stop_reason` to one of the words of
    `result.json`'s `stopped_by`.

    Attributes:
        writes: What the callback writes, such as "metrics.csv". Where it is set, an error in a hook
            other than `on_train_begin` is a warning and does not end the run.
    """

    stop_reason: str | None = None
    writes: str | None = None

    def on_compile_begin(self, state: TrainState) -> None:
        """Called before the run's program is compiled, which takes seconds."""

    def on_train_begin(self, state: TrainState) -> None:
        """Called before the first env step."""

    def on_log(self, state: TrainState) -> None:
        """Called after every log interval; `state.metrics` is new."""

    def on_evaluation(self, state: TrainState) -> None:
        """Called after every evaluation; `state.evaluation` is new."""

    def on_interval_end(self, state: TrainState) -> None:
        """Called after a log interval and its evaluation: nothing is half done."""

    def on_train_end(self, state: TrainState) -> None:
        """Called after the last env step, also when the run was interrupted."""

    def on_run_end(self, state: TrainState) -> None:
        """Called last: `result.json` and all other files are there. Not after an interruption."""

    def get_state(self) -> JsonObject:
        """The state that a resumed run needs, as JSON can hold it; a checkpoint keeps it."""
        return {}

    def set_state(self, state: TrainState, saved: JsonObject) -> None:
        """Continue from what `get_state` gave; called after `on_train_begin` in a resumed run."""


def notify(
    callbacks: Iterable[Callback], hook: str, state: TrainState, unwritten: dict[str, str]
) -> None:
    """Call a hook of the callbacks in turn; `unwritten` gets what they cannot write, and why.

    All are called, whatever one of them raises: a mistake in one loses no row of another.
    """
    with contextlib.ExitStack() as calls:
        for callback in reversed(list(callbacks)):
            call = functools.partial(getattr(callback, hook), state)
            if callback.writes is not None and hook != "on_train_begin":
                what = callback.writes, call, state.run_dir, unwritten
                call = functools.partial(write_or_note, *what)
            calls.callback(call)


def write_or_note(
    what: str, write: Callable[[], object], run_dir: Path, unwritten: dict[str, str]
) -> None:
    """Write something; where that fails, warn once for each kind and go on."""
    try:
        write()
    except Exception as error:
        if what in unwritten:
            return
        unwritten[what] = " ".join(str(getattr(error, "strerror", "") or error).split())
        warn(
            f"{run_dir}: {what} cannot be written ({unwritten[what]:.200}). Training goes on; what "
            "was written before stays."
        )


def warn(text: str) -> None:
    """Warn at the line that called this project, as Python shows it with the warning.

    `notify` calls hooks through contextlib, whose line would say nothing to anybody.
    """
    frame, level = sys._getframe(1), 2
    between = ("kytolly", "contextlib")  # a user's line and a hook
    while frame.f_back and frame.f_globals.get("__name__", "").partition(".")[0] in between:
        frame, level = frame.f_back, level + 1
    warnings.warn(text, stacklevel=level)
