"""How busy the device is while a training loop runs."""

from __future__ import annotations

import statistics
import threading
import time

from kytolly.callback.base import Callback, TrainState
from kytolly.machine.facts import usable_cores
from kytolly.machine.gpu import Gpu

SAMPLE_SECONDS = 0.1


class LoopClock(Callback):
    """Measures the utilization of the device while the loop runs, without evaluations and saving.

    On a GPU it is NVML's utilization, sampled in a thread. On a CPU it is the processor time of
    this process over the wall time of all cores that it may use.
    """

    def __init__(self):
        self.wall_seconds = self.cpu_seconds = 0.0
        self.samples: list[float] = []
        self._gpu: Gpu | None = None
        self._on_cpu = True
        self._since: tuple[float, float] | None = None
        self._over = threading.Event()

    def on_train_begin(self, state: TrainState) -> None:
        """The loop begins, perhaps again after one that failed."""
        self.wall_seconds = self.cpu_seconds = 0.0
        self.samples, self._over = [], threading.Event()
        self._gpu, self._on_cpu = Gpu.of(state.device), "GPU" not in state.device
        if self._gpu is not None:
            threading.Thread(target=self._sample, args=(self._over,), daemon=True).start()
        self._start()

    def on_log(self, state: TrainState) -> None:
        """The loop waits for an evaluation."""
        self._stop()

    def on_evaluation(self, state: TrainState) -> None:
        """The loop goes on."""
        self._start()

    def on_train_end(self, state: TrainState) -> None:
        """The loop is over."""
        self._stop()
        self._over.set()

    @property
    def utilization(self) -> float | None:
        """Share of the device that was busy, from 0 to 1; None if it is unknown."""
        if self.samples:
            return statistics.fmean(self.samples)
        if not self._on_cpu or not self.wall_seconds:
            return None
        return min(self.cpu_seconds / (self.wall_seconds * usable_cores()), 1.0)

    def _start(self) -> None:
        self._since = time.perf_counter(), time.process_time()

    def _stop(self) -> None:
        if self._since is None:
            return
        wall, cpu = self._since
        self.wall_seconds += time.perf_counter() - wall
        self.cpu_seconds += time.process_time() - cpu
        self._since = None

    def _sample(self, over: threading.Event) -> None:
        while not over.wait(SAMPLE_SECONDS):
            metrics = self._gpu.metrics() if self._gpu is not None and self._since else {}
            if "utilization" in metrics:
                self.samples.append(metrics["utilization"] / 100.0)
