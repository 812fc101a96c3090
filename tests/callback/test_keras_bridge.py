import csv
import math
import warnings

import keras
import numpy as np
import pytest

from kytolly.callback.base import Callback
from kytolly.callback.keras_bridge import KerasCallbacks, as_callbacks
from tests.helpers.states import make_state, metrics_row


@pytest.fixture
def network():
    return keras.Sequential([keras.Input([4]), keras.layers.Dense(2)])


class Recorder(keras.callbacks.Callback):
    def __init__(self):
        super().__init__()
        self.calls, self.logs = [], []

    def on_train_begin(self, logs=None):
        self.calls.append("train begins")

    def on_epoch_begin(self, epoch, logs=None):
        self.calls.append(f"epoch {epoch} begins")

    def on_train_batch_end(self, batch, logs=None):
        self.calls.append(f"batch {batch} ends")
        self.logs.append(logs)

    def on_epoch_end(self, epoch, logs=None):
        self.calls.append(f"epoch {epoch} ends")
        self.logs.append(logs)

    def on_train_end(self, logs=None):
        self.calls.append("train ends")


def drive(callbacks, network, returns, *, rows_per_evaluation=2, start=0, row=None):
    """One evaluation every 200 of 1,000 env steps, with log rows in between, until a stop."""
    bridge = KerasCallbacks(callbacks)
    bridge.on_train_begin(make_state(None, start, network=network, **every_200()))
    step = start
    for value in returns:
        for _ in range(rows_per_evaluation):
            step += 200 // rows_per_evaluation
            bridge.on_log(
                make_state(None, step, network=network, metrics=row or metrics_row(), **every_200())
            )
        network.set_weights([np.full(w.shape, value) for w in network.get_weights()])
        if bridge.stop_reason:
            break
        state = make_state(None, step, value, network=network, metrics=metrics_row(), **every_200())
        bridge.on_evaluation(state)
        if bridge.stop_reason:
            break
    bridge.on_train_end(make_state(None, step, network=network))
    return bridge, step


def every_200():
    config = make_state(None).config
    values = {"total_env_steps": 1_000, "evaluation_interval_env_steps": 200}
    return {"config": type(config)(warmup_env_steps=200, batch_size=32, **values)}


def test_an_evaluation_ends_an_epoch_and_a_log_interval_is_a_batch(network):
    recorder = Recorder()
    drive([recorder], network, [10.0, 20.0])
    assert recorder.calls == [
        "train begins",
        *("epoch 0 begins", "batch 0 ends", "batch 1 ends", "epoch 0 ends"),
        *("epoch 1 begins", "batch 0 ends", "batch 1 ends", "epoch 1 ends"),
        *("epoch 2 begins", "train ends"),  # 400 of 1,000 env steps: interrupted
    ]
    assert recorder.logs[2]["evaluation_return"] == 10.0
    assert recorder.logs[2]["loss"] == 0.5 and recorder.logs[2]["episode_return"] == 20.0
    assert "evaluation_return" not in recorder.logs[0]
    assert recorder.model is network
    assert recorder.params["epochs"] == 5


def test_no_epoch_begins_after_the_last_evaluation(network):
    recorder = Recorder()
    drive([recorder], network, [1.0, 2.0, 3.0, 4.0, 5.0])
    assert recorder.calls[-2:] == ["epoch 4 ends", "train ends"]


def test_a_resumed_run_counts_its_epochs_on(network):
    recorder = Recorder()
    drive([recorder], network, [10.0], start=600)
    assert recorder.calls[1] == "epoch 3 begins"


def early_stopping(**options):
    return keras.callbacks.EarlyStopping(monitor="evaluation_return", mode="max", **options)


@pytest.mark.parametrize("rows_per_evaluation", [1, 10])
def test_patience_counts_evaluations_however_many_rows_lie_between(network, rows_per_evaluation):
    returns = [10.0, 30.0, 20.0, 25.0, 40.0]
    bridge, step = drive(
        [early_stopping(patience=2)], network, returns, rows_per_evaluation=rows_per_evaluation
    )
    assert (bridge.stop_reason, step) == ("early_stop", 800)  # 30 is not beaten by 20 and 25
    bridge, step = drive([early_stopping(patience=3)], network, returns)
    assert (bridge.stop_reason, step) == (None, 1_000)


def test_early_stopping_restores_the_best_weights(network):
    stop = early_stopping(patience=2, restore_best_weights=True)
    drive([stop], network, [10.0, 30.0, 20.0, 25.0, 40.0])
    np.testing.assert_array_equal(network.get_weights()[0], np.full((4, 2), 30.0))


def test_a_second_run_is_not_stopped_by_the_first(network):
    stop = early_stopping(patience=1)
    bridge, _ = drive([stop], network, [10.0, 5.0])
    assert bridge.stop_reason == "early_stop"
    bridge, _ = drive([stop], network, [10.0, 20.0])
    assert bridge.stop_reason is None


