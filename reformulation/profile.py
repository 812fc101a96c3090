"""Where the time of PPO's loop goes, which is one program in which nothing can be timed.

So its parts are timed apart after training, as programs of the same shapes: a rollout as the loop
collects it, the same without the network, and a whole round with its updates. Each counts as often
as it ran, and all are scaled so that they add up to the time that the loop was seen to take.
"""

from __future__ import annotations

import copy
import statistics
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from kytolly.callback.base import Callback, TrainState
from kytolly.callback.tensorboard import Gpu
from kytolly.environment.spec import ACTION_MASK
from kytolly.loop.metrics import LoopMetrics
from kytolly.loop.rollout_device import RolloutDeviceLoop
from kytolly.machine.facts import usable_cores
from kytolly.reformulation.device_env import QueryEnvironment

FORWARD, SEARCH, UPDATE = "forward", "search and reward", "update"
COMPILATION, REST, TRANSFERS, IDLE = "compilation", "evaluation and saving", "transfers", "idle"
TOGETHER = "collection and update"
TURNS = 20
ENOUGH_SECONDS = 1.0  # of timing one part
SAMPLE_SECONDS = 0.1
COPIED_BYTES = 2**26  # at most, to learn how fast tables reach the device


class LoopClock(Callback):
    """How busy the device is while the loop runs, evaluations and the saving of a run left out.

    On a GPU that is NVML's utilisation, sampled in a thread; on a CPU it is the processor time of
    this process over the wall time of all cores that it may use.

    Attributes:
        loop: The loop's program, while it is remembered.
    """

    def __init__(self):
        self.loop: Any = None
        self.wall_seconds = self.cpu_seconds = 0.0
        self.samples: list[float] = []
        self._gpu: Gpu | None = None
        self._on_cpu = True
        self._since: tuple[float, float] | None = None
        self._over = threading.Event()

    def on_train_begin(self, state: TrainState) -> None:
        """The loop begins, perhaps anew after one that failed."""
        self.wall_seconds = self.cpu_seconds = 0.0
        self.samples, self._over = [], threading.Event()
        self.loop = state.trackables.get("loop")
        self._gpu, self._on_cpu = Gpu.of(state.device), "GPU" not in state.device
        if self._gpu is not None:
            threading.Thread(target=self._sample, args=(self._over,), daemon=True).start()
        self._go_on()

    def on_log(self, state: TrainState) -> None:
        """The loop waits for what follows."""
        self._pause()

    def on_evaluation(self, state: TrainState) -> None:
        """The loop goes on."""
        self._go_on()

    def on_train_end(self, state: TrainState) -> None:
        """The loop is over."""
        self._pause()
        self._over.set()

    @property
    def utilisation(self) -> float | None:
        """Share from 0 to 1 of the device that was busy; None where nobody knows."""
        if self.samples:
            return statistics.fmean(self.samples)
        if not self._on_cpu or not self.wall_seconds:
            return None
        return min(self.cpu_seconds / (self.wall_seconds * usable_cores()), 1.0)

    def forget(self) -> None:
        """Release the loop, and with it the memory of the device."""
        self.loop = None

    def _go_on(self) -> None:
        self._since = time.perf_counter(), time.process_time()

    def _pause(self) -> None:
        if self._since is None:
            return
        wall, cpu = self._since
        self.wall_seconds += time.perf_counter() - wall
        self.cpu_seconds += time.process_time() - cpu
        self._since = None

    def _sample(self, over: threading.Event) -> None:
        while not over.wait(SAMPLE_SECONDS):
            figures = self._gpu.metrics() if self._gpu is not None and self._since else {}
            if "utilization" in figures:
                self.samples.append(figures["utilization"] / 100.0)


