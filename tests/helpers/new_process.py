"""Code in a Python process of its own."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def in_new_process(code, *arguments, cwd=None):
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "ignore"}
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        env=environ,
        cwd=cwd,
        capture_output=True,
        text=True,
    )
