"""The result of a command on standard output."""

from __future__ import annotations

import json
from typing import Any


def print_result(summary: dict[str, Any], as_json: bool) -> None:
    """Print the result as one line of JSON, or as a few lines for a reader."""
    if as_json:
        print(json.dumps(summary))
        return
    evaluation = summary["evaluation"]
    print(
        f"Return {evaluation['return_mean']:.1f} ± {evaluation['return_std']:.1f} over "
        f"{evaluation['episodes']} greedy episodes"
    )
    if "env_steps" in summary:
        print(
            f"{summary['algorithm']} on {summary['environment']} ({summary['loop']} loop, seed "
            f"{summary['seed']}): {summary['env_steps']:,} env steps, {summary['updates']:,} "
            f"updates in {summary['wall_seconds']:.1f} s, {summary['env_steps_per_second']:,.0f} "
            f"env steps/s, stopped by {summary['stopped_by']}"
        )
    print(f"Run: {summary['run_dir']}")