def test_model_checkpoint_saves_the_best(network, tmp_path):
    path = tmp_path / "best.keras"
    saver = keras.callbacks.ModelCheckpoint(
        path, monitor="evaluation_return", mode="max", save_best_only=True
    )
    drive([saver], network, [10.0, 30.0, 20.0])
    saved = keras.saving.load_model(path)
    np.testing.assert_array_equal(saved.get_weights()[0], np.full((4, 2), 30.0))


def test_csv_logger_writes_a_row_for_each_evaluation(network, tmp_path):
    path = tmp_path / "epochs.csv"
    drive([keras.callbacks.CSVLogger(path)], network, [10.0, 30.0, 20.0])
    with path.open() as file:
        rows = list(csv.DictReader(file))
    assert [row["evaluation_return"] for row in rows] == ["10.0", "30.0", "20.0"]
    assert [row["epoch"] for row in rows] == ["0", "1", "2"]
    assert rows[0]["loss"] == "0.5"


def test_lambda_callback_and_history_see_every_epoch(network):
    seen = []
    lambda_callback = keras.callbacks.LambdaCallback(
        on_epoch_end=lambda epoch, logs: seen.append((epoch, logs["evaluation_return"]))
    )
    history = keras.callbacks.History()
    drive([lambda_callback, history], network, [10.0, 30.0])
    assert seen == [(0, 10.0), (1, 30.0)]
    assert history.history["evaluation_return"] == [10.0, 30.0]


def test_progbar_logger_and_backup_run(network, tmp_path, capsys):
    backup = keras.callbacks.BackupAndRestore(tmp_path / "backup")
    drive([keras.callbacks.ProgbarLogger(), backup], network, [10.0, 20.0])
    assert "Epoch 2/5" in capsys.readouterr().out


def test_terminate_on_nan_ends_a_run_whose_loss_is_no_number(network):
    row = metrics_row(loss=math.nan)
    bridge, _ = drive([keras.callbacks.TerminateOnNaN()], network, [10.0], row=row)
    assert bridge.stop_reason == "non_finite"


def test_terminate_on_nan_lets_warm_up_pass(network):
    bridge = KerasCallbacks([keras.callbacks.TerminateOnNaN()])
    bridge.on_train_begin(make_state(None, network=network))
    state = make_state(None, 100, updates=0, network=network, metrics=metrics_row(loss=math.nan))
    bridge.on_log(state)
    assert bridge.stop_reason is None


def test_a_batch_has_only_the_metrics_that_there_are(network):
    recorder = Recorder()
    bridge = KerasCallbacks([recorder])
    bridge.on_train_begin(make_state(None, network=network))
    row = metrics_row(loss=math.nan, episode_return=math.nan)
    bridge.on_log(make_state(None, 100, updates=0, network=network, metrics=row))
    bridge.on_log(make_state(None, 200, updates=5, network=network, metrics=row))
    assert "loss" not in recorder.logs[0] and "episode_return" not in recorder.logs[0]
    assert math.isnan(recorder.logs[1]["loss"]) and "episode_return" not in recorder.logs[1]


def test_an_end_without_a_beginning_calls_nothing(network):
    recorder = Recorder()
    KerasCallbacks([recorder]).on_train_end(make_state(None, network=network))
    assert recorder.calls == []


class Ours(Callback):
    pass


def test_as_callbacks_keeps_the_order_and_joins_those_of_keras():
    first, second, last = Ours(), early_stopping(), keras.callbacks.History()
    wrapped = as_callbacks([first, second, (Ours(), [last])])
    assert wrapped[0] is first and isinstance(wrapped[2], Ours) and len(wrapped) == 3
    assert isinstance(wrapped[1], KerasCallbacks) and wrapped[1]._given == [second, last]
    alone = as_callbacks(first)
    assert alone == [first]
    assert as_callbacks(None) == as_callbacks([]) == []
    (joined,) = as_callbacks(keras.callbacks.CallbackList([second, last]))
    assert isinstance(joined, KerasCallbacks) and joined._given == [second, last]


@pytest.mark.parametrize(
    ("cb", "words"),
    [
        ([print], "builtin_function_or_method"),
        ("progress", "str 'progress'"),
        ([Ours], "the class Ours, expected an instance. Write Ours"),
        ([keras.callbacks.EarlyStopping], "the class EarlyStopping, expected an instance"),
        ([keras.callbacks.ReduceLROnPlateau()], "ReduceLROnPlateau, which needs model.optimizer"),
        ([keras.callbacks.TensorBoard()], "holds TensorBoard's files already"),
    ],
)
def test_as_callbacks_names_what_it_cannot_take(cb, words):
    with pytest.raises(TypeError, match=words):
        as_callbacks(cb)


class Mistaken(Ours):
    def on_evalution(self, state):
        pass

    def on_evaluation(self, state):
        pass


def test_methods_that_nothing_calls_are_named():
    with pytest.warns(UserWarning, match="Mistaken has a method on_evalution, .* 'on_evaluation'"):
        as_callbacks([Mistaken()])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        as_callbacks([Ours(), Recorder()])
