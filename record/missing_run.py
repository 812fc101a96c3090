"""What is said of a folder that is no run."""

from __future__ import annotations

import os
from pathlib import Path

from kytolly.config.words import path_text

SHOWN = 3  # runs


def missing_run(path: Path) -> ValueError:
    """The error about a path where a run's folder was expected, with the runs that lie there."""
    is_folder = os.path.isdir(path)  # False, unlike Path's, for whatever is no path
    reason = "no config.yaml in it" if is_folder else "it does not exist"
    reason = "it is a file" if os.path.isfile(path) else reason
    inside = sorted(path.glob("*/config.yaml")) if is_folder else []
    advice = "Give that one."
    if inside:
        names = [path_text(config.parent) for config in inside[:SHOWN]]
        more = f" and {len(inside) - SHOWN} more" if len(inside) > SHOWN else ""
        advice = f"Give one of those in it: {', '.join(names)}{more}."
    return ValueError(
        f"{path_text(path)} is no run ({reason}), expected the folder that training printed as "
        f"run_dir. {advice}"
    )
