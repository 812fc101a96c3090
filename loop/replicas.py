"""One agent on several devices: each has the whole of the weights and a part of the work.

A device steps its part of the environments. The rollouts of all are put together on each, so that
targets, statistics and the choice of rows are what one device computes; the gradient of a batch is
taken from a part of its rows, and averaged over the devices before it is clipped and applied.
"""

from __future__ import annotations

import contextlib
import functools
import math
import threading
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar, cast

import keras
import numpy as np
import tensorflow as tf

from kytolly.agent.kytolly import KytollyAgent
from kytolly.agent.replay_buffer import ReplayBuffer
from kytolly.environment.int32_variable import Int32Variable
from kytolly.environment.state_variable import raw_variable
from kytolly.loop.base import EnvRunner
from kytolly.loop.device import DeviceLoop
from kytolly.loop.learn import LoopMetrics
from kytolly.loop.member_state import METHODS, replaced_methods
from kytolly.loop.population import learner_variables, member_variables
from kytolly.loop.program import Program
from kytolly.loop.supervised import Learner, SupervisedLoop
from kytolly.policy.base import Policy
from kytolly.policy.batch import present
from kytolly.policy.replica import Replica, as_words, from_words

PATIENCE_SECONDS = 10.0  # for the other devices, after one of them has failed
KEYS = 1_000  # exchanges of a program, at most

Result = TypeVar("Result")


class DeviceFailed(RuntimeError):
    """A device ended a training of several; the message is one line."""


class Replicas:
    """The variables of a learner, on each of several devices.

    The learner's own variables are those of the first device, but for the divided ones, which are
    whole, and which `gather` brings up to date.

    Args:
        policy: Of the learner.
        devices: Such as "/GPU:0", at least two.
        variables: All that the programs read or assign.
        divided: Those among them of which a device has, and needs, a part of the first axis.
        columns: Those of which it has a part of the rows, and gets the others by an exchange.
    """

    def __init__(
        self,
        policy: Policy,
        devices: Sequence[str],
        variables: Sequence[tf.Variable],
        divided: Sequence[tf.Variable] = (),
        columns: Sequence[tf.Variable] = (),
    ):
        self.policy, self.devices = policy, tuple(devices)
        self.variables, self.divided = list(variables), {id(variable) for variable in divided}
        self.columns = {id(variable) for variable in columns}
        self.group = zlib.crc32(",".join(self.devices).encode()) >> 1
        self.failure = ""
        self._is_scattered = False
        self.copies: list[list[tf.Variable]] = []
        for device in self.devices:
            with tf.device(device):
                self.copies.append([self._copy(one, not self.copies) for one in self.variables])

    def _copy(self, one: tf.Variable, is_first: bool) -> tf.Variable:
        if id(one) in self.columns:
            rows = rows_of_part(one, len(self.devices)) + 1  # one for what others keep
            return tf.Variable(tf.zeros([rows, *one.shape[1:]], one.dtype), trainable=False)
        if id(one) in self.divided:
            return tf.Variable(tf.split(one, len(self.devices))[0], trainable=False)
        return one if is_first else tf.Variable(one, trainable=False)

    def scatter_once(self) -> None:
        """Give all devices the state that the learner has, which may be a checkpoint's."""
        if self._is_scattered:
            return
        self._is_scattered = True
        count = len(self.devices)
        for index, copies in enumerate(self.copies):
            for one, copy in zip(self.variables, copies, strict=True):
                if id(one) in self.columns:
                    rows = rows_of_part(one, count)
                    part = one.numpy()[index * rows : (index + 1) * rows]
                    missing = np.zeros([rows + 1 - len(part), *part.shape[1:]], part.dtype)
                    copy.assign(np.concatenate([part, missing]))
                elif id(one) in self.divided:
                    copy.assign(tf.split(one, count)[index])
                elif copy is not one:
                    copy.assign(one)

    def gather(self) -> None:
        """Give the learner's divided variables the parts that the devices have."""
        if self.failure:
            raise DeviceFailed(self.failure)
        for one, *parts in zip(self.variables, *self.copies, strict=True):
            if id(one) in self.columns:
                rows = np.concatenate([part.numpy()[:-1] for part in parts])
                one.assign(rows[: one.shape[0]])
            elif id(one) in self.divided:
                one.assign(np.concatenate([part.numpy() for part in parts]))

    def trace(self, function: Callable[..., Result], index: int, key: int, *args: Any) -> Result:
        """The function with a device's variables in place of the learner's."""
        replica = Replica(index, len(self.devices), self.group, key)
        replacements = []
        for variable, copy in zip(self.variables, self.copies[index], strict=True):
            if copy is variable:
                continue
            source: Any = copy
            if id(variable) in self.columns:
                source = ColumnPart(copy, replica, rows_of_part(variable, replica.count))
            methods = {name: getattr(source, name) for name in METHODS.split()}
            replacements.append((variable, methods))
        self.policy.replica = replica
        try:
            with replaced_methods(replacements):
                return function(*args)
        finally:
            self.policy.replica = None


