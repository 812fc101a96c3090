"""Phases, how busy a device is while the loop runs, and the profile of the loop."""

from __future__ import annotations

import contextlib
import time
import types
from types import SimpleNamespace

import pytest
import tensorflow as tf

from kytolly.agent.make_agent import make_agent
from kytolly.callback.base import TrainState
from kytolly.config.ppo import PPOConfig
from kytolly.loop.device import DeviceLoop
from kytolly.search.model.candidate_scorer import CandidateScorer
from kytolly.search.reformulate import timing
from kytolly.search.reformulate.device_env import DeviceQueries
from kytolly.search.reformulate.report import loop_lines
from kytolly.search.reformulate.table import make_table
from kytolly.search.reformulate.timing import (
    LoopClock,
    Phases,
    Transfers,
    measure_transfers,
    part_seconds,
    profile_loop,
    shared_seconds,
)
from tests.search.reformulate.made_queries import RULES, Scores, make_documents, make_query

PARTS = {"forward": 1.0, "search and reward": 2.0, "update": 5.0}


@pytest.fixture(scope="module")
def loop():
    index = Scores(documents=120, terms=12)
    queries = [make_query(n, index, candidates=5) for n in range(4)]
    rules = RULES._replace(pool_documents=128)
    env = DeviceQueries(make_table(queries, index, make_documents(120), rules), rules)
    cfg = PPOConfig(num_envs=4, rollout_steps=4, num_minibatches=2, epochs=3, xla=False)
    network = scorer(env)
    return DeviceLoop(make_agent(cfg, env.spec, network), env)


def scorer(env):
    network = CandidateScorer((8,))
    shapes = {name: (None, *spec.shape) for name, spec in env.spec.obs.items()}
    network.build({name: shapes[name] for name in ("candidates", "state")})
    return network


def test_parts_add_up_to_the_busy_time_of_the_loop():
    # Of 20 s in the program 4 s move metrics; a quarter of the 16 s left is idle, 12 s remain for
    # parts that took 8 s apart: each counts 1.5 times.
    seconds, scale = shared_seconds(20.0, 0.75, Transfers(1_000, 3.0, 4.0), PARTS)
    assert scale == 1.5
    assert seconds == {
        "forward": 1.5,
        "search and reward": 3.0,
        "update": 7.5,
        "transfers": 7.0,  # with the 3 s of the tables, which the loop did not wait for
        "idle": 4.0,
    }


def test_what_nobody_measured_is_not_made_up():
    seconds, scale = shared_seconds(20.0, None, Transfers(), None)
    assert scale is None
    assert seconds == {"collection and update": 20.0, "transfers": 0.0, "idle": 0.0}
    (line,) = loop_lines({"device_utilization": None})
    assert "unknown" in line


def test_the_whole_of_ppo_is_in_the_profile(loop, monkeypatch):
    apart = {"forward": 1.0, "search and reward": 2.0, "update": 0.5}
    monkeypatch.setattr(timing, "part_seconds", lambda _: apart)
    result = {
        "env_steps": 32,
        "updates": 8,
        "env_steps_per_second": 2.0,
        "compile_seconds": 3.0,
    }
    found = profile_loop(loop, result, 30.0, 0.5)
    # 16 s in the program, half of them idle; 2 rollouts of 16 env steps and 8 updates took
    # 2 + 4 + 4 = 10 s apart; 30 - 3 - 16 = 11 s are left for evaluations and saving.
    assert found.scale == pytest.approx(0.8)
    assert found.seconds == pytest.approx(
        {
            "compilation": 3.0,
            "forward": 1.6,
            "search and reward": 3.2,
            "update": 3.2,
            "transfers": 0.0,
            "idle": 8.0,
            "evaluation and saving": 11.0,
        }
    )


