"""The choice of states at which one-step gains are computed."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from kytolly.reformulation.episode import GainExamples

CHUNK = 256  # queries looked at together
LIKELY = 0.05  # gain, in units of the metric, that makes a term e times as likely to be added next


def next_terms(gain: np.ndarray, allowed: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """[E] int32 terms to add next; a term of higher gain is likelier. STOP is never chosen.

    Args:
        gain: [E, N + 1] reward of each action.
        allowed: [E, N + 1] bool.
        rng: Draws the terms.
    """
    noisy = gain / LIKELY + rng.gumbel(size=gain.shape)
    noisy[:, -1] = -np.inf  # STOP would only repeat the state
    return np.where(allowed, noisy, -np.inf).argmax(axis=-1).astype(np.int32)


def concatenation(parts: Iterable[GainExamples]) -> GainExamples:
    """All examples one after another."""
    return GainExamples(*(np.concatenate(column) for column in zip(*parts, strict=True)))
