"""The settings of an agent's memory, looked at together."""

from __future__ import annotations

STATES_PER_UNIT = {"gru": 1, "lstm": 2, "lru": 2, "model": 1}


def state_units(memory: str, memory_units: int) -> int:
    """`S`, numbers of a memory's state."""
    return STATES_PER_UNIT[memory] * memory_units


def refuse_memory(algorithm: str, memory: str) -> None:
    """Refuse what cannot be learned with a memory."""
    raise ValueError(
        f"memory is {memory!r}, and {algorithm} learns distributions, or by noise in its weights, "
        "or a table, which has no memory here, expected ppo, pqn, dqn, ddqn or munchausen, without "
        "noisy and with a network of layers. Set memory to none, or train by one of these."
    )
