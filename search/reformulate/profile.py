"""Where the time of PPO's loop goes: `train_optimized.py --profile`.

The loop is one program, in which no part can be timed. So its parts are timed apart after training,
as programs of the same shapes (see `loop.profile`): an iteration without updates, the same without
the network, and a whole one. Each part counts as often as it ran, and all of them are scaled
to add up to the time that the loop took.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, cast

import numpy as np
import tensorflow as tf

from kytolly.loop.device import DeviceLoop
from kytolly.loop.learn import LoopMetrics
from kytolly.loop.profile import ACTING, ENVIRONMENTS, fastest_call, iteration_parts
from kytolly.loop.profile import UPDATE as WHOLE_UPDATE
from kytolly.search.reformulate.device_env import DeviceQueries

FORWARD, SEARCH, UPDATE = "forward", "search and reward", "update"
COMPILATION, REST, TRANSFERS, IDLE = "compilation", "evaluation and saving", "transfers", "idle"
WHOLE = "collection and update"
COPIED_BYTES = 2**26  # most bytes that are copied to learn how fast tables reach the device


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


class PartSeconds(NamedTuple):
    """Seconds of the loop's parts, timed apart.

    Attributes:
        forward: The network and the choice of actions, in one iteration.
        search: Environment steps, observations and the buffer, in one iteration.
        update: One update, with its share of the advantages.
    """

    forward: float
    search: float
    update: float


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
            parts = {
                FORWARD: iterations * each.forward,
                SEARCH: iterations * each.search,
                UPDATE: result["updates"] * each.update,
            }
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


def part_seconds(loop: DeviceLoop) -> PartSeconds:
    """Time the parts of a loop. Its agent goes on learning, but its network keeps its weights.

    Raises:
        tf.errors.ResourceExhaustedError: The memory of the device does not suffice.
    """
    parts = iteration_parts(loop, split_update=False)
    updates = loop.agent.cfg.updates_per_iteration
    return PartSeconds(parts[ACTING], parts[ENVIRONMENTS], parts[WHOLE_UPDATE] / updates)


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
