import dataclasses
import json
import math
import shutil

import keras
import numpy as np
import pytest
import tensorflow as tf
from tensorboard.backend.event_processing.data_provider import MultiplexerDataProvider
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.backend.event_processing.plugin_event_multiplexer import EventMultiplexer
from tensorboard.context import RequestContext
from tensorboard.plugins.base_plugin import TBContext
from tensorboard.plugins.hparams import api_pb2, backend_context, list_session_groups
from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData

from kytolly.callback.tensorboard import TensorBoardLog, histogram
from tests.helpers.fake_nvml import FakeGpu, install
from tests.helpers.states import make_state, metrics_row


@pytest.fixture(scope="module")
def network():
    return keras.Sequential([keras.Input([4]), keras.layers.Dense(3), keras.layers.Dense(2)])


def read(run_dir):
    accumulator = EventAccumulator(str(run_dir), size_guidance={"scalars": 0, "histograms": 0})
    return accumulator.Reload()


def points(run_dir, tag):
    return [(event.step, event.value) for event in read(run_dir).Scalars(tag)]


def log_rows(run_dir, network, steps, *, start=0, saved=None, tags="kytolly", settings=None, **row):
    log = TensorBoardLog(tags)
    state = make_state(run_dir, start, network=network)
    cfg = dataclasses.replace(state.config, **(settings or {}))
    log.on_train_begin(dataclasses.replace(state, config=cfg))
    if saved is not None:
        log.set_state(make_state(run_dir, start), saved)
    for env_steps in steps:
        log.on_log(make_state(run_dir, env_steps, metrics=metrics_row(**row), network=network))
    log.on_evaluation(make_state(run_dir, steps[-1], evaluation_return=57.25, network=network))
    log.on_train_end(make_state(run_dir, steps[-1]))


def test_the_events_lie_in_the_run_folder_itself(tmp_path, network):
    log_rows(tmp_path, network, [100])
    assert [path.name.split(".")[0] for path in tmp_path.iterdir()] == ["events"]


def test_metrics_have_groups_and_env_steps(tmp_path, network):
    log_rows(tmp_path, network, [100, 200], entropy=0.75)
    tags = set(read(tmp_path).Tags()["scalars"]) - {"memory/process_mb"}
    train = ("loss", "td_error", "q_mean", "grad_norm", "epsilon", "learning_rate", "entropy")
    assert tags == {
        *(f"train/{name}" for name in train),
        "speed/env_steps_per_second",
        "speed/updates_per_second",
        "episode/return",
        "episode/length",
        *(f"evaluation/{k}" for k in ("episodes", "return_mean", "return_std", "length_mean")),
    }
    assert points(tmp_path, "train/loss") == [(100, 0.5), (200, 0.5)]
    assert points(tmp_path, "evaluation/return_mean") == [(200, 57.25)]


def test_a_metric_that_is_no_number_has_no_point(tmp_path, network):
    log_rows(tmp_path, network, [100], episode_return=math.nan, grad_norm=math.inf)
    tags = read(tmp_path).Tags()["scalars"]
    assert "episode/return" not in tags and "train/grad_norm" not in tags
    assert "episode/length" in tags


def test_weights_are_histograms_at_evaluations(tmp_path, network):
    log_rows(tmp_path, network, [100])
    events = read(tmp_path)
    assert len(events.Tags()["histograms"]) == 4
    kernel = network.weights[0]
    (event,) = events.Histograms("weights/0/sequential/dense/kernel")
    assert event.step == 100
    value = event.histogram_value
    assert value.num == 12 and sum(value.bucket) == 12
    np.testing.assert_allclose([value.min, value.max], [np.min(kernel), np.max(kernel)])


def test_the_weights_of_two_runs_have_the_same_tags(tmp_path):
    layers = [keras.Input([4]), *map(keras.layers.Dense, (3, 2))]
    other = keras.Sequential([*layers[:2], keras.layers.Dense(2)])  # a process counts its layers
    log_rows(tmp_path, other, [100])
    kinds = "kernel", "bias", "kernel", "bias"
    tags = [f"weights/{i}/sequential/dense/{kind}" for i, kind in enumerate(kinds)]
    assert sorted(read(tmp_path).Tags()["histograms"]) == tags


