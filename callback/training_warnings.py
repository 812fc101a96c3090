"""Says, at most once each, what goes wrong in a run that still trains."""

from __future__ import annotations

import dataclasses
import itertools
import math
import statistics
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from kytolly.callback.base import Callback, Evaluation, JsonObject, TrainState, warn

if TYPE_CHECKING:
    from kytolly.config.run import RunConfig
    from kytolly.config.supervised import SupervisedConfig

IDLE_SHARE = 0.5  # of the time, above which the device waits too long
IDLE_SECONDS = 30.0  # of training, before anything is said about it
CLIPPED_SHARE = 0.05  # of the targets' probability, above which a distribution's bounds are wrong
JUMP = 10.0  # times the running median
WINDOW = 20  # rows of the running median
MIN_ROWS = 5  # rows before a jump can be seen
DETAILS = {  # settings that change nothing without another
    "noisy": ("noise_scale",),
    "prioritized": ("priority_exponent", "importance_exponent"),
    "munchausen": ("munchausen_scale", "munchausen_lowest", "entropy_temperature"),
    "network impala": ("impala_width", "impala_pool_size", "spectral_norm"),
}
WITHOUT_EFFECT = {  # settings that change nothing with another, or in these algorithms
    "noisy": ("epsilon_start", "epsilon_final", "exploration_env_steps", "exploration_repeat"),
    "c51": ("huber_delta",),
    "rainbow": ("huber_delta",),
}
TREND = 5  # evaluations, each higher or lower than the one before
NOISE = 2.0  # deviations of an evaluation's returns by which it must have fallen
MIN_FALL = 0.01  # of the first score, by which the last one must be lower


class TrendPoint(NamedTuple):
    """The returns of training and of evaluation at one evaluation; higher is better.

    Attributes:
        training: Return of the training episodes; of texts, the negative loss.
        score: Score of the evaluation.
        deviation: Standard deviation of the returns of its episodes; 0 of texts.
        comparable: Training and evaluation measure the same, in the same units.
    """

    training: float
    score: float
    deviation: float
    comparable: bool


def trend_point(state: TrainState, mean_loss: float) -> TrendPoint | None:
    """The point of the newest evaluation; None where training has no number yet.

    Args:
        state: After the evaluation.
        mean_loss: Of the updates since the previous one.
    """
    evaluation = state.evaluation
    if isinstance(evaluation, Evaluation):
        training = state.metrics.get("episode_return", math.nan)
        point = TrendPoint(training, evaluation.return_mean, evaluation.return_std, True)
    elif evaluation is not None:
        point = TrendPoint(-mean_loss, evaluation.score, 0.0, False)
    else:
        return None
    return point if math.isfinite(point.training) and math.isfinite(point.score) else None


def is_overfitting(points: Sequence[TrendPoint]) -> bool:
    """True where training rises over `TREND` evaluations while these get worse.

    Evaluations of agents that learn well go up and down, too. So each must be worse than the one
    before, the fall more than noise, and the last below the training episodes, which explore. Those
    of texts have no noise of episodes: it suffices that none comes near the first again.
    """
    if len(points) < TREND:
        return False
    first, last = points[0], points[-1]
    if not last.comparable:
        fall = first.score - max(point.score for point in points[1:])
        return first.training < last.training and fall > MIN_FALL * abs(first.score)
    steps = itertools.pairwise(points)
    diverge = all(old.training < new.training and old.score > new.score for old, new in steps)
    noise = NOISE * max(point.deviation for point in points)
    fall = first.score - last.score
    big = fall > noise and fall > MIN_FALL * abs(first.score)
    return diverge and big and last.score < last.training


