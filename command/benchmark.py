"""`kytolly benchmark`: prints throughput tables, measured here."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from kytolly.command.options import environment, microseconds, path, positive


def add_options(parser: argparse.ArgumentParser, words: Sequence[str]) -> None:
    """Add the options of `kytolly benchmark`."""
    from kytolly.benchmarks.tables import help_lines

    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = "\n".join(help_lines())
    add = parser.add_argument
    add("name", nargs="?", metavar="NAME", help="one table instead of all")
    add("algorithms", nargs="*", metavar="ALGO", help="algorithms of gpu-program, instead of all")
    add("--repeats", type=positive, default=3, help="runs for each median")
    add("--env", type=environment, help="one environment, in tables that train in several")
    add("--seeds", type=positive, default=None, help="seeds for each row, in tables that train")
    add("--figure", type=path, metavar="FILE", help="plot of the learning curves")
    add("--collection", type=path, metavar="DIR", help="documents that reformulation searches")
    add("--algorithm", metavar="NAME", help="one algorithm, in tables that compare several")
    add(
        "--log-dir",
        type=path,
        metavar="DIR",
        help="keep the runs of a table that trains many: those that are there are not made again; "
        "of gpu-program the programs",
    )
    add("--gpu", metavar="GPU", help="what gpu-program compiles for: sm_90 (H100) or sm_80 (A100)")
    for what in ("launch", "wait"):
        name, text = f"--{what}-microseconds", f"time of a {what} that gpu-program predicts with"
        add(name, type=microseconds, default=None, metavar="N", help=text)
    add("--kernels", action="store_true", help="name the kernels of gpu-program")
    add("--quick", action="store_true", help="small sizes, to see that it works")


def run(args: argparse.Namespace) -> int:
    """Measure and print."""
    from kytolly.benchmarks.tables import run

    return run(
        args.name,
        repeats=args.repeats,
        as_json=args.json,
        env=args.env,
        seeds=args.seeds,
        figure=args.figure,
        collection=args.collection,
        algorithm=args.algorithm,
        log_dir=args.log_dir,
        quick=args.quick,
        algorithms=args.algorithms,
        gpu=args.gpu,
        kernels=args.kernels,
        launch_microseconds=args.launch_microseconds,
        wait_microseconds=args.wait_microseconds,
    )