@pytest.mark.parametrize(
    ("numbers", "count"), [([1.0, math.nan, 3.0], 2), ([math.nan], 0), ([2.0, 2.0], 2)]
)
def test_a_histogram_counts_finite_numbers_into_ascending_buckets(numbers, count):
    histo = histogram("w", np.array(numbers, np.float32)).histo
    assert sum(histo.bucket) == histo.num == count
    assert len(histo.bucket) == len(histo.bucket_limit)
    assert list(histo.bucket_limit) == sorted(histo.bucket_limit)


def test_a_bucket_of_a_histogram_ends_at_its_limit():
    histo = histogram("w", np.array([0.0, 0.0, 0.0, 30.0])).histo
    # 30 buckets of width 1, and an empty one that ends where the first begins.
    assert list(histo.bucket_limit) == list(range(31))
    assert list(histo.bucket) == [0, 3, *[0] * 28, 1]


def test_settings_are_text_and_hyperparameters(tmp_path, network):
    log_rows(tmp_path, network, [100])
    events, cfg = read(tmp_path), make_state(tmp_path).config
    text = tf.make_ndarray(events.Tensors("settings")[0].tensor_proto).item().decode()
    assert "| total_env_steps | 1000 |" in text
    assert "| environment | CartPole-v1 |" in text and "| loop | device |" in text
    (content,) = events.PluginTagToContent("hparams").values()
    start = HParamsPluginData.FromString(content).session_start_info.hparams
    assert start["learning_rate"].number_value == cfg.learning_rate
    assert start["hidden_units"].string_value == str(cfg.hidden_units)


def test_the_tab_hparams_compares_settings_and_newest_metrics_of_runs(tmp_path, network):
    for name, rate in (("a", 1e-3), ("b", 2e-3)):
        (tmp_path / name).mkdir()
        settings = {"learning_rate": rate}
        log_rows(tmp_path / name, network, [100, 200], settings=settings, loss=1000 * rate)
    events = EventMultiplexer().AddRunsFromDirectory(str(tmp_path)).Reload()
    provider = MultiplexerDataProvider(events, str(tmp_path))
    backend, request = backend_context.Context(TBContext(data_provider=provider)), RequestContext()
    query = api_pb2.ListSessionGroupsRequest(slice_size=10, allowed_statuses=[0, 1, 2, 3])
    for tag in ("evaluation/return_mean", "train/loss"):
        query.col_params.add().metric.tag = tag
    groups = list_session_groups.Handler(request, backend, "", query).run().session_groups
    found = [
        (
            group.hparams["learning_rate"].number_value,
            {m.name.tag: m.value for m in group.metric_values},
        )
        for group in groups
    ]
    assert sorted((rate, m["evaluation/return_mean"], m["train/loss"]) for rate, m in found) == [
        (1e-3, 57.25, 1.0),
        (2e-3, 57.25, 2.0),
    ]


def test_the_tags_of_stable_baselines3(tmp_path, network):
    more = {"entropy": 0.75, "approximate_kl": 0.5, "policy_loss": 0.25, "value_loss": 2.0}
    log_rows(tmp_path, network, [100], tags="sb3", clip_fraction=0.125, **more)
    found = {tag: points(tmp_path, tag)[0][1] for tag in read(tmp_path).Tags()["scalars"]}
    # https://stable-baselines3.readthedocs.io/en/master/common/logger.html
    expected = {
        "eval/mean_reward": 57.25,
        "eval/mean_ep_length": 20.0,
        "rollout/ep_rew_mean": 20.0,
        "rollout/ep_len_mean": 20.0,
        "rollout/exploration_rate": 0.1,
        "time/fps": 100.0,
        "time/total_timesteps": 100,
        "time/episodes": 0,
        "time/time_elapsed": 0,
        "train/n_updates": 100,
        "train/loss": 0.5,
        "train/learning_rate": 1e-3,
        "train/approx_kl": 0.5,
        "train/clip_fraction": 0.125,
        "train/entropy_loss": -0.75,
        "train/policy_gradient_loss": 0.25,
        "train/value_loss": 2.0,
    }
    assert {tag: found[tag] for tag in expected} == pytest.approx(expected)
    assert not any(tag.startswith(("speed/", "episode/", "evaluation/")) for tag in found)


