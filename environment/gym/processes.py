"""Environments in processes of their own, each of which can be ended and made anew."""

from __future__ import annotations

import contextlib
import copy
import multiprocessing
import multiprocessing.forkserver
import multiprocessing.util
import os
import select
import signal
import sys
import time
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import (
    CloudpickleWrapper,
    batch_space,
    clear_mpi_env_vars,
    create_shared_memory,
    iterate,
    read_from_shared_memory,
)

from kytolly.environment.faults import EnvironmentFault, RemoteError, one_line
from kytolly.environment.gym.restarts import Restarts
from kytolly.environment.gym.saved_state import NotSavable
from kytolly.environment.gym.worker import (
    DONE,
    RAISED,
    EnvDescription,
    SharedMemory,
    WorkerTask,
    run_worker,
    set_variables,
)

CLOSE_SECONDS = 5.0  # for an environment's own close(), before its process is ended
SAFE_PATH, SEARCH_PATH = "PYTHONSAFEPATH", "PYTHONPATH"
UNKNOWN = 255  # exit status of a process that has closed what would tell it; it may be alive
START_SECONDS = 60.0  # for a process to start and to import what it needs


class WorkerFault(EnvironmentFault):
    """An environment in a process raised, hangs, or has ended its process.

    Attributes:
        raised: What it raised, if it did.
    """

    raised: RemoteError | None = None


class Worker:
    """A process with one environment.

    Args:
        task: What it is to do.
        timeout_seconds: Most that the environment's constructor may take.
        buffer: Shared memory that it writes observations to.
        slot: Where.
    """

    def __init__(
        self,
        task: WorkerTask,
        timeout_seconds: float,
        buffer: SharedMemory | None = None,
        slot: int = 0,
    ):
        context = forkserver()
        self.place = f"environment {task.index}"
        self.task, self.timeout, self.failed = task, timeout_seconds, False
        self.pipe, theirs = context.Pipe()
        try:
            self.process = context.Process(
                target=run_worker,
                args=(self._sendable_task(), theirs, buffer, slot, python_variables()),
                daemon=True,
            )
            with clear_mpi_env_vars():
                self.process.start()
        except BaseException:
            self.pipe.close()
            raise
        finally:
            theirs.close()
        self._poll = select.poll()
        for end in (self.pipe.fileno(), self.process.sentinel):
            self._poll.register(end, select.POLLIN)

    def make_anew(self) -> None:
        """Ask for another environment, after the answer to "release"."""
        self.ask("make", self._sendable_task())

    def wait_until_made(self) -> Any:
        """Wait until the environment is made; returns its spaces, or its description."""
        self.answer(time.monotonic() + START_SECONDS + self.timeout, "the start of its process")
        return self.answer(time.monotonic() + self.timeout, "its constructor")

    def ask(self, command: str, given: object = None) -> None:
        """Send a command; if nobody listens, `answer` says so."""
        try:
            self.pipe.send((command, given))
        except OSError:
            return

    def answer(self, deadline: float, method: str = "") -> Any:
        """The next message.

        Raises:
            WorkerFault: There is none until the `deadline`, or an exception, or the process ended.
        """
        ready = self._poll.poll(max(0.0, deadline - time.monotonic()) * 1e3)
        where = f" It happened in {method}." if method else ""
        if not ready:
            self._fail(
                f"{self.task.name}: {self.place} did not return within {self.timeout:g} seconds: "
                f"it hangs, or it is slower than env_timeout_seconds allows.{where}"
            )
        try:
            if all(end != self.pipe.fileno() for end, _ in ready):
                raise EOFError
            kind, payload = self.pipe.recv()
        except Exception:
            self._fail(f"{self.task.name}: the process of {self.place} {self._end_text()}.{where}")
        if kind == RAISED:
            self._fail(
                f"{self.task.name}: {self.place} raised {payload.kinds[0]}: {payload.text}"
                f"{payload.place}{where}",
                payload,
            )
        return payload if kind == DONE else None

    def end(self, deadline: float = 0.0) -> None:
        """End the process; it has until `deadline` to do so by itself, after "close"."""
        if not self.failed:
            self.process.join(max(0.0, deadline - time.monotonic()))
        if self.process.is_alive() or self.process.exitcode == UNKNOWN:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.process.pid or 0, signal.SIGKILL)
            self.process.join(CLOSE_SECONDS)
        self.pipe.close()

    def _sendable_task(self) -> Any:
        """The task, as it is now, in a form that can be sent."""
        task = self.task
        return CloudpickleWrapper(lambda: task)  # type: ignore[arg-type]  # any function will do

    def _end_text(self) -> str:
        """The end of a process that does not answer any more, in words."""
        self.process.join(1.0)
        status = self.process.exitcode
        if status is None or status == UNKNOWN:
            return "closed its pipe"
        how = f"by signal {-status}" if status < 0 else f"with status {status}"
        return f"ended {how}, which an environment must not do"

    def _fail(self, message: str, raised: RemoteError | None = None) -> None:
        self.failed = True
        fault = WorkerFault(message)
        fault.raised = raised
        raise fault from (RuntimeError(raised.traceback) if raised else None)


