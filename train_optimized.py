"""Trains the query-reformulation agent: `python train_optimized.py --config FILE`."""

from __future__ import annotations

from kytolly.search.command.train_optimized import main

__all__ = ["main"]

if __name__ == "__main__":
    import sys

    sys.exit(main(sys.argv[1:]))