def overfitting_words(state: TrainState, first: TrendPoint, last: TrendPoint) -> str:
    """The warning about an agent that fits its exploration, or a network that fits its texts."""
    when = f"over {TREND} evaluations up to {state.units[:-1]} {state.progress:,}"
    fell = f"fell from {first.score:.4g} to {last.score:.4g}"
    advice = "The best weights are kept"
    if last.comparable:
        return (
            f"{when} the training return rose from {first.training:.4g} to {last.training:.4g}, "
            f"and the evaluation return {fell}: the agent may fit its exploration or its training "
            f"environments. {advice}; look at the evaluation environment, or stop early with "
            "early_stop_patience."
        )
    name = state.evaluation.best_metric if state.evaluation else "score"
    return (
        f"{when} the training loss fell from {-first.training:.4g} to {-last.training:.4g}, and "
        f"{name} of the evaluations {fell}: the network overfits its training data. {advice}; stop "
        "early with early_stop_patience, raise weight_decay, or give more data."
    )


class TrainingWarnings(Callback):
    """Warns if the device idles, the loss jumps, or evaluations fall while training rises."""

    def __init__(self):
        self._said: list[str] = []
        self._losses: list[float] = []
        self._trend: list[TrendPoint] = []  # of the last evaluations
        self._sum = [0.0, 0.0]  # of the losses since the last evaluation, and how many they are
        self._idle = [0.0, 0.0]  # idle and all seconds since the first update
        self._updates = self._env_steps = 0

    def on_train_begin(self, state: TrainState) -> None:
        """Forget an earlier run."""
        self.__init__()
        self._updates = state.updates
        self._env_steps = state.env_steps
        self._look_at_settings(state.config)

    def on_log(self, state: TrainState) -> None:
        """Look at the newest metrics."""
        updates, self._updates = state.updates - self._updates, state.updates
        env_steps, self._env_steps = state.env_steps - self._env_steps, state.env_steps
        if updates > 0:
            self._look_at_loss(state)
            self._look_at_idle(state, env_steps)
            self._look_at_bounds(state)
            self._look_at_priorities(state)

    def on_evaluation(self, state: TrainState) -> None:
        """Compare the trends of training and evaluation."""
        point = trend_point(state, self._mean_loss())
        self._sum = [0.0, 0.0]
        if point is None or state.updates == 0:
            return
        self._trend = [*self._trend, point][-TREND:]
        if is_overfitting(self._trend):
            self._say("trends", overfitting_words(state, self._trend[0], point))

    def _mean_loss(self) -> float:
        """Mean of the logged losses since the last evaluation; NaN where there is none."""
        total, count = self._sum
        return total / count if count else math.nan

    def get_state(self) -> JsonObject:
        """The warnings so far, and the values that are compared."""
        trend = [list(point) for point in self._trend]
        return {"said": self._said, "losses": self._losses, "trend": trend, "sum": self._sum}

    def set_state(self, state: TrainState, saved: JsonObject) -> None:
        """Continue to compare; nothing is said twice."""
        self._said, self._losses = list(saved["said"]), list(saved["losses"])
        self._trend = [TrendPoint(*point) for point in saved.get("trend", ())]
        self._sum = list(saved.get("sum", self._sum))  # older runs have neither

    def _look_at_settings(self, cfg: RunConfig | SupervisedConfig) -> None:
        values = {field.name: getattr(cfg, field.name) for field in dataclasses.fields(cfg)}
        given = {f.name for f in dataclasses.fields(cfg) if values[f.name] != f.default}

        def is_on(switch: str) -> bool:
            if switch == "network impala":
                return str(values.get("network")).endswith("impala")
            return bool(getattr(cfg, switch, False)) or switch == cfg.algorithm

        idle = {name: s for s, names in DETAILS.items() if not is_on(s) for name in names}
        for name in filter(given.__contains__, idle):
            why = f"changes nothing without {idle[name]}: set that, or leave {name} out."
            self._say(name, f"{name} is {values[name]}, and {why}")
        idle = {name: s for s, names in WITHOUT_EFFECT.items() if is_on(s) for name in names}
        for name in filter(given.__contains__, idle):
            why = f"changes nothing with {idle[name]}: leave it out."
            self._say(name, f"{name} is {values[name]}, and {why}")

    def _look_at_loss(self, state: TrainState) -> None:
        # The loss of a policy gradient passes 0 and says nothing; its values' loss does.
        name = "value_loss" if "value_loss" in state.metrics else "loss"
        value = state.metrics.get(name, math.nan)
        if not math.isfinite(value):
            return
        usual = statistics.median(self._losses) if len(self._losses) >= MIN_ROWS else math.inf
        if value > JUMP * usual > 0:
            rate = state.metrics.get("learning_rate", math.nan)
            self._say(
                "loss",
                f"{name} is {value:.3g} after {state.progress:,} {state.units}, more than "
                f"{JUMP:g} times its running median {usual:.3g}. If it stays there, lower "
                f"learning_rate (now {rate:.3g}) or max_grad_norm, or set warmup_ratio.",
            )
        self._losses = [*self._losses, value][-WINDOW:]
        self._sum = [self._sum[0] + value, self._sum[1] + 1]

    def _look_at_idle(self, state: TrainState, env_steps: int) -> None:
        share, speed = (state.metrics.get(n, 0.0) for n in ("device_idle", "env_steps_per_second"))
        if "device_idle" not in state.metrics or not speed > 0:
            return
        seconds = env_steps / speed
        self._idle = [self._idle[0] + share * seconds, self._idle[1] + seconds]
        idle, seconds = self._idle
        if seconds >= IDLE_SECONDS and idle > IDLE_SHARE * seconds:
            self._say(
                "idle",
                f"the device waited for environments {idle / seconds:.0%} of the time. Raise "
                "num_envs, set async_envs, or give an environment in tensor code.",
            )

    def _look_at_bounds(self, state: TrainState) -> None:
        share = state.metrics.get("clipped_targets", 0.0)
        cfg = state.config
        if share > CLIPPED_SHARE:
            self._say(
                "bounds",
                f"{share:.0%} of the targets' probability lay beyond value_min {cfg.value_min:g} "
                f"and value_max {cfg.value_max:g} after {state.env_steps:,} env steps, and was "
                "clipped: returns reach further. Widen the bounds, or lower gamma.",
            )

    def _look_at_priorities(self, state: TrainState) -> None:
        count = state.metrics.get("ignored_priorities", 0.0)
        if count > 0.0:
            self._say(
                "priorities",
                f"{count:,.0f} errors of rows that are not finite were ignored up to env step "
                f"{state.env_steps:,}: these rows keep the priorities that they had. Look at the "
                "rewards, lower learning_rate, or set prioritized to false.",
            )

    def _say(self, what: str, text: str) -> None:
        if what not in self._said:
            self._said.append(what)
            warn(text)


