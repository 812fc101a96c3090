"""Prepares TensorFlow for this machine: `from gpu_optimize import configure_gpu_optimization`.

Run as a program it measures what each optimization is worth here: `python gpu_optimize.py`.
"""

from __future__ import annotations

from kytolly.machine.configure import configure_gpu_optimization

__all__ = ["configure_gpu_optimization"]

if __name__ == "__main__":
    import sys

    from kytolly.benchmarks.optimizations import main

    sys.exit(main())
