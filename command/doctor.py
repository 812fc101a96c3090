"""`kytolly doctor`: shows what works on this machine, what does not, and what to do."""

from __future__ import annotations

import argparse
from collections.abc import Sequence


def add_options(parser: argparse.ArgumentParser, words: Sequence[str]) -> None:
    """Add the options of `kytolly doctor`: it has none."""


def run(args: argparse.Namespace) -> int:
    """Check the machine and print the findings."""
    from kytolly.machine import doctor

    return doctor.main(json=args.json)
