"""`--profile` of `kytolly train`: the profile in the run's result, and as a table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kytolly.callback.base import TrainState
from kytolly.loop.profile import profile_run
from kytolly.record.run_folder import RunFolder


def write_profile(
    state: TrainState, summary: Mapping[str, Any], idle: float | None = None
) -> tuple[dict[str, Any], list[str]]:
    """The summary with a profile, which goes into the run's `result.json`, and it as lines.

    The arguments are those of `profile_run`.
    """
    result = {**summary, "profile": profile_run(state, summary, idle)}
    RunFolder.existing(summary["run_dir"]).write_result(result)
    return result, profile_lines(result["profile"])


def profile_lines(profile: Mapping[str, Mapping[str, float]]) -> list[str]:
    """The profile as a table."""
    head = "Time of the steady run by part, timed apart after training:"
    rows = profile["seconds"].items()
    share = profile["share"]
    return [head, *(f"  {name:<24} {sec:>9.2f} s {share[name]:>7.1%}" for name, sec in rows)]
