"""The settings of an agent's memory, looked at together."""

from __future__ import annotations


def refuse_memory(algorithm: str, memory: str) -> None:
    """Refuse what cannot be learned with a memory."""
    raise ValueError(
        f"memory is {memory!r}, and {algorithm} learns distributions, or by noise in its weights, "
        "or a table, which has no memory here, expected ppo, pqn, dqn, ddqn or munchausen, without "
        "noisy and with a network of layers. Set memory to none, or train by one of these."
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