class ColumnPart:
    """A device's part of a memory's column, which gives and takes the rows of the whole.

    It has the methods of a variable by which a memory reads and writes; the others fail.

    Args:
        part: [rows + 1, ...] the rows, and one to which those of other devices are written.
        replica: The device.
        rows: How many it has.
    """

    def __init__(self, part: tf.Variable, replica: Replica, rows: int):
        self.part, self.replica, self.rows = part, replica, rows

    def sparse_read(self, indices: tf.Tensor, name: str | None = None) -> tf.Tensor:
        """[B, ...] rows at [...] places, on whichever device they are."""
        local = self._local(indices)
        found = self.part.sparse_read(local)
        axis = len(local.shape) - 1
        words = as_words(found, axis)
        words = tf.where(tf.expand_dims(local, -1) < self.rows, words, 0)
        return from_words(found, self.replica.sum(words))

    def scatter_nd_update(
        self, indices: tf.Tensor, updates: tf.Tensor, name: str | None = None
    ) -> None:
        """Write those of the rows that this device keeps."""
        self.part.scatter_nd_update(self._local(indices), updates)

    def _local(self, indices: tf.Tensor) -> tf.Tensor:
        """The places in the part; `rows` for those of other devices."""
        local = indices - self.replica.index * self.rows
        return tf.where((local >= 0) & (local < self.rows), local, self.rows)

    def __getattr__(self, name: str) -> Callable[..., None]:
        def refuse(*args: object, **options: object) -> None:
            raise NotImplementedError(f"{name} of a column that several devices keep")

        return refuse


