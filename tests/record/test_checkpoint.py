import gc
import logging
import os
import warnings

import keras
import numpy as np
import pytest
import tensorflow as tf

from kytolly.record.checkpoint import save_network
from kytolly.record.network_file import weights_in
from kytolly.record.resume import restore
from tests.record.learner import Learner, Unsaveable, restored_steps, steps_on_disk, train


def test_every_value_comes_back_into_objects_that_were_made_anew(tmp_path):
    trained, fresh = train(tmp_path, 300), Learner()
    restored = restore(tmp_path, {"agent": fresh})
    assert restored.path == str(tmp_path / "checkpoints" / "ckpt-300")
    for value, expected in zip(fresh.values(), trained.values(), strict=True):
        np.testing.assert_array_equal(value, expected)


@pytest.mark.parametrize("name", ["run[1]", "a\\b", "a*b?", "{a,b}", "a 'b\" $HOME%20#ü"])
def test_any_name_of_a_run_s_folder_can_be_resumed(tmp_path, name):
    (tmp_path / name).mkdir()
    train(tmp_path / name, 200)
    assert restored_steps(tmp_path / name) == 200


def cut(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def empty(path):
    path.write_bytes(b"")


def flip(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(bytes(data))


@pytest.mark.parametrize("damage", [cut, empty, flip, os.remove])
@pytest.mark.parametrize("suffix", [".data-00000-of-00001", ".index", ".json"])
def test_a_damaged_newest_checkpoint_falls_back_to_the_one_before(tmp_path, damage, suffix):
    train(tmp_path, 200)
    damage(tmp_path / "checkpoints" / f"ckpt-200{suffix}")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert restored_steps(tmp_path) == 100
    if (damage, suffix) != (os.remove, ".json"):  # without its list it was never finished
        assert "ckpt-200" in str(caught[0].message)
        assert "continues from the previous checkpoint, ckpt-100" in str(caught[0].message)


def test_a_run_resumed_from_before_a_damaged_checkpoint_replaces_it(tmp_path):
    train(tmp_path, 300)
    cut(tmp_path / "checkpoints" / "ckpt-300.json")
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


def test_a_warning_of_keras_that_is_an_error_leaves_the_file_whole(tmp_path):
    """NumPy's about how Keras reads variables: pytest and others make such warnings errors."""

    class Deprecated(keras.layers.Dense):
        def get_config(self):
            warnings.warn("this is old", DeprecationWarning, stacklevel=1)
            return super().get_config()

    network = keras.Sequential([keras.Input([4]), Deprecated(2)])
    with warnings.catch_warnings():
        warnings.simplefilter("error", DeprecationWarning)
        path = save_network(network, tmp_path)
        with pytest.raises(DeprecationWarning):
            network.layers[0].get_config()
    assert path.name == "best.keras" and path.is_file()


def test_a_model_that_keras_cannot_save_keeps_its_weights_and_says_so(tmp_path):
    network = Unsaveable(3)
    network.build((None, 4))
    with pytest.warns(UserWarning, match=r"Give Unsaveable a get_config\(\)") as caught:
        path = save_network(network, tmp_path)
    assert "\n" not in str(caught[0].message)
    assert path.name == "best.weights.h5" and os.listdir(tmp_path) == [path.name]


@pytest.mark.filterwarnings("ignore:best.keras cannot be written")
@pytest.mark.parametrize(
    "make", [lambda: keras.Sequential([keras.layers.Dense(2)]), lambda: Unsaveable(3)]
)
def test_the_best_weights_come_back_from_either_file(tmp_path, make):
    network = make()
    network(np.zeros((2, 4), np.float32))
    best = network.get_weights()
    path = save_network(network, tmp_path)
    network.set_weights([weight + 1 for weight in best])
    for weight, expected in zip(weights_in(network, path), best, strict=True):
        np.testing.assert_array_equal(weight, expected)
