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
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import tensorflow as tf

from kytolly.config.run import RunConfig
from kytolly.loop.device import DeviceLoop
from kytolly.loop.learn import LoopMetrics
from kytolly.loop.member_state import METHODS
from kytolly.loop.population import member_variables
from kytolly.loop.program import Program
from kytolly.policy.base import Policy
from kytolly.policy.replica import Replica

PATIENCE_SECONDS = 10.0  # for the other devices, after one of them has failed
KEYS = 1_000  # exchanges of a program, at most

Result = TypeVar("Result")


class DeviceFailed(RuntimeError):
    """A device ended a training of several; the message is one line."""


class Replicas:
    """The variables of a learner on several devices, and programs that run on all at once.

    The learner's own variables are those of the first device, but for the divided ones, which are
    whole, and which `gather` brings up to date.

    Args:
        policy: Of the learner.
        devices: Such as "/GPU:0", at least two.
        variables: All that the programs read or assign.
        divided: Those among them of which a device has a part of the first axis.
    """

    def __init__(
        self,
        policy: Policy,
        devices: Sequence[str],
        variables: Sequence[tf.Variable],
        divided: Sequence[tf.Variable] = (),
    ):
        self.policy, self.devices = policy, tuple(devices)
        self.variables, self.divided = list(variables), {id(variable) for variable in divided}
        self.group = zlib.crc32(",".join(self.devices).encode()) >> 1
        self.failure = ""
        count = len(self.devices)
        self.copies: list[list[tf.Variable]] = []
        for device in self.devices:
            with tf.device(device):
                self.copies.append(
                    [
                        tf.Variable(tf.split(one, count)[0], trainable=False)
                        if id(one) in self.divided
                        else (tf.Variable(one, trainable=False) if self.copies else one)
                        for one in self.variables
                    ]
                )

    def scatter(self) -> None:
        """Give all devices the state that the learner has."""
        for index, copies in enumerate(self.copies):
            for one, copy in zip(self.variables, copies, strict=True):
                if id(one) in self.divided:
                    copy.assign(tf.split(one, len(self.devices))[index])
                elif copy is not one:
                    copy.assign(one)

    def gather(self) -> None:
        """Give the learner's divided variables the parts that the devices have."""
        if self.failure:
            raise DeviceFailed(self.failure)
        for one, *parts in zip(self.variables, *self.copies, strict=True):
            if id(one) in self.divided:
                one.assign(np.concatenate([part.numpy() for part in parts]))

    def program(
        self, function: Callable[..., Result], signature: Sequence[object], xla: bool
    ) -> Callable[..., Result]:
        """A function as a program of each device; a call runs all, and gives the first's result.

        On CPUs, whose XLA knows no exchange, it is not compiled.
        """
        key = int(np.random.SeedSequence().generate_state(1)[0] % 2**20) * KEYS
        xla = xla and all("GPU" in device for device in self.devices)
        programs = [
            Program(functools.partial(self._trace, function, index, key), signature, xla, device)
            for index, device in enumerate(self.devices)
        ]

        def run(*args: object) -> Result:
            for program in programs:
                program.trace()
                self._require_own_variables(program)
            return self._run_together([functools.partial(each, *args) for each in programs])[0]

        return run

    def _trace(self, function: Callable[..., Result], index: int, key: int, *args: Any) -> Result:
        """The function with a device's variables in place of the learner's."""
        copies = self.copies[index]
        pairs = [pair for pair in zip(self.variables, copies, strict=True) if pair[0] is not pair[1]]
        self.policy.replica = Replica(index, len(self.devices), self.group, key)
        try:
            for variable, copy in pairs:
                methods = {name: getattr(copy, name) for name in METHODS.split()}
                vars(variable).update(methods)
            return function(*args)
        finally:
            self.policy.replica = None
            for variable, _ in pairs:
                for name in METHODS.split():
                    vars(variable).pop(name, None)

    def _require_own_variables(self, program: Program) -> None:
        """Refuse a program that reads another device's variables, which are not the learner's."""
        if any(
            handle.dtype == tf.resource and not handle.device.endswith(str(program.device)[1:])
            for handle in program.captured
        ):
            raise ValueError(
                "the environment or the network has variables that are not its state, expected "
                "none, as each device needs its own. Make them constants, or train on one device."
            )

    def _run_together(self, calls: Sequence[Callable[[], Result]]) -> list[Result]:
        results: dict[int, Result] = {}
        errors: dict[int, Exception] = {}
        ended = threading.Semaphore(0)

        def run(index: int) -> None:
            try:
                results[index] = calls[index]()
            except Exception as error:
                errors.setdefault(index, error)
            ended.release()

        # Threads that do not keep the process from ending, should one wait for a dead device.
        threads = [
            threading.Thread(target=run, args=(index,), daemon=True) for index in range(len(calls))
        ]
        for thread in threads:
            thread.start()
        for _ in calls:
            ended.acquire()
            if errors:
                break
        if not errors:
            return [results[index] for index in range(len(calls))]
        first, error = next(iter(errors.items()))
        reason = " ".join(str(error).split())[:300] or type(error).__name__
        self.failure = (
            f"device {self.devices[first]} failed among {', '.join(self.devices)} ({reason}), "
            "expected that all train to the end. The newest checkpoint is whole: resume the run, "
            "on fewer devices if it fails again."
        )
        end_exchanges(self.failure)
        for thread in threads:
            thread.join(PATIENCE_SECONDS)
        raise DeviceFailed(self.failure)


def end_exchanges(reason: str) -> None:
    """Wake the devices that wait for one that has failed."""
    from tensorflow.python.eager import context

    with contextlib.suppress(Exception):
        context.context().abort_collective_ops(tf.errors.UNAVAILABLE, reason)


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
        check_division(agent.cfg, len(devices))
        self.loop, self.agent = loop, agent
        divided = tf.nest.flatten(loop.env_state)
        self.replicas = Replicas(agent.policy, devices, member_variables(loop), divided)
        number = [tf.TensorSpec([], tf.int32)]
        self.program = self.replicas.program(loop.program.function, number, agent.cfg.xla)
        self._has_state = False

    def run(self, amount: int, deadline: float = math.inf) -> LoopMetrics:
        """As of every loop."""
        if not self._has_state:  # which may have come from a checkpoint
            self.replicas.scatter()
            self._has_state = True
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


def check_division(cfg: RunConfig, count: int) -> None:
    """Refuse environments and batches that `count` devices cannot divide equally."""
    rows = cfg.rows_per_update // cfg.gradient_accumulation
    for number, what, advice in (
        (cfg.num_envs, "num_envs", "num_envs"),
        (rows, "the rows of a batch", "batch_size, num_minibatches or gradient_accumulation"),
    ):
        if number % count:
            raise ValueError(
                f"{what} is {number:,}, and {count} devices train, expected a multiple of {count}: "
                f"each takes an equal part. Change {advice}, or train on other devices."
            )
