"""A Ray cluster: the connection to it, its nodes, and the versions on them."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import signal
import socket
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

from kytolly.machine.hardware import usable_cores

INSTALL = 'pip install "kytolly[cluster]"'
ADDRESS = re.compile(r"(ray|(?:ray://)?(?P<host>[\w.-]+):(?P<port>[0-9]{1,5}))", re.ASCII)
ANSWER_SECONDS = 5.0  # for an address
NODE_SECONDS = 60.0  # for all nodes to say which versions they have
PACKAGES = ("kytolly", "tensorflow", "keras", "numpy", "gymnasium")


class Node(NamedTuple):
    """A machine of the cluster.

    Attributes:
        host: Its name and address.
        cpus, gpus, memory_bytes: What runs may take of it.
        versions: Of Python and of the packages that decide what a run computes; None where it did
            not answer.
    """

    host: str
    cpus: float
    gpus: float
    memory_bytes: float
    versions: dict[str, str] | None


def import_ray() -> ModuleType:
    """Ray; ModuleNotFoundError names the command that installs it."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    token = os.environ.get("RAY_AUTH_TOKEN_PATH", Path.home() / ".ray" / "auth_token")
    # Where there is one, Ray's own clusters ask for it. Ray reads the mode when it is imported.
    if os.path.isfile(token) and "ray" not in sys.modules:
        os.environ.setdefault("RAY_AUTH_MODE", "token")
    os.environ.setdefault("RAY_DEDUP_LOGS_SKIP_REGEX", ".")  # its lines to standard output
    try:
        import ray
    except ModuleNotFoundError:
        raise ModuleNotFoundError(
            f"a cluster needs Ray, which is not installed. Install it here and on every node: "
            f"{INSTALL}."
        ) from None
    return ray


def connect(address: str, cpus: int | None = None) -> ModuleType:
    """Connect to a cluster; returns Ray.

    Args:
        address: `ray`: the one that the environment variable RAY_ADDRESS names, or else a new one
            of this machine alone, which ends with this process. `HOST:PORT`: one to
            which this machine belongs. `ray://HOST:PORT`: any, by its Ray Client server.
        cpus: CPUs that a new cluster of this machine says it has; None: one for each core.

    Raises:
        ValueError: The address is none, or does not answer.
        ModuleNotFoundError: Ray is not installed.
    """
    if address == "ray":
        address = os.environ.get("RAY_ADDRESS") or address
    match = ADDRESS.fullmatch(address)
    if match is None:
        raise ValueError(
            f"the cluster's address is {address!r}, expected ray, ray://HOST:PORT or HOST:PORT. "
            "Change it."
        )
    ray = import_ray()
    if match["host"]:
        _require_answer(address, match["host"], int(match["port"]))
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    quiet = {"logging_level": logging.ERROR, "log_to_driver": False}
    logging.getLogger("ray").setLevel(logging.ERROR)
    try:
        if match["host"]:
            ray.init(address, **quiet)
        else:
            ray.init("local", num_cpus=cpus or usable_cores(), include_dashboard=False, **quiet)
    except Exception as error:  # Ray's own, of many kinds
        reason = " ".join(str(error).split())[:300]
        raise ValueError(
            f"the cluster at {address} refuses this machine ({reason}), expected a cluster that "
            "runs, with this Python and this Ray. See `ray status` there."
        ) from error
    finally:
        for number, handler in handlers.items():  # Ray's handler would end the process
            signal.signal(number, handler)
    return ray


def starts_here(address: str) -> bool:
    """True where `connect` starts a new cluster of this machine."""
    return address == "ray" and not os.environ.get("RAY_ADDRESS")


@contextlib.contextmanager
def joined(address: str, actors: int = 1) -> Iterator[ModuleType]:
    """Ray, connected to a cluster while this lasts; a connection that exists stays.

    Args:
        address: As for `connect`.
        actors: Actors of one CPU each that shall have room. A new cluster of this machine has it,
            where that is more than the cores: they may wait for something else.

    Raises:
        ValueError: As from `connect`, or nodes have another version.
    """
    ray = import_ray()
    if ray.is_initialized():
        warn_of_little_room(ray, actors)
        yield ray
        return
    connect(address, max(actors, usable_cores()))
    try:
        warn_of_little_room(ray, actors)
        if not starts_here(address):
            for line in refuse_other_versions(cluster_nodes(ray), versions_here()):
                warnings.warn(line, stacklevel=3)
        yield ray
    finally:
        ray.shutdown()


