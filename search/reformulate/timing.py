"""The time of a run: its phases, how busy the device is, and the parts of PPO's loop.

The loop is one program, in which no part can be timed. So with `train_optimized.py --profile` its
parts are timed apart after training, as programs of the same shapes (see `loop.profile`): an
iteration without updates, the same without the network, and a whole one. Each part counts as often
as it ran, and all of them are scaled to add up to the time that the loop took.
"""

from __future__ import annotations

import contextlib
import statistics
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, cast

import numpy as np
import tensorflow as tf

from kytolly.callback.base import Callback, TrainState
from kytolly.loop.device import DeviceLoop
from kytolly.loop.learn import LoopMetrics
from kytolly.loop.profile import ACTING, ENVIRONMENTS, fastest_call, iteration_parts
from kytolly.loop.profile import UPDATE as WHOLE_UPDATE
from kytolly.machine.gpu import Gpu
from kytolly.machine.hardware import usable_cores
from kytolly.search.index.embedding import Encoder
from kytolly.search.reformulate.device_env import DeviceQueries

GROUPS = {
    "reading": "pre-computation",
    "indexing": "pre-computation",
    "embedding": "pre-computation",
    "mining": "parallel preparation",
    "tables": "parallel preparation",
}
SAMPLE_SECONDS = 0.1  # between two looks at a GPU
FORWARD, SEARCH, UPDATE = "forward", "search and reward", "update"
COMPILATION, REST, TRANSFERS, IDLE = "compilation", "evaluation and saving", "transfers", "idle"
WHOLE = "collection and update"
COPIED_BYTES = 2**26  # most bytes that are copied to learn how fast tables reach the device


class Phases:
    """Seconds spent in each named phase of a run.

    A phase within a phase is subtracted from the outer one, so that all of them add up to the
    whole.

    Args:
        say: Receives a line when an outermost phase begins.
    """

    def __init__(self, say: Callable[[str], None] = lambda line: None):
        self.say = say
        self.seconds: dict[str, float] = {}
        self._inner: list[float] = []  # seconds of the phases inside each open one

    @contextlib.contextmanager
    def measure(self, name: str) -> Iterator[None]:
        """Add the time of a block to `name`."""
        if not self._inner:
            self.say(f"{GROUPS.get(name, 'training')}: {name}")
        self._inner.append(0.0)
        began = time.perf_counter()
        try:
            yield
        finally:
            spent = time.perf_counter() - began
            alone = spent - self._inner.pop()
            self.seconds[name] = self.seconds.get(name, 0.0) + alone
            if self._inner:
                self._inner[-1] += spent


class TimedEncoder:
    """An encoder whose time counts as the phase "embedding", wherever it is called.

    Args:
        encoder: Does the work.
        phases: Receives the time.
    """

    def __init__(self, encoder: Encoder, phases: Phases):
        self.encoder, self.phases = encoder, phases
        self.identity, self.dimension = encoder.identity, encoder.dimension

    def encode(self, texts: list[str]) -> np.ndarray:
        """[n, dimension] vectors of texts."""
        with self.phases.measure("embedding"):
            return self.encoder.encode(texts)


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


class LoopProfile(NamedTuple):
    """The time of PPO by part.

    Attributes:
        seconds: Part -> seconds. All but the transfer of the tables add up to the whole.
        transferred_bytes: Size of the tables that were copied to the device.
        scale: Time of the loop over that of its parts timed apart; None if they were not timed.
    """

    seconds: dict[str, float]
    transferred_bytes: int
    scale: float | None


class Transfers(NamedTuple):
    """Copies between host and device: tables once, metrics with every call of the program.

    On a CPU everything is 0, because nothing moves.
    """

    table_bytes: int = 0
    table_seconds: float = 0.0
    metrics_seconds: float = 0.0


def profile_loop(
    loop: Any, result: Mapping[str, Any], wall_seconds: float, utilization: float | None
) -> LoopProfile:
    """Time the parts of a loop, and share out the time of the whole run among them.

    Args:
        loop: The loop of the run.
        result: Summary of the run: env_steps, updates, env_steps_per_second, compile_seconds.
        wall_seconds: Seconds of all of PPO.
        utilization: Share of the device that was busy while the loop ran; None if it is unknown.
    """
    compiling = min(result["compile_seconds"], wall_seconds)
    speed = result["env_steps_per_second"]
    program = min(result["env_steps"] / speed, wall_seconds - compiling) if speed else 0.0
    moved, parts = Transfers(), None
    if hasattr(loop, "env_state"):  # a device loop: its parts can be timed alone
        iterations = result["env_steps"] / loop.env_steps_per_iteration
        try:
            moved, each = measure_transfers(loop, round(iterations)), part_seconds(loop)
        except tf.errors.ResourceExhaustedError:
            pass  # the loop alone fits the device: it stays in one piece
        else:
            times = {FORWARD: iterations, SEARCH: iterations, UPDATE: result["updates"]}
            parts = {name: times[name] * seconds for name, seconds in each.items()}
    seconds, scale = shared_seconds(program, utilization, moved, parts)
    rest = wall_seconds - compiling - program
    return LoopProfile({COMPILATION: compiling, **seconds, REST: rest}, moved.table_bytes, scale)


def shared_seconds(
    program: float,
    utilization: float | None,
    moved: Transfers,
    parts: Mapping[str, float] | None,
) -> tuple[dict[str, float], float | None]:
    """Part -> its share of the seconds in the loop's program, and the scale of the parts.

    Args:
        program: Seconds in the calls of the program.
        utilization: Share of the device that was busy; None if it is unknown.
        moved: Transfers, timed apart.
        parts: Seconds of the program's parts, timed apart; None if they were not.
    """
    back = min(moved.metrics_seconds, program)
    idle = 0.0 if utilization is None else (program - back) * (1.0 - utilization)
    working = program - back - idle
    apart = sum(parts.values()) if parts else 0.0
    if parts and apart:
        scale = working / apart
        rows = {name: seconds * scale for name, seconds in parts.items()}
    else:
        scale, rows = None, {WHOLE: working}
    return {**rows, TRANSFERS: moved.table_seconds + back, IDLE: idle}, scale


def part_seconds(loop: DeviceLoop) -> dict[str, float]:
    """Seconds of `FORWARD` and `SEARCH` in one iteration, and of one `UPDATE`, timed apart.

    An update has its share of the advantages. The agent goes on learning, but its network keeps
    its weights.

    Raises:
        tf.errors.ResourceExhaustedError: The memory of the device does not suffice.
    """
    parts = iteration_parts(loop, split_update=False)
    updates = loop.agent.cfg.updates_per_iteration
    return {
        FORWARD: parts[ACTING],
        SEARCH: parts[ENVIRONMENTS],
        UPDATE: parts[WHOLE_UPDATE] / updates,
    }


def measure_transfers(loop: DeviceLoop, calls: int) -> Transfers:
    """Time copies of a part of the tables to the device, and of the metrics of a call back."""
    env = cast(DeviceQueries, loop.env)
    columns = env.arrays["columns"]
    if "GPU" not in columns.device:
        return Transfers()
    size = env.table_bytes
    part = np.zeros(min(size, COPIED_BYTES), np.uint8)
    back = LoopMetrics.zeros(loop.agent)

    def copy_there() -> None:
        with tf.device(columns.device):
            # An element that is read back says that all of it has arrived.
            tf.identity(tf.constant(part))[-1].numpy()

    seconds_per_byte = fastest_call(copy_there) / part.nbytes
    metrics = fastest_call(lambda: [np.asarray(value) for value in back])
    return Transfers(size, size * seconds_per_byte, calls * metrics)
