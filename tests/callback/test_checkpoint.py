import dataclasses
import gc
import logging
import os
import warnings

import keras
import numpy as np
import pytest
import tensorflow as tf

from kytolly.callback.checkpoint import CheckpointSaver, checkpoints, restore, save_network
from tests.callback.states import make_state


class ListOfLayers(keras.Model):
    """A model as users write it: its layers are in a list, which TensorFlow does not follow."""

    def __init__(self, units=3):
        super().__init__()
        self.units = units
        self.hidden = [keras.layers.Dense(units), keras.layers.Dense(2)]

    def build(self, input_shape):
        for layer in self.hidden:
            layer.build(input_shape)
            input_shape = layer.compute_output_shape(input_shape)
        self.built = True

    def call(self, x):
        for layer in self.hidden:
            x = layer(x)
        return x

    def get_config(self):
        return {"units": self.units}


class Unsaveable(ListOfLayers):
    get_config = keras.Model.get_config

    def __init__(self, units):
        super().__init__(units)


class Learner(tf.Module):
    """What an agent holds, in small: two networks, an optimiser, a buffer and a counter."""

    def __init__(self, units=3, rows=8, dtype=tf.float32, model=ListOfLayers):
        super().__init__()
        self.online, self.target = model(units), model(units)
        for network in (self.online, self.target):
            network.build((None, 4))
        self.optimizer = keras.optimizers.Adam()
        self.optimizer.build(self.online.trainable_variables)
        self.rows = tf.Variable(tf.zeros([rows], dtype))
        self.env_steps = tf.Variable(0, dtype=tf.int64)

    def train(self, env_steps):
        """Give every variable a value that belongs to this number of env steps."""
        everything = [*self.online.variables, *self.target.variables, *self.optimizer.variables]
        for offset, variable in enumerate([*everything, self.rows]):
            value = np.full(variable.shape, env_steps + offset / 8)
            variable.assign(tf.cast(value, variable.dtype))
        self.env_steps.assign(env_steps)

    def values(self):
        everything = [*self.online.variables, *self.target.variables, *self.optimizer.variables]
        return [np.asarray(v) for v in (*everything, self.rows, self.env_steps)]


def state_of(learner, run_dir, env_steps, **changes):
    state = make_state(run_dir, env_steps, **changes)
    trackables = {"agent": learner}
    return dataclasses.replace(state, trackables=trackables, network=learner.online)


def train(run_dir, upto, *, start=0, interval=100, keep=2, log_every=50, learner=None):
    learner = learner or Learner()
    saver = CheckpointSaver(interval, keep)
    saver.on_train_begin(state_of(learner, run_dir, start))
    for env_steps in range(start + log_every, upto + 1, log_every):
        learner.train(env_steps)
        saver.on_log(state_of(learner, run_dir, env_steps))
    saver.on_train_end(state_of(learner, run_dir, upto))
    return learner


def steps_on_disk(run_dir):
    return [steps for steps, _ in checkpoints(run_dir / "checkpoints")]


def restored_steps(run_dir):
    learner = Learner()
    restore(run_dir, {"agent": learner})
    return int(learner.env_steps)


def test_every_value_comes_back_into_objects_that_were_made_anew(tmp_path):
    trained, fresh = train(tmp_path, 300), Learner()
    path = restore(tmp_path, {"agent": fresh})
    assert path == str(tmp_path / "checkpoints" / "ckpt-300")
    for value, expected in zip(fresh.values(), trained.values(), strict=True):
        np.testing.assert_array_equal(value, expected)


def test_saves_at_each_interval_and_keeps_the_newest(tmp_path):
    saver, learner = CheckpointSaver(100, keep=2), Learner()
    saver.on_train_begin(state_of(learner, tmp_path, 0))
    seen = []
    for env_steps in (60, 90, 160, 220, 260, 400):  # the log interval is not a divisor of 100
        saver.on_log(state_of(learner, tmp_path, env_steps))
        seen.append(steps_on_disk(tmp_path))
    assert seen == [[], [], [160], [160], [260, 160], [400, 260]]
    assert tf.train.latest_checkpoint(str(tmp_path / "checkpoints")).endswith("ckpt-400")
    saver.on_train_end(state_of(learner, tmp_path, 430))
    assert steps_on_disk(tmp_path) == [430, 400]


def test_the_end_saves_nothing_twice(tmp_path):
    train(tmp_path, 200)
    index = tmp_path / "checkpoints" / "ckpt-200.index"
    os.utime(index, (1, 1))
    saver, learner = CheckpointSaver(100), Learner()
    saver.on_train_begin(state_of(learner, tmp_path, 200))  # resumed, and interrupted at once
    saver.on_train_end(state_of(learner, tmp_path, 200))
    assert index.stat().st_mtime == 1


def test_a_run_that_never_began_leaves_what_was_saved(tmp_path):
    train(tmp_path, 200)
    CheckpointSaver(100).on_train_end(state_of(Learner(), tmp_path, 0))
    assert steps_on_disk(tmp_path) == [200, 100]
    assert restored_steps(tmp_path) == 200


def test_an_interrupted_run_can_be_resumed_from_its_first_steps(tmp_path):
    train(tmp_path, 0)
    assert restored_steps(tmp_path) == 0