class StopOnNonFinite(Callback):
    """Stops when the loss or the action values are no longer numbers, and names the suspects.

    Rows of metrics without an update hold NaN as well; they are ignored.
    """

    def __init__(self):
        self._updates = 0

    def on_train_begin(self, state: TrainState) -> None:
        """Count updates from here."""
        self.stop_reason = None
        self._updates = state.updates

    def on_log(self, state: TrainState) -> None:
        """Look at the newest metrics."""
        updated = state.updates > self._updates
        self._updates = state.updates
        if not updated:
            return
        for name in ("loss", "q_mean", "value_loss"):
            value = state.metrics.get(name, 0.0)
            if not math.isfinite(value):
                self.stop_reason = "non_finite"
                warn(
                    f"{name} is {value} after {state.progress:,} {state.units}: training cannot "
                    f"continue. Suspects: {suspects(state)}, or NaN in what is learned from."
                )
                return


def suspects(state: TrainState) -> str:
    """The settings that may make numbers overflow, with the values found, in words."""
    rate = state.metrics.get("learning_rate", math.nan)
    clipping = getattr(state.config, "max_grad_norm", None)
    policy = getattr(state.network, "dtype_policy", None)
    precision = getattr(policy, "name", getattr(state.config, "precision", "unknown"))
    half = " (try float32 or mixed_bfloat16)" if precision == "mixed_float16" else ""
    return (
        f"learning_rate, now {rate:.3g}, and max_grad_norm {clipping} (lower them), precision "
        f"{precision}{half}"
    )
