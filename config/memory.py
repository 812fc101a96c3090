"""The settings of an agent's memory, looked at together."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


def refuse_without_memory(cfg: Any, names: Iterable[str]) -> None:
    """Refuse settings memory_`name` of a memory that there is not."""
    given = [f"memory_{name}" for name in names if getattr(cfg, f"memory_{name}", None)]
    verb = "is" if len(given) == 1 else "are"
    raise ValueError(
        f"{' and '.join(given)} {verb} set, and memory is none, expected gru, lstm, lru or model: "
        f"without a memory nothing reads it. Set memory, or leave {' and '.join(given)} out."
    )


def require_learnable(cfg: Any) -> None:
    """Refuse a memory with what has none here."""
    conflicts = {
        f"{cfg.algorithm} learns distributions": cfg.outputs_per_action > 1,
        "noisy is set": cfg.noisy,
        "network is 'table'": cfg.network == "table",
    }
    found = [name for name, conflict in conflicts.items() if conflict]
    if found:
        raise ValueError(
            f"memory is {cfg.memory!r}, and {' and '.join(found)}, which has no memory here, "
            "expected ppo, pqn, dqn, ddqn or munchausen, without noisy and with a network of "
            "layers. Set memory to none, or change that."
        )


def refuse_kept_rollouts(count: int) -> None:
    """ValueError where an agent with a memory would learn from older rollouts."""
    if count > 1:
        raise ValueError(
            f"kept_rollouts is {count} beside a memory, expected 1: what was remembered in older "
            "rollouts is not kept. Leave one of them out."
        )


def require_whole_sequences(
    rollout_steps: int, length: int, num_envs: int, num_minibatches: int
) -> None:
    """Refuse rollouts that are no whole sequences, or minibatches that have parts of them."""
    if rollout_steps % length:
        raise ValueError(
            f"memory_length ({length}) does not divide rollout_steps ({rollout_steps}), expected "
            "sequences of the same length. Change one of them, or leave memory_length out: then a "
            "sequence is a whole rollout."
        )
    count = rollout_steps // length * num_envs
    if count % num_minibatches:
        raise ValueError(
            f"num_minibatches ({num_minibatches}) does not divide the {count} sequences of a "
            f"rollout (num_envs {num_envs} x rollout_steps {rollout_steps} / memory_length "
            f"{length}), expected whole sequences in each. Lower num_minibatches or memory_length, "
            "or raise num_envs."
        )


def require_whole_batches(batch_size: int, gradient_accumulation: int, length: int) -> None:
    """Refuse batches from replay that are no whole sequences, or several to an update."""
    if batch_size % length or gradient_accumulation > 1:
        raise ValueError(
            f"batch_size is {batch_size} with gradient_accumulation {gradient_accumulation}, and "
            f"memory_length {length}, expected whole sequences in a single batch: a multiple of "
            "memory_length, and 1. Change one of them."
        )