def test_a_metric_of_an_evaluation_is_written_with_it_and_a_group_in_a_name_counts(
    tmp_path, network
):
    log, row = TensorBoardLog(), metrics_row(**{"my/own": 1.0})
    log.on_train_begin(make_state(tmp_path, network=network))
    log.on_log(make_state(tmp_path, 100, metrics=row))
    later = make_state(tmp_path, 100, evaluation_return=1.0, metrics={**row, "distance": 7.0})
    log.on_evaluation(later)
    log.on_train_end(later)
    assert points(tmp_path, "my/own") == [(100, 1.0)]
    assert points(tmp_path, "train/distance") == [(100, 7.0)]
    assert points(tmp_path, "train/loss") == [(100, 0.5)]


def test_a_resumed_run_has_each_point_once(tmp_path, network):
    log = TensorBoardLog()
    log.on_train_begin(make_state(tmp_path, network=network))
    for env_steps in (100, 200, 300):
        log.on_log(make_state(tmp_path, env_steps, metrics=metrics_row()))
        if env_steps == 200:
            saved = json.loads(json.dumps(log.get_state()))
    log.on_train_end(make_state(tmp_path))  # killed here
    log_rows(tmp_path, network, [250, 350], start=200, saved=saved, loss=0.125)
    log_rows(tmp_path, network, [250, 350], start=200, saved=saved, loss=0.25)
    written = [
        (event.step, value.simple_value)
        for path in sorted(tmp_path.iterdir())
        for event in tf.compat.v1.train.summary_iterator(str(path))
        for value in event.summary.value
        if value.tag == "train/loss"
    ]
    assert sorted(written) == [(100, 0.5), (200, 0.5), (250, 0.25), (350, 0.25)]
    settings = [event.step for event in read(tmp_path).Tensors("settings")]
    assert settings == [0]  # they did not change


def test_a_run_resumed_at_its_end_writes_nothing(tmp_path, network):
    log_rows(tmp_path, network, [100])
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    log, sizes = TensorBoardLog(), {path.name: len(data) for path, data in before.items()}
    log.on_train_begin(make_state(tmp_path, 100, network=network))
    log.set_state(make_state(tmp_path, 100), {"bytes": sizes, "settings": {}})
    log.on_train_end(make_state(tmp_path, 100))
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_folder_that_was_removed_is_an_error_of_the_writer(tmp_path, network):
    folder = tmp_path / "run"
    folder.mkdir()
    log = TensorBoardLog()
    log.on_train_begin(make_state(folder, network=network))
    shutil.rmtree(folder)
    with pytest.raises(OSError, match="do not grow"):
        log.on_log(make_state(folder, 100, metrics=metrics_row()))


def test_the_file_can_be_read_while_the_run_goes_on(tmp_path, network):
    log = TensorBoardLog()
    log.on_train_begin(make_state(tmp_path, network=network))
    log.on_log(make_state(tmp_path, 100, metrics=metrics_row()))
    log.on_evaluation(make_state(tmp_path, 100, evaluation_return=1.0, network=network))
    assert points(tmp_path, "train/loss") == [(100, 0.5)]
    log.on_train_end(make_state(tmp_path))


def test_an_end_without_a_beginning_writes_nothing(tmp_path):
    TensorBoardLog().on_train_end(make_state(tmp_path))
    assert not list(tmp_path.iterdir())


def test_a_gpu_adds_its_memory_and_utilization(tmp_path, network, monkeypatch):
    install(monkeypatch, FakeGpu("GPU-1", free=997))
    log = TensorBoardLog()
    log.on_train_begin(make_state(tmp_path, network=network, device="/GPU:0"))
    log.on_log(make_state(tmp_path, 100, metrics=metrics_row()))
    log.on_train_end(make_state(tmp_path))
    assert points(tmp_path, "gpu/memory_mb") == [(100, 3.0)]
    assert points(tmp_path, "gpu/utilization") == [(100, 37.0)]
