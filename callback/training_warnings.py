"""Says, at most once each, what goes wrong in a run that still trains."""

from __future__ import annotations

import dataclasses
import math
import statistics
from typing import TYPE_CHECKING

from kytolly.callback.base import Callback, Evaluation, JsonObject, TrainState, warn

if TYPE_CHECKING:
    from kytolly.callback.diagnoses import RareMetrics, TrendPoint
    from kytolly.config.run import RunConfig
    from kytolly.config.supervised import SupervisedConfig

JUMP = 10.0  # times the running median
WINDOW = 20  # rows of the running median
MIN_ROWS = 5  # rows before a jump can be seen
STAYS = 6  # rows in turn, after which a jump is no single surprise
DETAILS = {  # settings that change nothing without another
    "noisy": ("noise_scale",),
    "prioritized": ("priority_exponent", "importance_exponent"),
    "munchausen": ("munchausen_scale", "munchausen_lowest", "entropy_temperature"),
    "network impala": ("impala_width", "impala_pool_size", "spectral_norm"),
}
WITHOUT_EFFECT = {  # settings that change nothing with another, or in these algorithms
    "c51": ("huber_delta",),
    "rainbow": ("huber_delta",),
}
RARE_METRICS = ("device_idle", "clipped_targets", "ignored_priorities")  # few runs have them
TREND = 5  # evaluations that are compared


def trend_point(state: TrainState, mean_loss: float) -> TrendPoint | None:
    """The point of the newest evaluation; None where training has no number yet.

    Args:
        state: After the evaluation.
        mean_loss: Of the updates since the previous one; what training says where none plays.
    """
    evaluation = state.evaluation
    if isinstance(evaluation, Evaluation):
        training = state.metrics.get("episode_return", math.nan)
        point = training, evaluation.return_mean, evaluation.return_std, True
    elif evaluation is not None:
        point = -mean_loss, evaluation.score, 0.0, False
    else:
        return None
    return point if math.isfinite(point[0]) and math.isfinite(point[1]) else None


class TrainingWarnings(Callback):
    """Warns if the device idles, the loss jumps, or evaluations fall while training rises."""

    def __init__(self):
        self._said: list[str] = []
        self._losses, self._returns, self._jumps = [], [], 0  # of the last rows; jumps in turn
        self._trend: list[TrendPoint] = []  # of the last evaluations
        self._sum = [0.0, 0.0]  # of the losses since the last evaluation, and how many they are
        self._rare: RareMetrics | None = None
        self._updates = self._env_steps = 0

    def on_train_begin(self, state: TrainState) -> None:
        """Forget an earlier run."""
        self.__init__()
        self._updates, self._env_steps = state.updates, state.env_steps
        self._look_at_settings(state.config)

    def on_log(self, state: TrainState) -> None:
        """Look at the newest metrics."""
        updates, self._updates = state.updates - self._updates, state.updates
        env_steps, self._env_steps = state.env_steps - self._env_steps, state.env_steps
        if updates > 0:
            self._look_at_loss(state)
            if any(name in state.metrics for name in RARE_METRICS):
                self._look_at_rare_metrics(state, env_steps)

    def on_evaluation(self, state: TrainState) -> None:
        """Compare the trends of training and evaluation."""
        total, count = self._sum
        point = trend_point(state, total / count if count else math.nan)
        self._sum = [0.0, 0.0]
        if point is None or state.updates == 0:
            return
        first, self._trend = len(self._trend) < TREND, [*self._trend, point][-TREND:]
        if len(self._trend) == TREND:
            from kytolly.callback.diagnoses import trend_faults

            for what, text in trend_faults(state, self._trend, first):
                self._say(what, text)

    def get_state(self) -> JsonObject:
        """The warnings so far, and the values that are compared."""
        trend = [list(point) for point in self._trend]
        return {"said": self._said, "losses": self._losses, "trend": trend, "sum": self._sum}

    def set_state(self, state: TrainState, saved: JsonObject) -> None:
        """Continue to compare; nothing is said twice."""
        self._said, self._losses = list(saved["said"]), list(saved["losses"])
        self._trend = [tuple(point) for point in saved.get("trend", ())]
        self._sum = list(saved.get("sum", self._sum))  # older runs have neither

    def _look_at_settings(self, cfg: RunConfig | SupervisedConfig) -> None:
        given = {f.name for f in dataclasses.fields(cfg) if getattr(cfg, f.name) != f.default}

        def is_on(switch: str) -> bool:
            if switch == "network impala":
                return str(getattr(cfg, "network", "")).endswith("impala")
            return bool(getattr(cfg, switch, False)) or switch == cfg.algorithm

        idle = {name: s for s, names in DETAILS.items() if not is_on(s) for name in names}
        for name in filter(given.__contains__, idle):
            why = f"changes nothing without {idle[name]}: set that, or leave {name} out."
            self._say(name, f"{name} is {getattr(cfg, name)}, and {why}")
        idle = {name: s for s, names in WITHOUT_EFFECT.items() if is_on(s) for name in names}
        for name in filter(given.__contains__, idle):
            why = f"changes nothing with {idle[name]}: leave it out."
            self._say(name, f"{name} is {getattr(cfg, name)}, and {why}")

    def _look_at_loss(self, state: TrainState) -> None:
        # The loss of a policy gradient passes 0 and says nothing; its values' loss does.
        name = "value_loss" if "value_loss" in state.metrics else "loss"
        value = state.metrics.get(name, math.nan)
        if not math.isfinite(value):
            return
        usual = statistics.median(self._losses) if len(self._losses) >= MIN_ROWS else math.inf
        self._jumps = self._jumps + 1 if value > JUMP * usual > 0 else 0
        returns = [*self._returns, state.metrics.get("episode_return", math.nan)]
        self._returns = [one for one in returns if math.isfinite(one)][-WINDOW:]
        rises = self._returns and self._returns[-1] > statistics.median(self._returns)
        if self._jumps >= STAYS and not rises:  # of rewards found anew, losses rise too
            from kytolly.callback.diagnoses import jumped_loss

            self._say("loss", jumped_loss(state, name, value, usual, JUMP))
        self._losses = [*self._losses, value][-WINDOW:]
        self._sum = [self._sum[0] + value, self._sum[1] + 1]

    def _look_at_rare_metrics(self, state: TrainState, env_steps: int) -> None:
        if self._rare is None:
            from kytolly.callback.diagnoses import RareMetrics

            self._rare = RareMetrics()
        for what, text in self._rare.faults(state, env_steps):
            self._say(what, text)

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
        self.stop_reason, self._updates = None, state.updates

    def on_log(self, state: TrainState) -> None:
        """Look at the newest metrics."""
        before, self._updates = self._updates, state.updates
        if state.updates <= before:
            return
        for name in ("loss", "q_mean", "value_loss"):
            value = state.metrics.get(name, 0.0)
            if not math.isfinite(value):
                from kytolly.callback.diagnoses import suspects

                self.stop_reason = "non_finite"
                warn(
                    f"{name} is {value} after {state.progress:,} {state.units}: training cannot "
                    f"continue. Suspects: {suspects(state)}, or NaN in what is learned from."
                )
                return
