"""Memories over sequences: whole ones at once equal one step after another, gradients too."""

import numpy as np
import pytest
import tensorflow as tf

from kytolly.environment.memory import FIRST, MEMORY, OBSERVATION
from kytolly.model.observation_features import ObservationFeatures
from kytolly.model.recurrent import KINDS, MemoryNetwork
from kytolly.policy import sequences
from kytolly.policy.sequences import Unrolled, by_sequence, by_time, linear_states

SEQUENCES, LENGTH, OBS, UNITS = 3, 5, 2, 4


def make_network(kind):
    head = tf.keras.Sequential([tf.keras.layers.Dense(3, "tanh")])
    network = MemoryNetwork(KINDS[kind](UNITS), head, ObservationFeatures(), (6,))
    network(inputs(network, 1, 1)[0])
    rng = np.random.default_rng(1)
    for weight in network.trainable_variables:
        weight.assign(weight + 0.3 * rng.normal(size=weight.shape).astype(np.float32))
    return network


def inputs(network, count, length):
    """Rows of sequences, with an episode that begins in the middle of each but the last."""
    rng = np.random.default_rng(0)
    first = np.zeros([count, length], bool)
    for row in range(count - 1):
        first[row, (row + 2) % length] = True
    obs = rng.normal(size=[count * length, OBS]).astype(np.float32)
    memory = rng.normal(size=[count, network.state_units]).astype(np.float32)
    rows = {OBSERVATION: obs, MEMORY: memory, FIRST: first.reshape(-1)}
    return {name: tf.constant(part) for name, part in rows.items()}, first


def step_by_step(network, rows, first):
    """Outputs [n * L, 3] and states [n * L, S] of one call after another."""
    obs = tf.reshape(rows[OBSERVATION], [SEQUENCES, LENGTH, OBS])
    memory, outputs, states = rows[MEMORY], [], []
    for time in range(LENGTH):
        memory = tf.where(first[:, time, np.newaxis], 0.0, memory)
        now = {OBSERVATION: obs[:, time], MEMORY: memory, FIRST: tf.constant(first[:, time])}
        output, memory = network(now)
        outputs.append(output)
        states.append(memory)
    return by_sequence(tf.stack(outputs)), by_sequence(tf.stack(states))


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "xla"])
@pytest.mark.parametrize("kind", [*KINDS, "lru by doubling"])
def test_a_sequence_at_once_equals_steps_and_so_do_gradients(kind, compiled, monkeypatch):
    if kind == "lru by doubling":  # as a GPU traces it
        kind = "lru"
        monkeypatch.setattr(sequences, "on_gpu", lambda: True)
        monkeypatch.delattr(sequences, "stepped_states")
    network = make_network(kind)
    rows, first = inputs(network, SEQUENCES, LENGTH)
    scale = tf.constant(np.random.default_rng(2).normal(size=[SEQUENCES * LENGTH, 3]), tf.float32)
    variables = [variable.value for variable in network.trainable_variables]

    def results(function):
        with tf.GradientTape() as tape:
            tape.watch(rows[MEMORY])
            outputs, states = function()
            loss = tf.reduce_sum(scale * outputs) + tf.reduce_sum(tf.square(states[::2]))
        return [outputs, states, *tape.gradient(loss, [*variables, rows[MEMORY]])]

    expected = results(lambda: step_by_step(network, rows, first))
    at_once = tf.function(
        lambda: results(lambda: Unrolled(network)(rows)), jit_compile=compiled, autograph=False
    )
    for found, right in zip(at_once(), expected, strict=True):
        np.testing.assert_allclose(found, right, rtol=2e-4, atol=2e-5)


def test_rows_with_a_memory_each_are_sequences_of_one_step():
    network = make_network("gru")
    rows, _ = inputs(network, SEQUENCES, 1)
    for found, right in zip(Unrolled(network)(rows), network(rows), strict=True):
        np.testing.assert_array_equal(found, right)


def test_linear_states_of_numbers_that_can_be_checked_by_hand():
    # Factor i (a quarter turn): a state 1 becomes i, then -1; where an episode begins it is lost.
    inputs = tf.constant([[[1.0, 0.0]], [[0.0, 0.0]], [[0.0, 2.0]], [[3.0, 0.0]]])
    first = tf.constant([[False], [False], [False], [True]])
    states = linear_states(
        tf.constant([0.0]), tf.constant([1.0]), inputs, first, tf.constant([[0.0, 1.0]])
    )
    # i * i + 1 = 0; 0; 2i; then 3 alone.
    np.testing.assert_allclose(states[:, 0], [[0, 0], [0, 0], [0, 2], [3, 0]], atol=1e-7)


def test_rows_by_time_and_back():
    rows = tf.range(6)  # two sequences of three steps
    np.testing.assert_array_equal(by_time(rows, 3), [[0, 3], [1, 4], [2, 5]])
    np.testing.assert_array_equal(by_sequence(by_time(rows, 3)), rows)