class WithoutNetwork:
    """An agent that acts at random; everything else is the agent's.

    Args:
        agent: Of the loop.
    """

    def __init__(self, agent: Any):
        self.agent = agent

    def __getattr__(self, name: str) -> Any:
        return getattr(self.agent, name)

    def explore(self, obs: Any, noise: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """[E] actions from [E, 1] noise: any one, or STOP in place of one that is not allowed."""
        mask = obs[ACTION_MASK]
        last = mask.shape[-1] - 1
        action = tf.minimum(tf.cast(noise[:, 0] * float(last + 1), tf.int32), last)
        allowed = tf.gather(mask, action, batch_dims=1)
        return tf.where(allowed, action, last), tf.zeros_like(noise[:, 0])


class PartSeconds(NamedTuple):
    """Seconds of the loop's parts, timed apart.

    Attributes:
        forward: The network and the draw of actions, in one rollout.
        search: Environment steps, observations and the buffer, in one rollout.
        update: One update, with its share of the advantages.
    """

    forward: float
    search: float
    update: float


def part_seconds(loop: RolloutDeviceLoop) -> PartSeconds:
    """Time the parts of a loop; its agent goes on learning meanwhile, its network stays as it is.

    Raises:
        tf.errors.ResourceExhaustedError: The device's memory does not suffice.
    """
    agent = loop.agent
    network = agent.policy.network
    weights = network.get_weights()
    try:
        collecting, _ = timed(rollout_program(loop, agent))
        searching, _ = timed(rollout_program(loop, WithoutNetwork(agent)))
        whole, updates = timed(lambda: int(loop.run(loop.env_steps_per_round).updates))
    finally:
        network.set_weights(weights)
    each = max(whole - collecting, 0.0) / max(updates, 1)
    return PartSeconds(max(collecting - searching, 0.0), min(searching, collecting), each)


def rollout_program(loop: RolloutDeviceLoop, agent: Any) -> Callable[[], None]:
    """One rollout of a loop with an agent, compiled as the loop is and ready to run."""
    other = copy.copy(loop)
    other.agent = agent
    per_copy = agent.policy.distribution.num_uniforms + loop.env.step_uniforms
    shape = [loop.vector_steps, loop.num_envs, per_copy + loop.env.reset_uniforms]
    draws = np.random.default_rng(0).integers(0, 2**32, shape, np.uint32)

    def collected(bits: tf.Tensor) -> Any:
        standing = tf.nest.map_structure(lambda variable: variable.read_value(), loop.standing)
        _, rollout, _ = other._collect(standing, bits, LoopMetrics.zeros(loop.agent))
        return rollout

    program = tf.function(collected, jit_compile=loop.xla or None, autograph=False)
    bits = tf.constant(draws)

    def run() -> None:
        program(bits).reward.numpy()  # waits until it is there

    run()
    return run


def timed(run: Callable[[], Any]) -> tuple[float, Any]:
    """Seconds of the fastest of some calls, fewer where they take long, and what it returned.

    The fastest, because a call that waits for other programs takes longer, never shorter.
    """
    calls: list[tuple[float, Any]] = []
    while len(calls) < TURNS and sum(seconds for seconds, _ in calls) < ENOUGH_SECONDS:
        began = time.perf_counter()
        value = run()
        calls.append((time.perf_counter() - began, value))
    return min(calls, key=lambda call: call[0])


class Transfers(NamedTuple):
    """What moves between host and device: tables once, metrics with every call of the program.

    On a CPU all is 0, for there is nothing to move.
    """

    table_bytes: int = 0
    table_seconds: float = 0.0
    metrics_seconds: float = 0.0


def transfers(loop: RolloutDeviceLoop, calls: int) -> Transfers:
    """Copies timed apart: a part of the tables to the device, the metrics of a call back."""
    if not isinstance(loop.env, QueryEnvironment):
        return Transfers()
    tables = list(loop.env.arrays.values())
    columns = loop.env.arrays["columns"]
    if "GPU" not in columns.device:
        return Transfers()
    rows, wide = tf.shape(columns).numpy()
    part = np.zeros([min(rows, max(1, COPIED_BYTES // (4 * wide))), wide], np.float32)
    back = LoopMetrics.zeros(loop.agent)

    def there() -> None:
        with tf.device(columns.device):
            # An element read back says that all of it has arrived.
            tf.identity(tf.constant(part))[-1, -1].numpy()

    seconds_per_byte = timed(there)[0] / part.nbytes
    size = sum(table.shape.num_elements() * table.dtype.size for table in tables)
    metrics, _ = timed(lambda: [np.asarray(value) for value in back])
    return Transfers(size, size * seconds_per_byte, calls * metrics)


class LoopProfile(NamedTuple):
    """Where the time of PPO went.

    Attributes:
        seconds: Of each part; all but the tables' transfer add up to the whole.
        device_utilisation: Of the loop, from 0 to 1; None where nobody knows.
        transferred_bytes: Of the tables.
        scale: The loop's time over that of its parts timed apart; None where they were not.
    """

    seconds: dict[str, float]
    device_utilisation: float | None
    transferred_bytes: int
    scale: float | None


def loop_profile(clock: LoopClock, result: Mapping[str, Any], wall_seconds: float) -> LoopProfile:
    """Take the loop apart.

    Args:
        clock: Watched it.
        result: Of the run: env_steps, updates, env_steps_per_second, compile_seconds.
        wall_seconds: Of all of PPO.
    """
    compiling = min(result["compile_seconds"], wall_seconds)
    speed, loop = result["env_steps_per_second"], clock.loop
    program = min(result["env_steps"] / speed, wall_seconds - compiling) if speed else 0.0
    moved, parts = Transfers(), None
    if isinstance(loop, RolloutDeviceLoop):
        rounds = result["env_steps"] / loop.env_steps_per_round
        try:
            moved, each = transfers(loop, round(rounds)), part_seconds(loop)
        except tf.errors.ResourceExhaustedError:
            pass  # the loop alone fits the device: it stays in one piece
        else:
            parts = {
                FORWARD: rounds * each.forward,
                SEARCH: rounds * each.search,
                UPDATE: result["updates"] * each.update,
            }
    found = split(program, clock.utilisation, moved, parts)
    rest = wall_seconds - compiling - program
    seconds = {COMPILATION: compiling, **found.seconds, REST: rest}
    return found._replace(seconds=seconds)


def split(
    program: float, busy: float | None, moved: Transfers, parts: Mapping[str, float] | None
) -> LoopProfile:
    """The profile of the loop's program from what was measured.

    Args:
        program: Seconds in its calls.
        busy: Share of the device that was busy meanwhile.
        moved: Transfers.
        parts: Seconds of the program's parts, timed apart.
    """
    back = min(moved.metrics_seconds, program)
    idle = 0.0 if busy is None else (program - back) * (1.0 - busy)
    working = program - back - idle
    apart = sum(parts.values()) if parts else 0.0
    if parts and apart:
        scale = working / apart
        rows = {name: seconds * scale for name, seconds in parts.items()}
    else:
        scale, rows = None, {TOGETHER: working}
    rows |= {TRANSFERS: moved.table_seconds + back, IDLE: idle}
    return LoopProfile(rows, busy, moved.table_bytes, scale)
