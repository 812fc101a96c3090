"""Plots of learning: mean return over env steps, every seed of every environment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from kytolly.experiment.comparison import common_grid
from kytolly.record.files import write_output


def save_curves(runs: Mapping[str, Sequence[Mapping[str, Any]]], path: str | None) -> list[str]:
    """Save the plot if a path is given; returns the line that says so."""
    curves = {
        env: [run["evaluations"] for run in all_seeds if run.get("evaluations")]
        for env, all_seeds in runs.items()
    }
    curves = {env: found for env, found in curves.items() if found}
    if path is None or not curves:
        return []
    figure = make_plot(curves)
    write_output(
        Path(path).expanduser(), lambda to: figure.savefig(to, dpi=150, bbox_inches="tight")
    )
    return [f"Learning curves: {path}"]


def make_plot(curves: Mapping[str, Sequence[Sequence[tuple[int, float]]]]) -> Any:
    """One panel for each environment: every seed, their median and their quartiles."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.6 * len(curves), 3.4))
    panels = figure.subplots(1, len(curves), squeeze=False)[0]
    for panel, (env, found) in zip(panels, curves.items(), strict=True):
        env_steps, returns = common_grid(found)
        low, middle, high = np.quantile(returns, [0.25, 0.5, 0.75], axis=0)
        for one in returns:
            panel.plot(env_steps, one, color="tab:gray", linewidth=0.6, alpha=0.6)
        panel.fill_between(env_steps, low, high, color="tab:blue", alpha=0.25, linewidth=0)
        panel.plot(env_steps, middle, color="tab:blue", linewidth=1.8)
        panel.set_title(f"{env}, {len(found)} seeds: all, median, quartiles", fontsize=9)
        panel.set_xlabel("env steps")
        panel.grid(alpha=0.3)
    panels[0].set_ylabel("mean return of an evaluation")
    figure.tight_layout()
    return figure