def forkserver() -> Any:
    """The context of processes that are forked from a server, which runs when this returns.

    They are not forked from this process: TensorFlow's threads do not survive a fork. The server is
    started with `python -c`, which would first look for modules in the current folder, where files
    of strangers may lie. It looks where this process does.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["__main__", run_worker.__module__])
    variables = python_variables()
    path = os.pathsep.join(folder or os.getcwd() for folder in sys.path)
    set_variables({SAFE_PATH: "1", SEARCH_PATH: path})
    try:
        multiprocessing.forkserver.ensure_running()
    finally:
        set_variables(variables)
    return context


def python_variables() -> dict[str, str | None]:
    """The user's own environment variables that say where Python looks for modules."""
    return {name: os.environ.get(name) for name in (SAFE_PATH, SEARCH_PATH)}


def describe(task: WorkerTask, timeout_seconds: float) -> EnvDescription | None:
    """The description of a task's environment; None for what is not one environment."""
    worker = Worker(task._replace(describes=True), timeout_seconds)
    try:
        description = worker.wait_until_made()
        worker.end(time.monotonic() + CLOSE_SECONDS)
        return description
    finally:
        worker.failed = True
        worker.end()


class ProcessVector:
    """`E` environments in a process each, with as much of a VectorEnv as `HostVector` needs.

    An episode's end and the first observation of the next one share a step (SAME_STEP). Where
    `restarts` are given, an environment that fails is replaced: its row of that step is marked in
    `info["restarted"]`, and shows the first observation of a new episode.

    Args:
        task: The task of each process, but for its place.
        description: As from `describe`, with the action mask among the observations.
        places: Place of each environment among `task.count`.
        timeout_seconds: Most that a constructor, a reset or a step may take.
        restarts: Counts replaced environments; None: a fault is raised.
    """

    def __init__(
        self,
        task: WorkerTask,
        description: EnvDescription,
        places: Sequence[int],
        timeout_seconds: float,
        restarts: Restarts | None = None,
    ):
        self.task, self.description = task, description
        self.places, self.num_envs = list(places), len(places)
        self.timeout, self.restarts = timeout_seconds, restarts
        self.metadata = {"autoreset_mode": AutoresetMode.SAME_STEP}
        self.single_observation_space = space = description.observation_space
        self.single_action_space = description.action_space
        self.action_space = batch_space(description.action_space, self.num_envs)
        self._buffer = create_shared_memory(space, self.num_envs, forkserver())
        self._rows = read_from_shared_memory(space, self._buffer, self.num_envs)
        self.workers: list[Worker] = []
        self._steps = 0
        # Also when Python exits: it would wait for these processes without limit.
        self._closing = multiprocessing.util.Finalize(
            self, end_workers, (self.workers,), exitpriority=10
        )
        try:
            for slot in range(self.num_envs):
                self.workers.append(self._start(slot))
            for worker in self.workers:
                self._require_spaces(worker)
        except BaseException:
            self.close()
            raise

    def reset_async(self, seed: Sequence[int] | None) -> None:
        """Begin an episode in every environment."""
        for worker, one in zip(self.workers, seed or [None] * self.num_envs, strict=True):
            worker.ask("reset", one)

    def reset_wait(self, timeout: float) -> tuple[Any, dict]:
        """The first observations [E, *obs]."""
        faults = self._answers(range(self.num_envs), timeout)[1]
        self._replace(faults, self._steps)
        return copy.deepcopy(self._rows), {}

    def step_async(self, actions: np.ndarray) -> None:
        """Give every environment its action."""
        for worker, action in zip(self.workers, iterate(self.action_space, actions), strict=True):
            worker.ask("step", action)

    def step_wait(self, timeout: float) -> tuple[Any, list, list, list, dict[str, Any]]:
        """The outcome as from `VectorEnv.step`, without the infos of the environments."""
        answers, faults = self._answers(range(self.num_envs), timeout)
        ended = [slot for slot, answer in enumerate(answers) if len(answer) > 3]
        info: dict[str, Any] = {"final_obs": {slot: answers[slot][3] for slot in ended}}
        later = self._answers(ended, timeout)[1] if ended else {}
        self._steps += 1
        if faults or later:
            self._replace(faults, self._steps - 1)
            self._replace(later, self._steps)
            info["restarted"] = np.isin(np.arange(self.num_envs), list(faults))
        reward, terminated, truncated = ([answer[n] for answer in answers] for n in range(3))
        return copy.deepcopy(self._rows), reward, terminated, truncated, info

    def get_state(self) -> list[str]:
        """The state of each environment as JSON."""
        for worker in self.workers:
            worker.ask("state")
        answers, faults = self._answers(range(self.num_envs), self.timeout)
        for fault in faults.values():
            raise NotSavable(str(fault))
        for _, reason in answers:
            if reason is not None:
                raise NotSavable(reason)
        return [text for text, _ in answers]

    def set_state(self, texts: Sequence[str]) -> None:
        """Bring each environment into a state from `get_state`."""
        if len(texts) != self.num_envs:
            raise NotSavable(f"the state is of {len(texts)} environments, not {self.num_envs}")
        for worker, text in zip(self.workers, texts, strict=True):
            worker.ask("restore", text)
        reasons, faults = self._answers(range(self.num_envs), self.timeout)
        for reason in [*map(str, faults.values()), *filter(None, reasons)]:
            raise NotSavable(reason)

    def release(self) -> None:
        """Close the environments and keep the processes; `renew` waits for it."""
        for worker in self.workers:
            worker.ask("release")

    def renew(self, restarts: Restarts | None) -> None:
        """Make the environments anew after `release`, as in new processes.

        Where one cannot be closed, or not be made in the same process, a new process takes over.

        Args:
            restarts: Counts replaced environments from now on; None: a fault is raised.

        Raises:
            EnvironmentFault: One cannot be made in a new process either.
        """
        self.restarts, self._steps = restarts, 0
        _, new = self._answers(range(self.num_envs), CLOSE_SECONDS)
        for slot, worker in enumerate(self.workers):
            if slot in new:
                self._start_again(slot)
            else:
                worker.make_anew()
        for slot in range(self.num_envs):
            try:
                self._require_spaces(self.workers[slot])
            except WorkerFault as fault:
                if slot in new:
                    raise
                warnings.warn(one_line(f"{fault} A new process takes its place."), stacklevel=2)
                self._start_again(slot)
                self._require_spaces(self.workers[slot])

    def close(self) -> None:
        """End the processes, in limited time."""
        self._closing()

    def _start(self, slot: int) -> Worker:
        task = self.task._replace(index=self.places[slot])
        return Worker(task, self.timeout, self._buffer, slot)

    def _start_again(self, slot: int) -> None:
        self.workers[slot].end()
        self.workers[slot] = self._start(slot)

    def _require_spaces(self, worker: Worker) -> None:
        spaces = worker.wait_until_made()
        expected = self.single_observation_space, self.single_action_space
        if spaces != expected:
            raise EnvironmentFault(
                f"{worker.place} of {self.task.name} has the spaces {spaces}, another one has "
                f"{expected}. All must have the same."
            )

    def _answers(
        self, slots: Sequence[int], timeout: float
    ) -> tuple[list[Any], dict[int, WorkerFault]]:
        """The answers of some environments, those that failed with what a dummy step pays."""
        deadline, answers, faults = time.monotonic() + timeout, [], {}
        for slot in slots:
            try:
                answers.append(self.workers[slot].answer(deadline))
            except WorkerFault as fault:
                answers.append((0.0, False, False))
                faults[slot] = fault
        return answers, faults

    def _replace(self, faults: dict[int, WorkerFault], before: int) -> None:
        """Make environments anew, and begin an episode in each."""
        for slot, first in faults.items():
            if self.restarts is None:
                raise first
            fault: WorkerFault | None = first
            while fault is not None:
                self.workers[slot].end()
                seed = self.restarts.next_seed(slot, fault, before, self._steps)
                fault, before = self._begin_anew(slot, seed), self._steps

    def _begin_anew(self, slot: int, seed: int) -> WorkerFault | None:
        """Start an environment in place of another one; returns what goes wrong."""
        try:
            worker = self.workers[slot] = self._start(slot)
            self._require_spaces(worker)
            worker.ask("reset", seed)
            worker.answer(time.monotonic() + self.timeout, "reset()")
        except WorkerFault as fault:
            return fault
        return None


def end_workers(workers: list[Worker]) -> None:
    """Ask processes to close their environments; end those that have not after a few seconds."""
    deadline = time.monotonic() + CLOSE_SECONDS
    for worker in workers:
        worker.ask("close")
    for worker in workers:
        worker.end(deadline)
