import itertools

import numpy as np
import pytest
import tensorflow as tf

from kytolly.config.supervised import SupervisedConfig
from kytolly.environment.state_variable import state_for_a_gpu
from kytolly.search.text.outputs import RowOutputs
from kytolly.search.text.rows import DeviceRows, HostRows, Lookup, Ragged, make_rows

TEXTS = [[5], [], [6, 7, 8], [9, 4]]


def columns():
    tokens = Ragged.of(TEXTS)
    pairs = Lookup(tokens, np.array([[0, 2], [1, 1], [3, 0], [2, 3]], np.int32))
    return {"tokens": tokens, "label": np.array([3, 2, 1, 0], np.int32), "pair": pairs}


def config(**changes):
    settings = {"batch_size": 2, "num_buckets": 2, "updates_per_call": 2}
    return SupervisedConfig(**(settings | changes))


def batches(rows, updates):
    """The first batches, as a program would take them."""
    done = 0
    while done < updates:
        call = rows.call(done, updates - done)
        for index in range(call.first, call.first + call.count):
            batch = rows.batch(call.bucket, call.arguments, tf.constant(index))
            yield {name: value.numpy() for name, value in batch.items()}
        done += call.count


def test_sequences_end_with_padding():
    tokens = Ragged.of([[5], [], [6, 7, 8, 9]], max_length=3)
    assert tokens.lengths.tolist() == [1, 0, 3]
    expected = [[6, 7, 8, 0], [0, 0, 0, 0], [5, 0, 0, 0]]
    assert tokens.matrix(np.array([2, 1, 0]), 4).tolist() == expected
    on_device = Ragged(tf.constant(tokens.tokens), tf.constant(tokens.starts))
    found = tf.function(lambda rows: on_device.matrix_on_device(rows, 4), jit_compile=True)
    assert found(tf.constant([2, 1, 0])).numpy().tolist() == expected


def test_sequences_of_a_table_are_looked_up():
    pairs = columns()["pair"]
    assert pairs.lengths.tolist() == [3, 0, 2, 3]
    assert pairs.matrix(np.array([0, 2]), 3).tolist() == [
        [[5, 0, 0], [6, 7, 8]],
        [[9, 4, 0], [5, 0, 0]],
    ]


@pytest.mark.parametrize("tables", ["device", "host"])
def test_a_batch_has_the_rows_that_the_sampler_says(tables):
    rows = make_rows(config(tables=tables), columns())
    assert isinstance(rows, HostRows if tables == "host" else DeviceRows)
    plan = [
        batch for epoch in (0, 1) for group in rows.sampler.epoch(epoch) for batch in group.rows
    ]
    found = list(batches(rows, 2 * rows.updates_per_epoch))
    assert len(found) == len(plan) > 2
    for batch, numbers in zip(found, plan, strict=True):
        assert batch["label"].tolist() == (3 - numbers).tolist()
        for text, number in zip(batch["tokens"], numbers, strict=True):
            assert text[text > 0].tolist() == TEXTS[number]
        assert batch["pair"].shape[:2] == (2, 2)


@pytest.mark.parametrize("tables", ["device", "host"])
def test_calls_of_any_size_give_the_same_batches(tables):
    rows = make_rows(config(tables=tables, num_buckets=1), columns())  # a group of two batches
    expected = list(batches(rows, 6))
    for start, most in itertools.product((0, 1, 3), (1, 2)):
        call = rows.call(start, most)
        batch = rows.batch(call.bucket, call.arguments, tf.constant(call.first))
        assert 1 <= call.count <= most
        np.testing.assert_array_equal(batch["tokens"], expected[start]["tokens"])


def test_the_host_takes_whatever_gives_rows(tmp_path):
    stored = np.memmap(tmp_path / "x", np.float32, "w+", shape=(4, 2))
    stored[:] = np.arange(8).reshape(4, 2)
    rows = make_rows(config(tables="host"), {"x": stored})
    (batch, *_) = batches(rows, 1)
    assert batch["x"].shape == (2, 2) and set(batch["x"][:, 0]) <= {0.0, 2.0, 4.0, 6.0}


def test_columns_must_have_equally_many_rows():
    with pytest.raises(ValueError, match="'tokens': 4, 'label': 3"):
        make_rows(config(), {"tokens": Ragged.of(TEXTS), "label": np.zeros(3)})
    with pytest.raises(ValueError, match="at least 1"):
        make_rows(config(), {"tokens": Ragged.of([])})


def test_outputs_come_in_the_order_of_the_rows():
    scale = tf.Variable(1.0)

    def sums(network, batch):
        return network * tf.reduce_sum(tf.cast(batch["tokens"], tf.float32), axis=-1)

    outputs = RowOutputs(scale, sums, columns(), batch_size=3, num_buckets=2, xla=False)
    assert outputs().tolist() == [5.0, 0.0, 21.0, 13.0]
    scale.assign(2.0)
    assert outputs().tolist() == [10.0, 0.0, 42.0, 26.0]


def test_tables_on_a_gpu_are_no_int32_variables_which_lie_on_the_host():
    with state_for_a_gpu():
        rows = DeviceRows(columns(), None)
    assert {v.dtype for v in rows.variables} == {tf.uint32}
    for name in ("tokens", "pair"):
        found = rows.tables[name].matrix_on_device(tf.constant([2, 0]), 4)
        np.testing.assert_array_equal(found, columns()[name].matrix(np.array([2, 0]), 4))
