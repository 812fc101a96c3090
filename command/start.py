"""The start of a command that trains or plays: TensorFlow is configured, quietly."""

from __future__ import annotations

import contextlib
import os
import sys
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kytolly.config.run import RunConfig
    from kytolly.config.supervised import SupervisedConfig


def prepare_machine(cfg: RunConfig | SupervisedConfig | None = None) -> None:
    """Configure TensorFlow before its first import and hide its start-up messages."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    warnings.showwarning = lambda message, *_, **__: print(f"kytolly: {message}", file=sys.stderr)
    from kytolly.machine.configure import configure_gpu_optimization
    from kytolly.machine.facts import xla_enabled

    with hide_standard_error():
        wanted = xla_enabled() and (cfg is None or cfg.xla)  # KYTOLLY_XLA=off is for every command
        configure_gpu_optimization(enable_xla=wanted, verbose=False)


@contextlib.contextmanager
def hide_standard_error() -> Iterator[None]:
    """Hide what TensorFlow's C++ code prints while it is imported.

    It prints before it reads any setting. KYTOLLY_TRACEBACK=1 shows it.
    """
    if os.environ.get("KYTOLLY_TRACEBACK"):
        yield
        return
    with open(os.devnull, "w") as nowhere:
        original = os.dup(2)
        os.dup2(nowhere.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(original, 2)
            os.close(original)
