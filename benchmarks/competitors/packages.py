"""The competitors' packages: all of them are imported here, in processes without TensorFlow."""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import Any

from kytolly.benchmarks.competitors import refuse


def require(*names: str) -> list[ModuleType]:
    """Import optional packages, or end the program with the command that installs them.

    TensorFlow is kept out of the process first: Stable-Baselines3 imports TensorBoard, which
    imports TensorFlow where it finds it, and PyTorch 2.15 aborts beside TensorFlow 2.21 ("LLVM
    ERROR: inconsistency in registered CommandLine options").
    """
    sys.modules.setdefault("tensorflow", None)  # importing it is an ImportError from here on
    try:
        return [importlib.import_module(name) for name in names]
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in {name.partition(".")[0] for name in names}:
            raise
        refuse(
            f"This competitor needs the package {package!r}, which is not installed. "
            f"Install it with: python -m pip install {package.replace('_', '-')}"
        )


def one_done(env: Any) -> Any:
    """A gymnax environment whose `step` returns one `done`, as competitors expect.

    gymnax 1.0 split `done` into `terminated` and `truncated`. It brings the adapter itself, except
    that it cannot be copied, which rejax does.
    """
    try:
        from gymnax.wrappers.compat import LegacyStepAPIWrapper
    except ModuleNotFoundError:  # gymnax before 1.0 needs none
        return env

    class OneDone(LegacyStepAPIWrapper):
        """The adapter. It holds no state, so it serves as its own copy."""

        def __deepcopy__(self, memo: dict[int, Any]) -> OneDone:
            return self

    return OneDone(env)
