"""Seconds of the parts of a run."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator

import numpy as np

from kytolly.search.index.embedding import Encoder

GROUPS = {
    "reading": "pre-computation",
    "indexing": "pre-computation",
    "embedding": "pre-computation",
    "mining": "parallel preparation",
    "tables": "parallel preparation",
}


class Phases:
    """Seconds spent in each named phase of a run.

    A phase within a phase is subtracted from the outer one, so that all of them add up to the
    whole.

    Args:
        say: Receives a line when an outermost phase begins.
    """

    def __init__(self, say: Callable[[str], None] = lambda line: None):
        self.say = say
        self.seconds: dict[str, float] = {}
        self._inner: list[float] = []  # seconds of the phases inside each open one

    @contextlib.contextmanager
    def measure(self, name: str) -> Iterator[None]:
        """Add the time of a block to `name`."""
        if not self._inner:
            self.say(f"{GROUPS.get(name, 'training')}: {name}")
        self._inner.append(0.0)
        began = time.perf_counter()
        try:
            yield
        finally:
            spent = time.perf_counter() - began
            own = spent - self._inner.pop()
            self.seconds[name] = self.seconds.get(name, 0.0) + own
            if self._inner:
                self._inner[-1] += spent


class TimedEncoder:
    """An encoder whose time counts as the phase "embedding", wherever it is called.

    Args:
        encoder: Does the work.
        phases: Receives the time.
    """

    def __init__(self, encoder: Encoder, phases: Phases):
        self.encoder, self.phases = encoder, phases
        self.identity, self.dimension = encoder.identity, encoder.dimension

    def encode(self, texts: list[str]) -> np.ndarray:
        """[n, dimension] vectors of texts."""
        with self.phases.measure("embedding"):
            return self.encoder.encode(texts)
