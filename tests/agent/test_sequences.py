"""Batches of whole sequences, from rollouts and from replay memories."""

from typing import Any, NamedTuple

import numpy as np
import pytest
import tensorflow as tf

from kytolly.agent.sequences import PrioritizedSequences, SequenceReplay, SequenceRollout
from kytolly.environment.memory import FIRST, MEMORY, OBSERVATION
from kytolly.policy.batch import Transition

ENVS, STEPS, LENGTH = 3, 6, 2


class Rows(NamedTuple):
    """Rows of a rollout, as a policy makes them."""

    obs: Any
    number: Any


def rollout_rows():
    """Row t * ENVS + e is step t of environment e, and says so in each column."""
    numbers = tf.range(STEPS * ENVS)
    shown = tf.cast(numbers, tf.float32)[:, tf.newaxis]
    obs = {OBSERVATION: shown, MEMORY: shown + 100.0, FIRST: numbers < ENVS}
    return Rows(obs, numbers)


def test_each_sequence_of_a_rollout_is_in_an_epoch_once_with_the_memory_before_it():
    updates, epochs = 3, 2
    buffer = SequenceRollout(
        length=LENGTH,
        num_envs=ENVS,
        rows_per_update=STEPS * ENVS // updates,
        updates_per_epoch=updates,
        epochs=epochs,
    )
    words = np.random.default_rng(0).integers(2**32, size=buffer.num_random_words, dtype=np.uint32)
    orders = []
    for epoch in range(epochs):
        taken = []
        for update in range(updates):
            batch = buffer.batch(rollout_rows(), epoch * updates + update, tf.constant(words))
            numbers = batch.number.numpy().reshape(-1, LENGTH)
            np.testing.assert_array_equal(numbers[:, 1], numbers[:, 0] + ENVS)  # the next step
            assert set(numbers[:, 0] // ENVS % LENGTH) == {0}  # sequences do not overlap
            np.testing.assert_array_equal(batch.obs[MEMORY][:, 0], numbers[:, 0] + 100.0)
            np.testing.assert_array_equal(batch.obs[OBSERVATION][:, 0], numbers.reshape(-1))
            taken.append(batch.number.numpy())
        orders.append(np.concatenate(taken))
        assert sorted(orders[-1]) == list(range(STEPS * ENVS))
    assert (orders[0] != orders[1]).any()


@pytest.mark.parametrize("kind", [SequenceReplay, PrioritizedSequences])
def test_a_window_of_replay_has_the_steps_of_one_environment_and_the_memory_before_them(kind):
    capacity, envs, width = 12, 2, 3
    spec = {
        OBSERVATION: tf.TensorSpec([1]),
        MEMORY: tf.TensorSpec([1]),
        FIRST: tf.TensorSpec([], tf.bool),
    }
    memory = kind(capacity, spec, envs, n_step=width, cuts_explored=True)
    for moment in range(8):  # 16 rows: the first four are overwritten
        numbers = envs * moment + tf.range(envs)
        shown = tf.cast(numbers, tf.float32)[:, tf.newaxis]
        obs = {OBSERVATION: shown, MEMORY: shown + 100.0, FIRST: numbers < 0}
        rows = Transition(obs, numbers, shown[:, 0], tf.ones([envs]), obs)
        last, explored = tf.equal(numbers, 9), tf.equal(numbers, 12)
        memory.add(rows, last, explored)
    found = memory.rows_at(tf.constant([7, 8]))  # rows 7 and 8: 7, 9, 11 and 8, 10, 12
    np.testing.assert_array_equal(found.action, [7, 9, 11, 8, 10, 12])
    np.testing.assert_array_equal(found.obs[MEMORY], [[107.0], [108.0]])
    np.testing.assert_array_equal(found.next_obs[OBSERVATION][:, 0], found.action)
    assert MEMORY not in found.next_obs
    # The episode ends with row 9; the action of row 12 is random, so a return ends with row 10.
    np.testing.assert_array_equal(found.cut, [False, True, False, False, True, False])