def warn_of_little_room(ray: ModuleType, actors: int) -> None:
    """Say so where actors will wait, perhaps for nodes that Ray adds."""
    cpus = ray.cluster_resources().get("CPU", 0.0)
    if cpus < actors:
        warnings.warn(
            f"{actors} actors need a CPU each, and the cluster has {cpus:g}: the others wait until "
            "it has more. Lower actors, or add nodes.",
            stacklevel=4,
        )


def cluster_nodes(ray: ModuleType, versions: dict[str, str] | None = None) -> list[Node]:
    """The nodes that are alive, and what each says of itself.

    Args:
        ray: Ray, connected.
        versions: Those of all nodes, where they are known; None: each is asked, which takes a
            process there.
    """
    alive = [node for node in ray.nodes() if node["Alive"]]
    if versions is not None:
        answers = [versions] * len(alive)
    else:
        looks = [_versions_there(ray, node["NodeID"]) for node in alive]
        done = set(ray.wait(looks, num_returns=len(looks), timeout=NODE_SECONDS)[0])
        answers = [ray.get(look) if look in done else None for look in looks]
    return [
        Node(
            f"{node['NodeManagerHostname']} ({node['NodeManagerAddress']})",
            node["Resources"].get("CPU", 0.0),
            node["Resources"].get("GPU", 0.0),
            node["Resources"].get("memory", 0.0),
            answer,
        )
        for node, answer in zip(alive, answers, strict=True)
    ]


def versions_here() -> dict[str, str]:
    """The versions of this process, as a node gives its own."""
    return _version_reader()(PACKAGES)


def other_versions(node: Node, here: dict[str, str]) -> list[str]:
    """The versions of a node that differ from those here, such as `keras 3.14 (here 3.15)`."""
    there = node.versions or dict.fromkeys(here, "no answer")
    return [
        f"{name} {there[name]} (here {here[name]})" for name in here if there[name] != here[name]
    ]


def refuse_other_versions(nodes: Sequence[Node], here: dict[str, str]) -> list[str]:
    """Refuse nodes with another Python or Kytolly; returns a line for each other difference.

    Raises:
        ValueError: It names the nodes.
    """
    lines, refused = [], []
    for node in nodes:
        differences = other_versions(node, here)
        if any(text.startswith(("python ", "kytolly ")) for text in differences):
            refused.append(f"{node.host} has {', '.join(differences)}")
        elif differences:
            lines.append(
                f"{node.host} has {', '.join(differences)}: its numbers may differ in rounding"
            )
    if refused:
        raise ValueError(
            f"{'; '.join(refused)}, expected the Python and the Kytolly of this machine on every "
            "node. Install them there."
        )
    return lines


def node_text(node: Node) -> str:
    """A node in a few words."""
    return f"{node.host} {node.cpus:g} CPUs, {node.gpus:g} GPUs, {node.memory_bytes / 2**30:.1f} GB"


def _require_answer(address: str, host: str, port: int) -> None:
    try:
        socket.create_connection((host, port), timeout=ANSWER_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise ValueError(
            f"{address} does not answer ({error}), expected the head of a Ray cluster. Start one "
            "there by `ray start --head`, or change the address."
        ) from None


def _versions_there(ray: ModuleType, node_id: str) -> object:
    """A reference to the versions on one node."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    on_node = NodeAffinitySchedulingStrategy(node_id, soft=False)
    look = ray.remote(_version_reader())
    return look.options(num_cpus=0, scheduling_strategy=on_node).remote(PACKAGES)


def _version_reader() -> Callable[[Sequence[str]], dict[str, str]]:
    """A function that Ray sends whole and not by its name: a node may lack this package."""

    def versions(packages: Sequence[str]) -> dict[str, str]:
        import importlib.metadata
        import platform

        found = {"python": platform.python_version()}
        for package in packages:
            try:
                found[package] = importlib.metadata.version(package)
            except importlib.metadata.PackageNotFoundError:
                found[package] = "not installed"
        return found

    return versions
