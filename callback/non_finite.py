"""Ends a run whose numbers are no longer finite, and says what may have caused it."""

from __future__ import annotations

import math

from kytolly.callback.base import Callback, TrainState, warn


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
        updated, self._updates = state.updates > self._updates, state.updates
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
