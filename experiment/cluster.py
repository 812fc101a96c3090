"""Runs on the nodes of a Ray cluster, watched here as those of this machine are."""

from __future__ import annotations

import collections
import contextlib
import itertools
import os
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from kytolly.config.words import PREFIX, path_text
from kytolly.environment.faults import one_line
from kytolly.experiment.members import GROUP_FILE, SWEEP_FILE
from kytolly.experiment.node_run import Changes, Files, NodeRun, Order, read_tree, within
from kytolly.experiment.processes import POLL_SECONDS, ChildRun, Report
from kytolly.machine.cluster import (
    Node,
    cluster_nodes,
    connect,
    node_text,
    refuse_other_versions,
    starts_here,
    versions_here,
)
from kytolly.record.files import open_regular, write_file

PATH_FLAGS = (
    "--config",
    "--init",
    "--log-dir",
    "--part-of",
    "--resume",
)  # what follows them is a path
VARIABLES = ("KYTOLLY_", "TF_", "XLA_", "KERAS_")  # beginnings of environment variables that count
IDLE_SECONDS = 2.0  # that an actor waits for the next run
MAX_LOST = 3  # nodes that may die, one after the other, without a checkpoint in between


class Cluster:
    """A Ray cluster on whose nodes children run, each watched by a Ray actor.

    An actor that has watched a run to its end takes the next one that waits, on the same node.

    What a run writes is brought home as it is written, so that progress, results and checkpoints
    are in the driver's folder. A run whose node dies goes on elsewhere from there.

    Args:
        address: As for `machine.cluster.connect`.
        cpus: Cores that each run takes, which is also the number of TensorFlow's threads.
        gpus: GPUs that each run takes.
        memory_bytes: Memory that each run takes.
        shared: A folder that all nodes have, where runs lie; None: nodes share no disk.
        report: Shows a line of progress.

    Raises:
        ValueError: The cluster does not answer, has another version, or no node is large enough.
    """

    def __init__(
        self,
        address: str,
        cpus: int,
        gpus: int,
        memory_bytes: int,
        shared: Path | None,
        report: Report,
    ):
        self.cpus, self.gpus, self.memory_bytes = cpus, gpus, memory_bytes
        self.shared = shared
        self._actors: dict[Any, Any] = {}  # that have no run: a reference to what says it is there
        self._waiting: collections.deque[RemoteProcess] = collections.deque()  # for an actor
        self._idle_since = 0.0  # that more actors may be there than processes wait
        began = time.perf_counter()
        self.ray: ModuleType = connect(address)
        try:
            here = versions_here()
            nodes = cluster_nodes(self.ray, here if starts_here(address) else None)
            for line in refuse_other_versions(nodes, here):
                report(line)
            self.slots = sum(self._slots_of(node) for node in nodes)
            if not self.slots:
                raise ValueError(
                    f"a run takes {self._size_text()}, and no node has as much: "
                    f"{'; '.join(map(node_text, nodes))}. Lower --run-cpus, --run-gpus or "
                    "--run-gigabytes."
                )
        except BaseException:
            self.close()
            raise
        seconds = time.perf_counter() - began
        count = f"{len(nodes)} node{'s' * (len(nodes) > 1)}"
        report(f"cluster of {count}, room for {self.slots} runs at a time, after {seconds:.1f} s")

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Leave the cluster; one that was started here ends."""
        self.ray.shutdown()

    def start(self, child: ChildRun, threads: int) -> None:
        """Start a child on a node that has room, or as soon as one has.

        Args:
            child: It.
            threads: Ignored: it has one for each of its cores.
        """
        if self.shared is not None and self.shared not in child.run_dir.absolute().parents:
            raise ValueError(
                f"{path_text(child.run_dir)} is not in the folder {path_text(self.shared)}, "
                "expected a run on the disk that all nodes share: give --log-dir or --study in it."
            )
        open(child.log, "wb", opener=open_regular).close()
        child.begin(RemoteProcess(self, child))

    def wait_for_actor(self, process: RemoteProcess) -> None:
        """Give a process an actor as soon as there is one; Ray is asked for one more."""
        self._waiting.append(process)
        if len(self._actors) < len(self._waiting):
            run = self.ray.remote(NodeRun).options(
                num_cpus=self.cpus, num_gpus=self.gpus, memory=self.memory_bytes, max_restarts=0
            )
            actor = run.remote()
            self._actors[actor] = actor.is_there.remote()

    def leave(self, process: RemoteProcess) -> None:
        """Forget a process that waits for an actor."""
        self._waiting.remove(process)
        self._idle_since = time.monotonic()

    def take_back(self, actor: Any, answer: Any) -> None:
        """Take an actor whose run has ended; what it answers says that the run is cleared away."""
        self._actors = {actor: answer, **self._actors}  # before those that wait for a node
        self._idle_since = time.monotonic()

    def give_actors(self) -> None:
        """Give the actors that are there to the processes that wait, the longest first.

        Those for which none waits, nor comes for a while, end: they hold a part of a node.
        """
        if time.monotonic() - self._idle_since > IDLE_SECONDS:
            while len(self._actors) > len(self._waiting):
                self.ray.kill(self._actors.popitem()[0])
        while self._waiting:
            answers = list(self._actors.values())
            ready = self.ray.wait(answers, num_returns=len(answers), timeout=0)[0]
            actor = next((a for a, answer in self._actors.items() if answer in ready), None)
            if actor is None:
                return
            del self._actors[actor]
            self._waiting.popleft().begin(actor)

    def order(self, child: ChildRun, words: Sequence[str]) -> Order:
        """What a node shall run for a child."""
        paths = {value for flag, value in itertools.pairwise(words) if flag in PATH_FLAGS}
        if self.shared is not None:
            words = [os.path.abspath(word) if word in paths else word for word in words]
        return Order(
            words=words,
            folder=str(child.folder),
            members=child.members,
            inputs={} if self.shared else {path: files_of(child, path) for path in sorted(paths)},
            log=str(child.log.absolute()) if self.shared else None,
            threads=self.cpus,
            cwd=os.getcwd(),
            variables={
                **{name: text for name, text in os.environ.items() if name.startswith(VARIABLES)},
                **({} if self.gpus else {"CUDA_VISIBLE_DEVICES": ""}),
            },
        )

    def _slots_of(self, node: Node) -> int:
        """Runs that a node has room for."""
        room = min(node.cpus // self.cpus, node.memory_bytes // self.memory_bytes)
        return int(min(room, node.gpus // self.gpus) if self.gpus else room)

    def _size_text(self) -> str:
        gpus = f", {self.gpus} GPUs" if self.gpus else ""
        return f"{self.cpus} CPUs{gpus} and {self.memory_bytes / 2**30:.1f} GB"


class RemoteProcess:
    """The process of a child on some node: `experiment.processes.Process`.

    A run of which the node is lost begins again on another one, from what came home.
    """

    def __init__(self, cluster: Cluster, child: ChildRun):
        self.returncode: int | None = None
        self._cluster, self._child, self._ray = cluster, child, cluster.ray
        self._words = child.words
        self._actor: Any = None  # until there is one
        self._answer: Any = None
        self._runs = self._told_to_stop = False
        self._num_lost = 0
        cluster.wait_for_actor(self)

    def begin(self, actor: Any) -> None:
        """Run the child by an actor."""
        self._actor = actor
        self._answer = actor.start.remote(self._cluster.order(self._child, self._words))

    def poll(self) -> int | None:
        """Bring home what is new, if the node has answered; the exit status once it has ended."""
        self._cluster.give_actors()
        if self._answer is not None and self._ray.wait([self._answer], timeout=0)[0]:
            self._take_answer()
        return self.returncode

    def send_signal(self, sig: int) -> None:
        """Stop the process; one that has not begun never will."""
        self._told_to_stop = True
        if self._runs:
            self._actor.stop.remote()
            return
        if self._actor is None:
            self._cluster.leave(self)
        else:
            self._ray.kill(self._actor)
        self._end(-int(signal.SIGTERM))

    def wait(self) -> int:
        """Wait for the end of the process, and for what it has written."""
        while (status := self.poll()) is None:
            time.sleep(POLL_SECONDS)
        return status

    def _take_answer(self) -> None:
        from ray.exceptions import RayActorError, RayError

        try:
            changes: Changes = self._ray.get(self._answer)
        except RayActorError as error:
            return self._go_on_elsewhere(error)
        except RayError as error:  # whose cause is what the node raised
            return self._fail(getattr(error, "cause", None) or error)
        if not self._runs:
            self._runs = True
            self._child.begin(self)  # until now it has waited for room
        self._bring_home(changes)
        if changes.status is None:
            self._answer = self._actor.changes.remote()
        else:
            self._cluster.take_back(self._actor, self._actor.clear.remote())
            self._end(changes.status)

    def _end(self, status: int) -> None:
        self.returncode, self._answer = status, None

    def _bring_home(self, changes: Changes) -> None:
        folder = self._child.folder
        for name, appends, content in changes.files:
            file = folder / name
            file.parent.mkdir(parents=True, exist_ok=True)
            if appends:
                with open(file, "ab", opener=open_regular) as to:
                    to.write(content)
            else:
                write_file(file, lambda to, content=content: to.write_bytes(content))
            if file.suffix == ".json" and file.name.startswith("ckpt-"):
                self._num_lost = 0
        if changes.names:
            for name in read_names(folder, self._child.members) - changes.names:
                with contextlib.suppress(FileNotFoundError):
                    (folder / name).unlink()
        self._say(changes.log)

    def _go_on_elsewhere(self, error: Exception) -> None:
        with contextlib.suppress(Exception):
            self._ray.kill(self._actor)  # it may only be out of reach
        self._actor, self._answer, self._runs = None, None, False
        if self._told_to_stop:
            return self._end(-int(signal.SIGTERM))
        self._num_lost += 1
        if self._num_lost > MAX_LOST:
            return self._fail(error)
        child, words = self._child, list(self._child.words)
        if "--resume" not in words and (child.run_dir / "config.yaml").is_file():
            flags = [word for word in words if word in ("--json", "--trust")]
            end = words[words.index("--until") :][:2] if "--until" in words else []
            self._words = [*words[:4], *flags, "--resume", str(child.run_dir), *end]
        self._say_line(
            "its node or its process there is gone; it goes on elsewhere from what came home"
        )
        self._cluster.wait_for_actor(self)

    def _fail(self, error: Exception) -> None:
        self._say_line(one_line(str(error)))
        if self._actor is not None:  # what it has begun must not go on
            self._ray.kill(self._actor)
        self._end(1)

    def _say_line(self, text: str) -> None:
        self._say(f"{PREFIX}{text}\n".encode())

    def _say(self, text: bytes) -> None:
        if text:
            with open(self._child.log, "ab", opener=open_regular) as log:
                log.write(text)


def files_of(child: ChildRun, path: str) -> Files:
    """What a node needs under a path of a child's command line."""
    if not child.members or Path(path) != child.folder:
        return read_tree(Path(path))
    # What several runs have in common, and the settings of each.
    names = {GROUP_FILE, SWEEP_FILE, *(f"{Path(member).name}.yaml" for member in child.members)}
    return read_tree(
        Path(path), lambda name: Path(name).name in names or within(name, child.members)
    )


def read_names(folder: Path, members: Sequence[str]) -> set[str]:
    """The files in the folder of a child that a node may have removed."""
    names = (str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
    return {name for name in names if within(name, members)}