def rows_of_part(column: tf.Variable, count: int) -> int:
    """Rows that each of so many devices keeps of a column."""
    return -(-int(column.shape[0] or 0) // count)


class ReplicatedProgram(Program):
    """A function as a program of each device; a call runs all, and gives the first's result.

    On CPUs, whose XLA knows no exchange, it is not compiled.

    Args:
        replicas: The devices.
        function, signature, xla: As for `Program`.
    """

    def __init__(
        self,
        replicas: Replicas,
        function: Callable[..., object],
        signature: Sequence[object],
        xla: bool,
    ):
        xla = xla and all("GPU" in device for device in replicas.devices)
        super().__init__(function, signature, xla, replicas.devices[0])
        self.replicas = replicas
        key = int(np.random.SeedSequence().generate_state(1)[0] % 2**20) * KEYS
        self.programs = [
            Program(functools.partial(replicas.trace, function, index, key), signature, xla, device)
            for index, device in enumerate(replicas.devices)
        ]

    def __call__(self, *args: object) -> LoopMetrics:
        """Run; DeviceFailed where one of the devices cannot."""
        for program in self.programs:  # here, since only one may be traced at a time
            require_own_variables(program)
        results, errors = run_together([functools.partial(each, *args) for each in self.programs])
        self.xla = self.programs[0].xla
        if errors:
            index, error = next(iter(errors.items()))
            self.replicas.failure = failure_text(self.replicas.devices, index, error)
            raise DeviceFailed(self.replicas.failure)
        return results[0]


def require_own_variables(program: Program) -> None:
    """Refuse a program that reads another device's variables, which are not the learner's."""
    if any(
        handle.dtype == tf.resource and not handle.device.endswith(str(program.device)[1:])
        for handle in program.trace().captured_inputs
    ):
        raise ValueError(
            "the environment, the network or the loss has variables that are not its state, "
            "expected none, as each device needs its own. Make them constants, or train on one "
            "device."
        )


def run_together(
    calls: Sequence[Callable[[], Result]],
) -> tuple[dict[int, Result], dict[int, Exception]]:
    """The results and the errors by place of calls that wait for each other, each in a thread.

    After a first error the others are told to end, and left where they do not.
    """
    results: dict[int, Result] = {}
    errors: dict[int, Exception] = {}
    ended = threading.Semaphore(0)

    def run(index: int) -> None:
        try:
            results[index] = calls[index]()
        except Exception as error:
            errors[index] = error
        ended.release()

    threads = [
        threading.Thread(target=run, args=(index,), daemon=True) for index in range(len(calls))
    ]
    for thread in threads:
        thread.start()
    for _ in threads:
        ended.acquire()
        if errors:
            first = dict(errors)
            end_exchanges()
            for thread in threads:
                thread.join(PATIENCE_SECONDS)
            return results, first
    return results, errors


def failure_text(devices: Sequence[str], index: int, error: Exception) -> str:
    """One line for a training that a device has ended."""
    reason = " ".join(str(error).split())[:300] or type(error).__name__
    return (
        f"{devices[index]}, one of {len(devices)} devices that train together, failed ({reason}), "
        "expected that all train to the end. What was saved before is whole: resume the run, with "
        "another device if this one fails again."
    )


def end_exchanges() -> None:
    """Wake the devices that wait for one that has failed."""
    from tensorflow.python.eager import context

    with contextlib.suppress(Exception):
        tensorflow_context: Any = context.context()
        tensorflow_context.abort_collective_ops(tf.errors.UNAVAILABLE, "another device has failed")


class ReplicatedLoop:
    """A `DeviceLoop` on several devices.

    Args:
        loop: Made for one device, the first.
        devices: Such as "/GPU:0", at least two.

    Raises:
        ValueError: The environments or the rows of a batch cannot be divided.
    """

    env_restarts = None
    compile_seconds = 0.0

    def __init__(self, loop: DeviceLoop, devices: Sequence[str]):
        agent = loop.agent
        cfg, count = agent.cfg, len(devices)
        check_division(cfg.num_envs, "num_envs", count)
        rows, names = cfg.rows_per_update // cfg.gradient_accumulation, "batch_size"
        if "num_minibatches" in type(cfg).__dataclass_fields__:
            names = "num_minibatches, num_envs or rollout_steps"
        check_division(rows, "the number of rows of a batch", count, names)
        check_network(agent.policy.network)
        self.loop, self.agent = loop, agent
        divided = [raw_variable(one) for one in tf.nest.flatten(loop.env_state)]
        columns = []
        if "replay_capacity" in type(cfg).__dataclass_fields__:
            columns = columns_on_host(cast(ReplayBuffer, agent.memory))
        variables = member_variables(loop)
        self.replicas = Replicas(agent.policy, devices, variables, divided, columns)
        number = [tf.TensorSpec([], tf.int32)]
        function, xla = loop.program.function, agent.cfg.xla
        self.program = ReplicatedProgram(self.replicas, function, number, xla)

    def run(self, amount: int, deadline: float = math.inf) -> LoopMetrics:
        """As of every loop."""
        self.replicas.scatter_once()
        return self.program(tf.constant(-(-amount // self.loop.env_steps_per_iteration)))

    def bring_up_to_date(self) -> None:
        """As of every loop."""
        self.replicas.gather()

    def take_idle_seconds(self) -> None:
        """None: the devices wait only for each other."""

    @property
    def trackables(self) -> Mapping[str, object]:
        """Those of one device."""
        return self.loop.trackables

    @property
    def xla(self) -> bool:
        """True if evaluations, which play on the first device, are compiled with XLA."""
        return self.agent.cfg.xla

    def close(self) -> None:
        """Nothing to release."""


class ReplicatedSupervisedLoop(SupervisedLoop):
    """A `SupervisedLoop` on several devices: each takes a part of the rows of a batch.

    Args:
        learner: Made on the first device.
        devices: Such as "/GPU:0", at least two.

    Raises:
        ValueError: The rows of a batch cannot be divided.
    """

    def __init__(self, learner: Learner, devices: Sequence[str]):
        check_division(learner.cfg.batch_size, "batch_size", len(devices))
        check_network(learner.network)
        super().__init__(learner, devices[0])
        variables = learner_variables(learner.policy, learner.rows.variables)
        self.replicas = Replicas(learner.policy, devices, variables)

    def run(self, amount: int, deadline: float = math.inf) -> LoopMetrics:
        """As of one device."""
        self.replicas.scatter_once()
        return super().run(amount, deadline)

    def bring_up_to_date(self) -> None:
        """As of every loop."""
        self.replicas.gather()

    def _make_program(
        self, function: Callable[..., LoopMetrics], signature: Sequence[object]
    ) -> Program:
        return ReplicatedProgram(self.replicas, function, signature, self.learner.cfg.xla)


def supervised_loops(devices: Sequence[str]) -> Callable[[Learner], SupervisedLoop]:
    """A function that makes the loop of a learner on these devices."""
    return lambda learner: ReplicatedSupervisedLoop(learner, devices)


def replicated_loop(
    runner: EnvRunner, agent: KytollyAgent, devices: Sequence[str]
) -> ReplicatedLoop:
    """The loop that trains an agent on several devices; ValueError where it cannot be divided."""
    if runner.loop_name == "host":
        raise ValueError(
            f"device names {len(devices)} devices, and the environment is no tensor code, expected "
            "one that is: only such environments are divided. Choose one device, or write it as an "
            "environment.spec.TensorEnvironment."
        )
    return ReplicatedLoop(cast(DeviceLoop, runner.loop(agent, devices[0])), devices)


def columns_on_host(memory: ReplayBuffer) -> list[tf.Variable]:
    """The variables with observations, which now lie in the machine's memory, for checkpoints.

    They are nearly all of a memory. Frames of stacks, which are kept apart, are not among them.
    """

    def move(column: Any) -> Any:
        if column is None:
            return None
        is_int32 = isinstance(column, Int32Variable)
        return Int32Variable(column) if is_int32 else tf.Variable(column, trainable=False)

    with tf.device("/CPU:0"):
        obs, next_obs = (
            tf.nest.map_structure(move, part)
            for part in (memory.columns.obs, memory.columns.next_obs)
        )
    memory.columns = memory.columns._replace(obs=obs, next_obs=next_obs)
    return [raw_variable(column) for column in present((obs, next_obs))]


def check_division(number: int, name: str, count: int, advice: str = "") -> None:
    """Refuse a number that `count` devices cannot divide equally."""
    if number % count:
        raise ValueError(
            f"{name} is {number:,}, and {count} devices train, expected a multiple of {count}: "
            f"each takes an equal part. Change {advice or name}, or train on other devices."
        )


def check_network(network: keras.Model) -> None:
    """Refuse a network that computes with the rows of a batch together."""
    for layer in network._flatten_layers():
        if isinstance(layer, keras.layers.BatchNormalization):
            raise ValueError(
                f"the network has the layer {layer.name!r} of batch normalization, expected none "
                "on several devices, as each sees a part of a batch. Use LayerNormalization, or "
                "train on one device."
            )
