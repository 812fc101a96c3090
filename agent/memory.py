"""The memory that an agent and a loop expect."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar

import numpy as np
import tensorflow as tf

from kytolly.policy.base import Policy
from kytolly.policy.batch import Rollout

Opened = TypeVar("Opened")  # a rollout within a memory
Rows = TypeVar("Rows")  # what a policy learns from, [B, ...]


class Memory(Protocol[Opened, Rows]):
    """Makes the batches of an iteration's updates: `ReplayBuffer`, `RolloutBuffer` and others.

    An iteration opens one rollout, takes the batches 0 to `updates` - 1, and closes each after its
    update. All of it is tensor code.

    Attributes:
        metric_names: Names of the metrics that `open` gives.
        allows_lag: Rows of an older policy are as good as new ones.
        updates: Most updates of an iteration.
        num_random_words: uint32 words that an iteration's batches take.
    """

    metric_names: tuple[str, ...]
    allows_lag: bool
    updates: int

    @property
    def num_random_words(self) -> int: ...

    def open(self, rollout: Rollout, policy: Policy) -> tuple[Opened, tf.Tensor]:
        """Take in [T, E] env steps; what `batch` takes, and [M] metrics."""
        ...

    def batch(self, opened: Opened, index: int | tf.Tensor, random_bits: tf.Tensor) -> Rows:
        """The rows [B, ...] of update `index`, as the policy learns from them.

        Args:
            opened: What `open` gave.
            index: [] int32 update of the iteration.
            random_bits: [num_random_words] uint32 words of the iteration.
        """
        ...

    def close(self, batch: Rows, td_error: tf.Tensor | None) -> None:
        """Take note of the errors of a batch that was learned from.

        Args:
            batch: What `batch` gave.
            td_error: [B] target minus estimate, in reward units; None where the policy has none.
        """
        ...

    def end_episodes(self, envs: Sequence[int] | np.ndarray | None = None) -> None:
        """New episodes begin after the newest rows of these environments; None: of all."""
        ...
