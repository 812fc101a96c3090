"""Sets TensorFlow up for this machine: `from gpu_optimize import configure_gpu_optimization`.

Run as a program, `python gpu_optimize.py`, it measures what each optimization is worth here.
"""

from __future__ import annotations

from kytolly.machine.configure import configure_gpu_optimization
from kytolly.machine.facts import require_tensorflow_backend, xla_enabled

__all__ = ["configure_gpu_optimization", "require_tensorflow_backend", "xla_enabled"]

if __name__ == "__main__":
    import sys

    from kytolly.benchmarks.optimizations import main

    sys.exit(main())
