"""Environments that are made anew after a fault: how often, and with which seeds."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import numpy as np

from kytolly.environment.faults import EnvironmentFault, one_line

MOST_IN_A_ROW = 3  # restarts of an environment that has not made a step since the previous one


class Restarts:
    """Counts the restarts of `E` environments.

    Args:
        name: What to call the environments in messages.
        seeds: Each environment's own seed; that of a new one follows from it.

    Attributes:
        counts: [E] restarts of each environment.
        total: Restarts in this process.
    """

    def __init__(self, name: str, seeds: Sequence[int]):
        self.name, self.seeds = name, list(seeds)
        self.counts = np.zeros(len(self.seeds), np.int64)
        self.total = 0
        self._in_a_row = [0] * len(self.seeds)
        self._when = [-1] * len(self.seeds)

    def next_seed(self, index: int, fault: object, before: int, now: int) -> int:
        """Count a restart, say so, and give the seed of the new environment.

        Args:
            index: The environment.
            fault: What went wrong.
            before: Steps that it had made before the call that failed.
            now: Steps at which the new one begins.

        Raises:
            EnvironmentFault: It has failed too often without a step in between.
        """
        again = self._when[index] == before
        self._in_a_row[index] = self._in_a_row[index] + 1 if again else 1
        self._when[index] = now
        if self._in_a_row[index] > MOST_IN_A_ROW:
            raise EnvironmentFault(
                f"{fault} It was made anew {MOST_IN_A_ROW} times and failed each time before its "
                "first step, so the run ends although on_env_fault is 'restart'."
            )
        self.counts[index] += 1
        self.total = total = self.total + 1
        if total & (total - 1) == 0:  # 1, 2, 4, 8: an environment may fail at every second step
            warnings.warn(
                one_line(
                    f"{fault} The environment is made anew, and its episode counts as truncated "
                    f"(restart {total} of these {len(self.counts)} environments)."
                ),
                stacklevel=2,
            )
        words = [self.seeds[index], int(self.counts[index])]
        return int(np.random.SeedSequence(words).generate_state(1)[0])