def test_a_network_that_is_not_finite_is_not_saved(tmp_path):
    saver, learner = CheckpointSaver(100), Learner()
    saver.on_train_begin(state_of(learner, tmp_path, 0))
    learner.train(100)
    saver.on_log(state_of(learner, tmp_path, 100))
    learner.online.variables[0].assign(np.full((4, 3), np.nan))
    with pytest.warns(UserWarning, match="not finite after 200 env steps"):
        saver.on_train_end(state_of(learner, tmp_path, 200))
    assert restored_steps(tmp_path) == 100


def cut(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def empty(path):
    path.write_bytes(b"")


def flip(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(bytes(data))


@pytest.mark.parametrize("damage", [cut, empty, flip, os.remove])
@pytest.mark.parametrize("suffix", [".data-00000-of-00001", ".index"])
def test_a_damaged_newest_checkpoint_falls_back_to_the_one_before(tmp_path, damage, suffix):
    train(tmp_path, 200)
    damage(tmp_path / "checkpoints" / f"ckpt-200{suffix}")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert restored_steps(tmp_path) == 100
    if (damage, suffix) != (os.remove, ".index"):  # without its index it was never finished
        assert "ckpt-200" in str(caught[0].message)
        assert "goes on from the checkpoint before, ckpt-100" in str(caught[0].message)


def test_a_run_resumed_from_before_a_damaged_checkpoint_replaces_it(tmp_path):
    train(tmp_path, 300)
    cut(tmp_path / "checkpoints" / "ckpt-300.index")
    (tmp_path / "checkpoints" / "ckpt-250_temp").mkdir()  # a write that was killed
    train(tmp_path, 250, start=200, interval=50)
    assert steps_on_disk(tmp_path) == [250, 200]
    assert not list((tmp_path / "checkpoints").glob("ckpt-300*"))
    assert restored_steps(tmp_path) == 250


def message_of(run_dir, learner):
    with pytest.raises(ValueError) as caught:
        restore(run_dir, {"agent": learner})
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_no_checkpoint_is_refused_in_one_line(tmp_path):
    message = message_of(tmp_path, Learner())
    assert "holds no checkpoint" in message and "start a new run" in message


def test_nothing_readable_is_refused_in_one_line(tmp_path):
    train(tmp_path, 200)
    for path in (tmp_path / "checkpoints").glob("ckpt-*"):
        cut(path)
    message = message_of(tmp_path, Learner())
    assert "ckpt-200" in message and "ckpt-100" in message


@pytest.mark.parametrize(
    ("other", "words"),
    [
        ({"units": 5}, ("incompatible tensor with shape", "variable with shape")),
        ({"rows": 16}, ("(8,)", "(16,)")),
        ({"dtype": tf.int32}, ("int32", "float")),
    ],
)
def test_another_configuration_is_refused_with_what_was_found_and_expected(tmp_path, other, words):
    train(tmp_path, 200)
    message = message_of(tmp_path, Learner(**other))
    for word in (*words, "another configuration", "config.yaml"):
        assert word in message


def test_values_without_an_object_and_objects_without_a_value_are_refused(tmp_path):
    train(tmp_path, 200)
    less, more = Learner(), Learner()
    del less.rows
    assert "rows" in message_of(tmp_path, less)
    more.extra = tf.Variable(1.0)
    assert "not bound to checkpointed values" in message_of(tmp_path, more)


def test_tensorflow_does_not_list_every_value_that_it_gave_up(tmp_path):
    train(tmp_path, 200)
    messages = []
    handler = logging.Handler()
    handler.emit = lambda record: messages.append(record.getMessage())
    tf.get_logger().addHandler(handler)
    try:
        message_of(tmp_path, Learner(rows=16))
        gc.collect()
    finally:
        tf.get_logger().removeHandler(handler)
    assert messages == []


def test_the_best_network_is_written_whole(tmp_path):
    learner = Learner(model=lambda units: keras.Sequential([keras.layers.Dense(2)]))
    saver = CheckpointSaver(100)
    saver.on_train_begin(state_of(learner, tmp_path, 0))
    learner.train(50)
    saver.on_evaluation(state_of(learner, tmp_path, 50, evaluation_return=9.0, is_best=True))
    learner.train(60)
    saver.on_evaluation(state_of(learner, tmp_path, 60, evaluation_return=8.0, is_best=False))
    best = keras.saving.load_model(tmp_path / "best.keras")
    np.testing.assert_array_equal(best.get_weights()[0], np.full((4, 2), 50.0))
    assert os.listdir(tmp_path) == ["best.keras"]


def test_a_save_that_breaks_off_leaves_the_old_file(tmp_path, monkeypatch):
    network = keras.Sequential([keras.Input([4]), keras.layers.Dense(2)])
    before = save_network(network, tmp_path).read_bytes()

    def breaks_off(path):
        path.write_bytes(b"half of a fi")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(network, "save", breaks_off)
    with pytest.raises(OSError, match="No space"):
        save_network(network, tmp_path)
    assert (tmp_path / "best.keras").read_bytes() == before
    assert os.listdir(tmp_path) == ["best.keras"]


def test_a_model_that_keras_cannot_save_keeps_its_weights_and_says_so(tmp_path):
    network = Unsaveable(3)
    network.build((None, 4))
    with pytest.warns(UserWarning, match=r"Give Unsaveable a get_config\(\)") as caught:
        path = save_network(network, tmp_path)
    assert "\n" not in str(caught[0].message)
    assert path.name == "best.weights.h5" and os.listdir(tmp_path) == [path.name]


@pytest.mark.parametrize("settings", [(0, 2), (10, 0)])
def test_settings_that_would_save_nothing_are_refused(settings):
    with pytest.raises(ValueError, match="at least 1"):
        CheckpointSaver(*settings)
