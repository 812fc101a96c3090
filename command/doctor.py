"""`kytolly doctor`: shows what works on this machine, what does not, and what to do."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from kytolly.command.table import SEARCH_CHECKS


def add_options(parser: argparse.ArgumentParser, words: Sequence[str]) -> None:
    """Add the options of `kytolly doctor`."""
    parser.add_argument(
        "--on",
        metavar="CLUSTER",
        help="also look at the nodes of a Ray cluster: ray, ray://HOST:PORT or HOST:PORT",
    )


def run(args: argparse.Namespace) -> int:
    """Check the machine and print the findings."""
    import pkgutil

    from kytolly.machine import doctor

    more = {name: pkgutil.resolve_name(check) for name, check in SEARCH_CHECKS.items()}
    if args.on:
        more["cluster"] = lambda tf: doctor.check_cluster(args.on)
    return doctor.main(json=args.json, more=more)
