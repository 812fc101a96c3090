"""The settings of an agent's memory, looked at together."""

from __future__ import annotations

from typing import Protocol

STATES_PER_UNIT = {"gru": 1, "lstm": 2, "lru": 2, "model": 1}


class HasMemory(Protocol):
    """The settings of a run that this module reads."""

    @property
    def algorithm(self) -> str: ...

    @property
    def memory(self) -> str | None: ...

    @property
    def memory_units(self) -> int: ...


def state_units(cfg: HasMemory) -> int:
    """`S`, numbers of a memory's state."""
    return STATES_PER_UNIT[str(cfg.memory)] * cfg.memory_units


def check_memory(cfg: HasMemory) -> None:
    """Refuse what cannot be learned with a memory; ValueError says what to change."""
    if getattr(cfg, "outputs_per_action", 1) > 1 or getattr(cfg, "noisy", False):
        raise ValueError(
            f"memory is {cfg.memory!r}, and {cfg.algorithm} learns distributions or by noise in "
            "its weights, which has no memory here, expected ppo, pqn, dqn or ddqn. Set memory to "
            "none, or train by one of these."
        )
