"""Differences between the outputs of a file and those of the agent's network."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np

from kytolly.deployment.act_function import ActingParts, forbidden
from kytolly.environment.mask import MASKED_LOGIT

LIMIT = 1e-5  # largest relative difference in float32


class Comparison(NamedTuple):
    """Differences between the outputs of a file and those expected.

    Attributes:
        largest_difference: Of values, or of params and value. What the mask forbids is left out.
        relative_difference: The same, of each output divided by its largest number where that is
            above 1: float32 has 7 digits. Infinite where an output is not finite.
        equal_actions: Rows with the same action; of continuous ones, up to `LIMIT`.
        near_ties: Other rows, where the values agree to `LIMIT` and so were nearly the same.
        action_difference: Of continuous actions, the largest; None for discrete ones.
        forbidden: Rows with an action that the mask forbids.
    """

    largest_difference: float
    relative_difference: float
    equal_actions: int
    near_ties: int
    action_difference: float | None
    forbidden: int


def compare(
    parts: ActingParts, outputs: dict[str, np.ndarray], expected: dict[str, np.ndarray]
) -> Comparison:
    """Differences between the outputs of a file and those of the network."""
    largest, relative = largest_differences(outputs, expected)
    params = "values" if "values" in expected else "params"
    action = outputs["action"]
    equal = equal_rows(action, expected["action"])
    distribution = parts.distribution
    recomputed = distribution.host_to_env(distribution.host_mode(outputs[params]))
    near_ties = equal_rows(action, recomputed) & ~equal & (relative <= LIMIT)
    continuous = expected["action"].dtype.kind == "f"
    return Comparison(
        largest,
        relative,
        int(equal.sum()),
        int(near_ties.sum()),
        float(np.abs(action - expected["action"]).max()) if continuous else None,
        forbidden(parts, expected[params], action),
    )


def largest_differences(
    outputs: dict[str, np.ndarray], expected: dict[str, np.ndarray]
) -> tuple[float, float]:
    """The largest difference and the relative one, as in `Comparison`."""
    largest = relative = 0.0
    for name in expected.keys() - {"action"}:
        allowed = expected[name] > MASKED_LOGIT / 2
        size = max(1.0, float(np.abs(expected[name][allowed]).max(initial=0.0)))
        difference = np.abs(outputs[name] - expected[name])[allowed]
        if not np.isfinite(difference).all():
            return float("inf"), float("inf")
        largest = max(largest, float(difference.max(initial=0.0)))
        relative = max(relative, float(difference.max(initial=0.0)) / size)
    return largest, relative


def equal_rows(action: np.ndarray, expected: np.ndarray) -> np.ndarray:
    """[B] whether actions are the same; continuous ones up to the limit."""
    size = np.maximum(1.0, np.abs(expected)) if expected.dtype.kind == "f" else 0.0
    same = np.asarray(np.abs(action - expected) <= LIMIT * size)
    return np.all(same.reshape(len(same), -1), axis=-1)


def require_agreement(result: Comparison, count: int, path: Path, quantize: str | None) -> None:
    """ValueError where a file, compared on `count` observations, must not be kept."""
    unequal = count - result.equal_actions - result.near_ties
    if result.forbidden:
        wrong = f"takes {result.forbidden} of {count:,} actions that the mask forbids"
    elif quantize is None and result.relative_difference > LIMIT:
        wrong = f"differs by {result.relative_difference:.1e} from the agent, relatively"
    elif quantize is None and unequal:
        wrong = f"takes {unequal} of {count:,} actions that are not the agent's"
    else:
        return
    help_text = "Take another format" if quantize is None else "Export it without quantization"
    raise ValueError(
        f"{path} was not kept: the file {wrong}, expected at most {LIMIT:.0e} and the agent's "
        f"actions. {help_text}."
    )
