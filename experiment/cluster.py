"""Runs on the nodes of a Ray cluster, watched here as those of this machine are."""

from __future__ import annotations

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
from kytolly.experiment.node_run import Changes, NodeRun, Order, read_tree
from kytolly.experiment.processes import POLL_SECONDS, ChildRun, Report
from kytolly.machine.cluster import (
    Node,
    cluster_nodes,
    connect,
    node_text,
    refuse_other_versions,
    versions_here,
)
from kytolly.record.files import open_regular, write_file

PATH_FLAGS = ("--config", "--init", "--log-dir", "--resume")  # what follows them is a path
VARIABLES = ("KYTOLLY_", "TF_", "XLA_", "KERAS_")  # beginnings of environment variables that count
CLOSE_SECONDS = 5.0  # for a node to remove what came home
MAX_LOST = 3  # nodes that may die, one after the other, without a checkpoint in between


class Cluster:
    """A Ray cluster on whose nodes children run, each in a Ray actor.

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
        began = time.perf_counter()
        self.ray: ModuleType = connect(address)
        try:
            nodes = cluster_nodes(self.ray)
            for line in refuse_other_versions(nodes, versions_here()):
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

    def launch(self, child: ChildRun, words: Sequence[str]) -> tuple[Any, Any]:
        """A Ray actor that runs a command line for a child, and a reference to its changes."""
        paths = {value for flag, value in itertools.pairwise(words) if flag in PATH_FLAGS}
        if self.shared is not None:
            words = [os.path.abspath(word) if word in paths else word for word in words]
        order = Order(
            words=words,
            run_dir=str(child.run_dir),
            inputs={} if self.shared else {path: read_tree(Path(path)) for path in sorted(paths)},
            log=str(child.log.absolute()) if self.shared else None,
            threads=self.cpus,
            cwd=os.getcwd(),
            variables={
                **{name: text for name, text in os.environ.items() if name.startswith(VARIABLES)},
                **({} if self.gpus else {"CUDA_VISIBLE_DEVICES": ""}),
            },
        )
        run = self.ray.remote(NodeRun).options(
            num_cpus=self.cpus, num_gpus=self.gpus, memory=self.memory_bytes, max_restarts=0
        )
        actor = run.remote()
        return actor, actor.start.remote(order)

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
        self._actor, self._answer = cluster.launch(child, child.words)
        self._runs = self._told_to_stop = False
        self._num_lost = 0

    def poll(self) -> int | None:
        """Bring home what is new, if the node has answered; the exit status once it has ended."""
        if self.returncode is None and self._ray.wait([self._answer], timeout=0)[0]:
            self._take_answer()
        return self.returncode

    def send_signal(self, sig: int) -> None:
        """Stop the process; one that has not begun never will."""
        self._told_to_stop = True
        if self._runs:
            self._actor.stop.remote()
        else:
            self._ray.kill(self._actor)
            self.returncode = -int(signal.SIGTERM)

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
            self.returncode = changes.status
            self._ray.wait([self._actor.close.remote()], timeout=CLOSE_SECONDS)

    def _bring_home(self, changes: Changes) -> None:
        folder = self._child.run_dir
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
            for name in read_names(folder) - changes.names:
                with contextlib.suppress(FileNotFoundError):
                    (folder / name).unlink()
        self._say(changes.log)

    def _go_on_elsewhere(self, error: Exception) -> None:
        with contextlib.suppress(Exception):
            self._ray.kill(self._actor)  # it may only be out of reach
        if self._told_to_stop:
            self.returncode = -int(signal.SIGTERM)
            return
        self._num_lost += 1
        if self._num_lost > MAX_LOST:
            return self._fail(error)
        child, words = self._child, list(self._child.words)
        if (child.run_dir / "config.yaml").is_file():
            flags = [word for word in words if word in ("--json", "--trust")]
            words = [*words[:4], *flags, "--resume", str(child.run_dir)]
        self._say_line(
            "its node or its process there is gone; it goes on elsewhere from what came home"
        )
        self._actor, self._answer = self._cluster.launch(child, words)
        self._runs = False

    def _fail(self, error: Exception) -> None:
        self._say_line(one_line(str(error)))
        self.returncode = 1

    def _say_line(self, text: str) -> None:
        self._say(f"{PREFIX}{text}\n".encode())

    def _say(self, text: bytes) -> None:
        if text:
            with open(self._child.log, "ab", opener=open_regular) as log:
                log.write(text)


def read_names(folder: Path) -> set[str]:
    """The files in a run's folder that a node may have removed."""
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