def test_a_device_without_memory_to_spare_leaves_the_loop_in_one_piece(loop, monkeypatch):
    def full(loop):
        raise tf.errors.ResourceExhaustedError(None, None, "full")

    monkeypatch.setattr(timing, "part_seconds", full)
    result = {"env_steps": 8, "updates": 1, "env_steps_per_second": 2.0, "compile_seconds": 0.0}
    assert profile_loop(loop, result, 5.0, None).seconds["collection and update"] == 4.0


def test_an_iteration_is_acting_searching_and_its_updates(loop, monkeypatch):
    parts = {"environments and memory": 1.0, "acting": 2.0, "update": 6.0}
    monkeypatch.setattr(timing, "iteration_parts", lambda *_, **__: parts)
    found = part_seconds(loop)  # 3 epochs of 2 updates
    assert found == {"forward": 2.0, "search and reward": 1.0, "update": 1.0}


def test_on_a_cpu_nothing_is_transferred(loop):
    assert measure_transfers(loop, 100) == Transfers(0, 0.0, 0.0)


def test_on_a_gpu_a_part_of_the_tables_is_copied_and_counts_for_all(loop, monkeypatch):
    columns = SimpleNamespace(device="a GPU")
    env = SimpleNamespace(arrays={"columns": columns}, table_bytes=10_000)
    copied = []
    monkeypatch.setattr(tf, "device", lambda name: contextlib.nullcontext())
    monkeypatch.setattr(tf, "constant", lambda part: copied.append(part) or tf.identity(part))
    monkeypatch.setattr(timing, "COPIED_BYTES", 1_000)
    monkeypatch.setattr(timing, "fastest_call", lambda run: (run(), 0.5)[1])
    found = measure_transfers(SimpleNamespace(env=env, agent=loop.agent), 100)
    assert found == Transfers(10_000, 5.0, 50.0) and copied[0].nbytes == 1_000


def state(tmp_path, device):
    return TrainState(tmp_path, None, "", "device", device, trackables={"loop": "the loop"})


def test_utilization_counts_the_loop_alone(tmp_path, monkeypatch):
    wall, cpu = iter([10.0, 12.0, 20.0, 23.0]), iter([1.0, 2.0, 9.0, 9.5])
    times = types.SimpleNamespace(perf_counter=lambda: next(wall), process_time=lambda: next(cpu))
    monkeypatch.setattr(timing, "usable_cores", lambda: 2)
    monkeypatch.setattr(timing, "time", times)
    clock, now = LoopClock(), state(tmp_path, "/device:CPU:0")
    clock.on_train_begin(now)
    clock.on_log(now)
    clock.on_evaluation(now)  # from 12 to 20 s, of which nothing counts
    clock.on_train_end(now)
    assert (clock.wall_seconds, clock.cpu_seconds) == (5.0, 1.5)
    assert clock.utilization == 0.15  # of two cores


def test_utilization_of_a_gpu_is_sampled(tmp_path, monkeypatch):
    class Half:
        def metrics(self):
            return {"memory_mb": 1.0, "utilization": 50.0}

    monkeypatch.setattr(timing.Gpu, "of", lambda device: Half())
    monkeypatch.setattr(timing, "SAMPLE_SECONDS", 0.01)
    clock, now = LoopClock(), state(tmp_path, "/device:GPU:0")
    clock.on_train_begin(now)
    while not clock.samples:
        time.sleep(0.01)
    clock.on_train_end(now)
    assert clock.utilization == 0.5
    monkeypatch.setattr(timing.Gpu, "of", lambda device: None)
    clock.on_train_begin(now)
    clock.on_train_end(now)
    assert clock.utilization is None  # a processor's time says nothing about a GPU


def test_phases_within_phases_count_once():
    lines = []
    phases = Phases(lines.append)
    with phases.measure("mining"), phases.measure("embedding"):
        pass
    with phases.measure("embedding"):
        pass
    assert lines == ["parallel preparation: mining", "pre-computation: embedding"]
    assert set(phases.seconds) == {"mining", "embedding"} and min(phases.seconds.values()) >= 0
