import os

import keras
import numpy as np
import pytest
import tensorflow as tf

from kytolly.callback.checkpoint import CheckpointSaver
from tests.record.learner import Learner, restored_steps, state_of, steps_on_disk, train


def test_saves_at_each_interval_and_keeps_the_newest(tmp_path):
    saver, learner = CheckpointSaver(100, keep=2), Learner()
    saver.on_train_begin(state_of(learner, tmp_path, 0))
    seen = []
    for env_steps in (60, 90, 160, 220, 260, 400):  # the log interval is not a divisor of 100
        saver.on_interval_end(state_of(learner, tmp_path, env_steps))
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
    saver.on_interval_end(state_of(learner, tmp_path, 100))
    learner.online.variables[0].assign(np.full((4, 3), np.nan))
    with pytest.warns(UserWarning, match="not finite after 200 env steps"):
        saver.on_train_end(state_of(learner, tmp_path, 200))
    assert restored_steps(tmp_path) == 100


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
    assert sorted(os.listdir(tmp_path)) == ["best.keras", "checkpoints"]
    assert os.listdir(tmp_path / "checkpoints") == ["best-50.keras"]


@pytest.mark.parametrize("settings", [(0, 2), (10, 0)])
def test_settings_that_would_save_nothing_are_refused(settings):
    with pytest.raises(ValueError, match="at least 1"):
        CheckpointSaver(*settings)
