"""How busy a device is while the loop runs."""

import time
import types

from kytolly.callback.base import TrainState
from kytolly.search.reformulate import loop_clock
from kytolly.search.reformulate.loop_clock import LoopClock


def state(tmp_path, device):
    return TrainState(tmp_path, None, "", "device", device, trackables={"loop": "the loop"})


def test_utilization_counts_the_loop_alone(tmp_path, monkeypatch):
    wall, cpu = iter([10.0, 12.0, 20.0, 23.0]), iter([1.0, 2.0, 9.0, 9.5])
    times = types.SimpleNamespace(perf_counter=lambda: next(wall), process_time=lambda: next(cpu))
    monkeypatch.setattr(loop_clock, "usable_cores", lambda: 2)
    monkeypatch.setattr(loop_clock, "time", times)
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

    monkeypatch.setattr(loop_clock.Gpu, "of", lambda device: Half())
    monkeypatch.setattr(loop_clock, "SAMPLE_SECONDS", 0.01)
    clock, now = LoopClock(), state(tmp_path, "/device:GPU:0")
    clock.on_train_begin(now)
    while not clock.samples:
        time.sleep(0.01)
    clock.on_train_end(now)
    assert clock.utilization == 0.5
    monkeypatch.setattr(loop_clock.Gpu, "of", lambda device: None)
    clock.on_train_begin(now)
    clock.on_train_end(now)
    assert clock.utilization is None  # a processor's time says nothing about a GPU
