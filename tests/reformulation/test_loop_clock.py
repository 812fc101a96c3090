"""How busy a device is while the loop runs."""

import time

from kytolly.callback.base import TrainState
from kytolly.reformulation import loop_clock
from kytolly.reformulation.loop_clock import LoopClock


def state(tmp_path, device):
    return TrainState(tmp_path, None, "", "device", device, trackables={"loop": "the loop"})


def test_utilization_counts_the_loop_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(loop_clock, "usable_cores", lambda: 1)
    clock, now = LoopClock(), state(tmp_path, "/device:CPU:0")
    clock.on_train_begin(now)
    time.sleep(0.2)
    clock.on_log(now)
    busy_until = time.process_time() + 0.2
    while time.process_time() < busy_until:  # an evaluation, which does not count
        pass
    clock.on_evaluation(now)
    time.sleep(0.2)
    clock.on_train_end(now)
    assert clock.wall_seconds >= 0.4 and 0.0 <= clock.utilization < 0.5


def test_utilization_of_a_gpu_is_sampled(tmp_path, monkeypatch):
    class Half:
        def metrics(self):
            return {"memory_mb": 1.0, "utilization": 50.0}

    monkeypatch.setattr(loop_clock.Gpu, "of", lambda device: Half())
    monkeypatch.setattr(loop_clock, "SAMPLE_SECONDS", 0.01)
    clock, now = LoopClock(), state(tmp_path, "/device:GPU:0")
    clock.on_train_begin(now)
    time.sleep(0.3)
    clock.on_train_end(now)
    assert clock.samples and clock.utilization == 0.5
    monkeypatch.setattr(loop_clock.Gpu, "of", lambda device: None)
    clock.on_train_begin(now)
    time.sleep(0.05)
    clock.on_train_end(now)
    assert clock.utilization is None  # a processor's time says nothing about a GPU
