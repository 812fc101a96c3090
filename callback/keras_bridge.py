"""Drives Keras callbacks in our runs."""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterable, Sequence
from typing import Any

import keras
import numpy as np

from kytolly.callback.base import Callback, JsonObject, TrainState, warn
from kytolly.config.words import nearest

PER_UPDATE = ("loss", "td_error", "q_mean", "grad_norm")

# They set the learning rate of `model.optimizer`, or read it; our optimizer is the policy's.
NEED_OPTIMIZER: dict[type, str] = {
    keras.callbacks.LearningRateScheduler: "Set learning_rate and learning_rate_final instead",
    keras.callbacks.ReduceLROnPlateau: "Set learning_rate and learning_rate_final instead",
    keras.callbacks.SwapEMAWeights: "Leave it out",
    keras.callbacks.TensorBoard: "Leave it out: a run's folder holds TensorBoard's files already",
}


class KerasCallbacks(Callback):
    """Drives Keras callbacks. An evaluation ends an epoch; a log interval is a batch.

    So every epoch ends with a new `evaluation_return`, and the patience of
    `EarlyStopping(monitor="evaluation_return", mode="max", patience=5)` counts evaluations, as
    our own `EarlyStop` does. Log intervals do not count for it. They are batches for callbacks
    such as `TerminateOnNaN` and `ModelCheckpoint(save_freq=10)`.

    The logs of an epoch are the newest row of metrics, `evaluation_return`,
    `evaluation_return_std` and `evaluation_length`; those of a batch are its own row without
    missing metrics, such as the loss before the first update. Epochs and batches
    count from 0, in a resumed run from the number of evaluations so far.
    `model` is the network that acts. `model.stop_training` ends the run.

    Args:
        callbacks: Keras callbacks, or lists of them.
    """

    def __init__(self, callbacks: Iterable[object]):
        self._given = flat_list(callbacks)
        check_callbacks(self._given, (keras.callbacks.Callback,))
        self._list: Any = None
        self._network: Any = None
        self._epoch = self._batch = self._updates = 0
        self._epoch_is_open = False

    def on_train_begin(self, state: TrainState) -> None:
        """Begin the first epoch."""
        self.stop_reason = None
        self._network = state.network
        self._network.stop_training = False
        every = state.interval("evaluation", 20)
        self._updates = state.updates
        self._epoch = state.progress // every
        self._list = keras.callbacks.CallbackList(
            self._given,
            model=state.network,
            epochs=-(-state.total // every),
            steps=None,
            verbose=1,
        )
        self._list.on_train_begin()
        self._begin_epoch()

    def on_log(self, state: TrainState) -> None:
        """One batch."""
        if self._list is None:
            return
        updated = state.updates > self._updates
        self._updates = state.updates
        logs = {
            name: value
            for name, value in state.metrics.items()
            if not math.isnan(value) or (updated and name in PER_UPDATE)
        }
        if not self._epoch_is_open:
            self._begin_epoch()
        self._list.on_train_batch_begin(self._batch)
        self._list.on_train_batch_end(self._batch, logs)
        self._batch += 1
        self._check_stop(logs)

    def on_evaluation(self, state: TrainState) -> None:
        """End the epoch and, if training goes on, begin the next."""
        if self._list is None or state.evaluation is None:
            return
        logs = dict(state.metrics) | state.evaluation.logs()
        if not self._epoch_is_open:
            self._begin_epoch()
        self._list.on_epoch_end(self._epoch, logs)
        self._epoch = self._epoch + 1
        self._epoch_is_open = False
        self._check_stop(logs)
        if self.stop_reason is None and state.progress < state.total:
            self._begin_epoch()

    def on_train_end(self, state: TrainState) -> None:
        """End the training, if it has begun; an epoch without an evaluation stays open."""
        if self._list is not None:
            self._list.on_train_end()
        self._list = None

    def get_state(self) -> JsonObject:
        """The position in the epochs, and the counters of each callback."""
        names = ("_epoch", "_batch", "_updates", "_epoch_is_open", "stop_reason")
        counts = {name: getattr(self, name) for name in names}
        return {
            "counts": counts,
            "callbacks": [counters(callback) for callback in self._given],
            "kinds": self._kinds(),
        }

    def set_state(self, state: TrainState, saved: JsonObject) -> None:
        """Continue to count; a callback's own settings and its copies of weights are not saved."""
        vars(self).update(saved["counts"])
        if saved["kinds"] != self._kinds():  # what stopped the run is not asked for any more
            self.stop_reason = None
        kinds = [kind for kind, _ in saved["kinds"]]
        for callback, kind, values in zip(self._given, kinds, saved["callbacks"], strict=False):
            if kind == type(callback).__name__:
                vars(callback).update({k: v for k, v in values.items() if k in vars(callback)})

    def _kinds(self) -> list[list[Any]]:
        """Class and patience of each callback."""
        return [[type(c).__name__, getattr(c, "patience", None)] for c in self._given]

    def _begin_epoch(self) -> None:
        self._batch, self._epoch_is_open = 0, True
        self._list.on_epoch_begin(self._epoch)

    def _check_stop(self, logs: dict[str, float]) -> None:
        if self._network.stop_training and self.stop_reason is None:
            broken = not math.isfinite(logs.get("loss", 0.0)) and "loss" in logs
            by_loss = any(isinstance(c, keras.callbacks.TerminateOnNaN) for c in self._given)
            self.stop_reason = "non_finite" if broken and by_loss else "early_stop"


def as_callbacks(cb: object) -> list[Callback]:
    """Our callbacks unchanged, and all Keras callbacks in one of ours, in place of the first.

    Args:
        cb: None, a callback, or callbacks of both kinds in any order, lists among them included.

    Raises:
        TypeError: An item is no callback, or cannot work here; the message names it.
    """
    given = flat_list([] if cb is None else [cb])
    check_callbacks(given, (Callback, keras.callbacks.Callback))
    of_keras = [item for item in given if isinstance(item, keras.callbacks.Callback)]
    callbacks: list[Callback] = []
    for callback in given:
        if isinstance(callback, Callback):
            warn_of_unknown_hooks(callback)
            callbacks.append(callback)
        elif callback is of_keras[0]:
            callbacks.append(KerasCallbacks(of_keras))
    return callbacks


def warn_of_unknown_hooks(callback: Callback) -> None:
    """Warn of methods that look like hooks and that nothing calls, such as `on_evalution`."""
    hooks = [name for name in vars(Callback) if name.startswith("on_")]
    for name in dir(callback):
        if name.startswith("on_") and name not in hooks:
            warn(
                f"{type(callback).__name__} has a method {name}, which is never called: the hooks "
                f"are {', '.join(hooks)}.{nearest(name, hooks)}"
            )


def flat_list(callbacks: Iterable[object]) -> list[Any]:
    """The items of nested lists, tuples and CallbackLists, in their order."""
    flat: list[Any] = []
    for item in callbacks:
        inner = item.callbacks if isinstance(item, keras.callbacks.CallbackList) else item
        flat.extend(flat_list(inner) if isinstance(inner, (list, tuple)) else [inner])
    return flat


def check_callbacks(callbacks: Sequence[object], kinds: tuple[type, ...]) -> None:
    """Refuse what is no callback of these kinds, and callbacks that could not work here."""
    for item in callbacks:
        if isinstance(item, type) and issubclass(item, kinds):
            raise TypeError(
                f"cb holds the class {item.__name__}, expected an instance. "
                f"Write {item.__name__}(...)."
            )
        if not isinstance(item, kinds):
            raise TypeError(
                f"cb holds {type(item).__name__} {item!r:.60}, expected callbacks of this project "
                "(kytolly.callback.base.Callback) or of Keras (keras.callbacks.Callback). Derive "
                "it from one of them."
            )
        for kind, instead in NEED_OPTIMIZER.items():
            if isinstance(item, kind):
                raise TypeError(
                    f"cb holds {type(item).__name__}, which needs model.optimizer; here the "
                    f"network has none, since the policy owns the optimizer. {instead}."
                )


def counters(callback: keras.callbacks.Callback) -> JsonObject:
    """The numbers and words that a Keras callback keeps, apart from its settings."""
    settings = inspect.signature(type(callback).__init__).parameters
    return {
        name: value.item() if isinstance(value, np.generic) else value
        for name, value in vars(callback).items()
        if name not in settings and isinstance(value, (bool, int, float, str, np.generic))
    }
