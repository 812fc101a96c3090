"""`kytolly doctor`: shows what works on this machine, what does not, and what to do."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from kytolly.command.table import SEARCH_CHECKS


def add_options(parser: argparse.ArgumentParser, words: Sequence[str]) -> None:
    """Add the options of `kytolly doctor`: it has none."""


def run(args: argparse.Namespace) -> int:
    """Check the machine and print the findings."""
    import pkgutil

    from kytolly.machine import doctor

    more = {name: pkgutil.resolve_name(check) for name, check in SEARCH_CHECKS.items()}
    return doctor.main(json=args.json, more=more)
