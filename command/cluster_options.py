"""Options that say where the runs of a command train: on the nodes of a Ray cluster."""

from __future__ import annotations

import argparse
import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from kytolly.command.exits import BadInput
from kytolly.command.options import path, positive, whole_number
from kytolly.command.result import print_line

if TYPE_CHECKING:
    from kytolly.experiment.cluster import Cluster

MAX_GPUS = 1_024


def add_cluster_options(parser: argparse.ArgumentParser) -> None:
    """Add `--on`, and what a run takes of a node."""
    add = parser.add_argument
    add(
        "--on",
        metavar="CLUSTER",
        help="train on the nodes of a Ray cluster: ray (a new one of this machine, or that of "
        "RAY_ADDRESS), ray://HOST:PORT or HOST:PORT",
    )
    add(
        "--cluster-dir",
        metavar="DIR",
        type=path,
        help="folder with the runs on a disk that all nodes share; default: runs are sent home",
    )
    add("--run-cpus", metavar="N", type=positive, help="cores of a node for each run; default: 1")
    add("--run-gpus", metavar="N", type=gpus, help="GPUs of a node for each run; default: 0")
    add(
        "--run-gigabytes",
        metavar="N",
        type=positive,
        help="memory of a node for each run; default: 1",
    )


def gpus(text: str) -> int:
    """A number of GPUs."""
    return whole_number(text, 0, MAX_GPUS, "of at least 0")


def refuse_cluster(args: argparse.Namespace, needed: str) -> None:
    """Refuse the options of a cluster where they mean nothing."""
    if args.on:
        raise BadInput(f"--on is for several runs. Give {needed}, or leave --on out.")
    check_cluster(args)


def check_cluster(args: argparse.Namespace) -> None:
    """Refuse what belongs to a cluster where there is none."""
    if args.on:
        return
    for name in ("cluster_dir", "run_cpus", "run_gpus", "run_gigabytes"):
        if getattr(args, name) is not None:
            flag = f"--{name.replace('_', '-')}"
            raise BadInput(f"{flag} is for a cluster. Give --on as well, or leave {flag} out.")


def folder_on_cluster(args: argparse.Namespace, env: str) -> str | None:
    """The folder of several runs; where none is given, a new one on the disk that nodes share."""
    if args.log_dir or not args.cluster_dir:
        return args.log_dir
    from kytolly.record.run_folder import path_part

    moment = datetime.datetime.now().strftime("%Y%m%d-%H%M%S")
    return str(
        Path(args.cluster_dir) / f"{path_part(env)}_{args.algorithm}_{args.command}_{moment}"
    )


def join_cluster(args: argparse.Namespace) -> Cluster:
    """The cluster that the options name; a context that leaves it."""
    from kytolly.experiment.cluster import Cluster

    shared = None if args.cluster_dir is None else Path(args.cluster_dir).absolute()
    gigabytes = args.run_gigabytes or 1
    return Cluster(
        args.on, args.run_cpus or 1, args.run_gpus or 0, gigabytes * 2**30, shared, print_line
    )
