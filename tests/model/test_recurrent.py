"""How long the memories keep what was written, before they have learned anything."""

import numpy as np
import pytest
import tensorflow as tf

from kytolly.model.recurrent import KINDS

UNITS, SPAN = 256, 100
# What a unit that forgets in s steps keeps of its state in one step: a gate's sigmoid of log(s) is
# s / (s + 1), and an LRU's decay is exp(-1 / s).
STEPS_OF_SHARE = {
    "gru": lambda share: share / (1 - share),
    "lstm": lambda share: share / (1 - share),
    "lru": lambda share: -1 / np.log(share),
}


def kept_share(kind, span):
    """[U] share of a unit's cell that one step keeps, where nothing is new."""
    memory = KINDS[kind](UNITS, span)
    memory.build((None, 2))
    if kind != "lru":
        memory.recurrent_kernel.assign(tf.zeros_like(memory.recurrent_kernel))
    state = np.ones([1, memory.state_units], np.float32)
    after = memory(tf.zeros([1, 2]), state).numpy()[0]
    if kind == "lru":
        return np.hypot(after[:UNITS], after[UNITS:]) / np.sqrt(2)
    return after[-UNITS:]


@pytest.mark.parametrize("kind", KINDS)
def test_units_of_a_span_forget_in_times_spread_evenly_up_to_it(kind):
    steps = STEPS_OF_SHARE[kind](kept_share(kind, SPAN))
    assert steps.min() >= 0.99
    assert steps.max() <= 1.01 * SPAN
    np.testing.assert_allclose(np.quantile(steps, [0.25, 0.5, 0.75]), [25, 50, 75], atol=12)


def test_a_new_lstm_writes_as_little_as_it_forgets():
    memory = KINDS["lstm"](UNITS, SPAN)
    memory.build((None, 2))
    write, keep = np.split(memory.bias.numpy(), 4)[:2]
    np.testing.assert_array_equal(write, -keep)


@pytest.mark.parametrize(("kind", "share"), [("gru", 0.5), ("lstm", 1 / (1 + np.exp(-1)))])
def test_without_a_span_gates_are_as_their_papers_have_them(kind, share):
    np.testing.assert_allclose(kept_share(kind, None), share, rtol=1e-6)
