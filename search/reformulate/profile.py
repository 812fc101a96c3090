"""Where the time of PPO's loop goes: `train_optimized.py --profile`.

The loop is one program, in which no part can be timed. So its parts are timed apart after training,
as programs of the same shapes: a rollout as the loop collects it, the same without the network, and
a whole iteration with its updates. Each part counts as often as it ran, and all of them are scaled
to add up to the time that the loop took.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, cast

import numpy as np
import tensorflow as tf

from kytolly.callback.base import Callback, TrainState
from kytolly.loop.device import DeviceLoop
from kytolly.loop.learn import LoopMetrics
from kytolly.machine.timing import fastest_call
from kytolly.search.reformulate.device_env import DeviceQueries

FORWARD, SEARCH, UPDATE = "forward", "search and reward", "update"
COMPILATION, REST, TRANSFERS, IDLE = "compilation", "evaluation and saving", "transfers", "idle"
WHOLE = "collection and update"
COPIED_BYTES = 2**26  # most bytes that are copied to learn how fast tables reach the device


class LoopKeeper(Callback):
    """Keeps the loop of a run, so that it can be profiled afterwards."""

    loop: Any = None

    def on_train_begin(self, state: TrainState) -> None:
        """Keep the loop."""
        self.loop = state.trackables.get("loop")

    def release(self) -> None:
        """Forget the loop, and so release its memory on the device."""
        self.loop = None


class WithoutNetwork:
    """An agent that acts at random, with its own policy; everything else is the agent's.

    Args:
        agent: The agent of the loop.
    """

    keeps_value = False

    def __init__(self, agent: Any):
        self.agent, self.policy = agent, self
        self.distribution = agent.policy.distribution

    def __getattr__(self, name: str) -> Any:
        return getattr(self.agent, name)

    def acting_weights(self, noise: Any) -> list[tf.Tensor]:
        """No weights."""
        return []

    def outputs(self, obs: Any, weights: list[tf.Tensor]) -> tuple[tf.Tensor, None]:
        """Params [E, P] of standard normal numbers."""
        count = tf.nest.flatten(obs)[0].shape[0]
        return tf.zeros([count, self.distribution.num_params]), None


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
        forward: The network and the choice of actions, in one rollout.
        search: Environment steps, observations and the buffer, in one rollout.
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
    agent = loop.agent
    network = agent.policy.network
    weights = network.get_weights()
    try:
        collecting, _ = fastest_call(rollout_program(loop, agent))
        searching, _ = fastest_call(rollout_program(loop, WithoutNetwork(agent)))
        whole, updates = fastest_call(lambda: int(loop.run(loop.env_steps_per_iteration).updates))
    finally:
        agent.policy.set_weights(weights)
    each = max(whole - collecting, 0.0) / max(updates, 1)
    return PartSeconds(max(collecting - searching, 0.0), min(searching, collecting), each)


def rollout_program(loop: DeviceLoop, agent: Any) -> Callable[[], None]:
    """One rollout of a loop with an agent, compiled as the loop is, and ready to run."""
    other = copy.copy(loop)
    other.agent = agent
    shape = [loop.rollout_steps, loop.num_envs, loop.words_per_env_step]
    bits = tf.constant(np.random.default_rng(0).integers(0, 2**32, shape, np.uint32))

    def collect(bits: tf.Tensor) -> Any:
        env_state = tf.nest.map_structure(lambda variable: variable.read_value(), loop.env_state)
        return other.collect(env_state, bits)[1]

    program = tf.function(collect, jit_compile=loop.xla or None, autograph=False)

    def run() -> None:
        program(bits).reward.numpy()  # waits for the result

    run()
    return run


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

    seconds_per_byte = fastest_call(copy_there)[0] / part.nbytes
    metrics, _ = fastest_call(lambda: [np.asarray(value) for value in back])
    return Transfers(size, size * seconds_per_byte, calls * metrics)
