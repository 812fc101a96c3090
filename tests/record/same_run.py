"""Equality of two runs on disk, bit by bit, in all but what a clock says."""

import importlib
import json

import keras
import numpy as np
import tensorflow as tf

from kytolly.agent.algorithms import ALGORITHMS, part
from kytolly.record.checkpoint import read_manifest
from kytolly.record.metrics_file import read_rows

importlib.import_module("kytolly.model.recurrent")
for algorithm in ALGORITHMS:  # Keras reads a class from a file only where its module is imported
    part(algorithm, "network")

TIMES = {"wall_seconds", "env_steps_per_second", "updates_per_second", "compile_seconds"}
TIMES |= {"device_idle", "memory", "process_memory_mb", "process_memory_peak_mb"}
CLOCKS = ("episode_start_time", "episode_start_times", "time_queue")  # in Gymnasium's wrappers


def without_times(values):
    if isinstance(values, dict):
        drop = TIMES | {"steady", "bytes", "run_dir"}
        return {name: without_times(v) for name, v in values.items() if name not in drop}
    return [without_times(v) for v in values] if isinstance(values, list) else values


def same(found, expected):
    """Equality in which NaN equals NaN."""
    return json.dumps(without_times(found)) == json.dumps(without_times(expected))


def points_in(run):
    """(step, tag, value) of everything in the event files, in their order."""
    return [
        (event.step, value.tag, value.simple_value if value.HasField("simple_value") else None)
        for path in sorted(run.glob("events.*"))
        for event in tf.compat.v1.train.summary_iterator(str(path))
        for value in event.summary.value
        if not value.tag.startswith(("speed/", "memory/"))
    ]


def assert_same_run(run, whole):
    def names(path):
        files = (p.relative_to(path).as_posix() for p in path.rglob("*") if p.is_file())
        return sorted(name for name in files if "events" not in name)

    assert names(run) == names(whole)
    for name in ("config.yaml", "learning_curve.png", "checkpoints/checkpoint"):
        assert (run / name).read_bytes() == (whole / name).read_bytes(), name
    rows, expected = read_rows(run / "metrics.csv"), read_rows(whole / "metrics.csv")
    assert without_times(rows) == without_times(expected)
    assert points_in(run) == points_in(whole)
    assert same(*(json.loads((p / "result.json").read_text()) for p in (run, whole)))
    best, expected = (keras.models.load_model(p / "best.keras") for p in (run, whole))
    assert type(best) is type(expected)
    best, expected = best.get_weights(), expected.get_weights()
    for value, other in zip(best, expected, strict=True):
        np.testing.assert_array_equal(value, other)
    for manifest in (whole / "checkpoints").glob("*.json"):
        found, expected = (str(p / "checkpoints" / manifest.stem) for p in (run, whole))
        assert same(read_manifest(found)[1], read_manifest(expected)[1])
        assert_same_tensors(found, expected)


def assert_same_tensors(path, other):
    """Equality of all values of two checkpoints; they hold the host loop's state as text."""
    found, expected = tf.train.load_checkpoint(path), tf.train.load_checkpoint(other)
    assert found.get_variable_to_shape_map() == expected.get_variable_to_shape_map()
    assert found.get_variable_to_dtype_map() == expected.get_variable_to_dtype_map()
    for key in expected.get_variable_to_shape_map():
        if key == "_CHECKPOINTABLE_OBJECT_GRAPH":
            continue
        values = found.get_tensor(key), expected.get_tensor(key)
        if isinstance(values[0], bytes) and values[0].startswith(b"{"):
            values = [json.dumps(without_clocks(text.decode())) for text in values]
        np.testing.assert_array_equal(*values, key)


def without_clocks(state):
    """A state of `saved_state` without what two whole runs do not share.

    That are the entries [name, value] that hold a time of day, and the generators of spaces that
    nobody has seeded: wrappers make them, and nothing draws from them.
    """
    if isinstance(state, str) and state.startswith('{"'):  # an environment in its process
        return without_clocks(json.loads(state))
    if isinstance(state, dict):
        return {name: without_clocks(v) for name, v in state.items() if name != "space"}
    if not isinstance(state, list):
        return state
    clocks = [isinstance(part, list) and part[:1] and part[0] in CLOCKS for part in state]
    return [without_clocks(p) for p, clock in zip(state, clocks, strict=True) if not clock]
