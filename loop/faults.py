"""What follows a fault of training: smaller batches, a smaller learning rate, or one clear line.

Nothing here imports TensorFlow: commands ask whether an error means that memory is exhausted.
"""

from __future__ import annotations

import dataclasses
import errno
import itertools
import os
import warnings
from collections.abc import Iterator
from typing import Any

from kytolly.environment.faults import one_line

MOST_RESTARTS = 3  # after losses that were not finite
BRAIN_FLOAT_SINCE = 8.0  # NVIDIA's compute capability
# What XLA and TensorFlow say in errors of other classes.
WORDS = ("RESOURCE_EXHAUSTED", "Out of memory", "OOM when allocating", "CUDA_ERROR_OUT_OF_MEMORY")
# What the system says of a disk, a quota, or a limit of the files' size.
FULL_DISK = {n: os.strerror(n) for n in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)}
CLASSES = {"ResourceExhaustedError", "MemoryError", "NotEnoughMemory"}


class OutOfMemory(MemoryError):
    """Memory does not suffice for training; the message is one line."""


class NotFinite(ArithmeticError):
    """The loss is not finite, and the run may go on from its newest checkpoint."""


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error, or one that it followed, means that memory does not suffice.

    What an environment did is its own fault, and stays one.
    """
    if any(kind.__name__ == "EnvironmentFault" for kind in type(error).__mro__):
        return False
    return not disk_problem(error) and any(speaks_of_memory(one) for one in causes(error))


def disk_problem(error: BaseException) -> str:
    """The system's words for a disk that takes no more, if that is what an error means; else ""."""
    for one in causes(error):
        number = getattr(one, "errno", None)
        if number in FULL_DISK:
            return FULL_DISK[number]
        for words in FULL_DISK.values():  # TensorFlow calls a full disk an exhausted resource
            if words in str(one):
                return words
    return ""


def speaks_of_memory(error: BaseException) -> bool:
    """Whether an error itself means that memory does not suffice."""
    names = {kind.__name__ for kind in type(error).__mro__}
    words = any(word in str(error) for word in WORDS)
    return bool(names & CLASSES) or ("OpError" in names and words)


def causes(error: BaseException | None) -> Iterator[BaseException]:
    """An error and those that it followed."""
    for _ in range(8):
        if error is None:
            return
        yield error
        error = error.__cause__ or error.__context__


def restart_if_allowed(session: Any) -> None:
    """Raise NotFinite where a run whose loss is not finite may go on from its newest checkpoint."""
    before = sum(fault["fault"] == "non_finite" for fault in session.faults)
    if before < MOST_RESTARTS:
        state = session.state
        raise NotFinite(f"the loss is not finite after {state.progress:,} {state.units}")


def prepare_next(attempt: Any, error: Exception, device: str | None) -> bool:
    """Change the config of a `trainer.Attempt` after an error, and say how; False: nothing helps.

    Raises:
        OutOfMemory: Memory does not suffice, and nothing may or can be made smaller.
    """
    cfg, memory = attempt.cfg, is_out_of_memory(error)
    if memory:
        # A network that goes on to learn keeps its precision.
        brain_float = attempt.network is None and has_brain_float(device)
        found = next_rung(cfg, brain_float) if cfg.on_oom == "shrink" else None
        if found is None and type(error).__name__ == "NotEnoughMemory":
            return False  # it names what is too large
        if found is None:
            raise out_of_memory(cfg, error, device) from error
    elif isinstance(error, NotFinite):
        found = slower(cfg)
    else:
        return False
    change, what = changes(cfg, found), f"out of memory ({detail(error)})" if memory else str(error)
    done = attempt.session.state.progress if attempt.session else 0
    kind = "out_of_memory" if memory else "non_finite"
    attempt.faults.append({"fault": kind, attempt.unit: done, "change": change})
    warnings.warn(
        f"{what}: training goes on from the newest checkpoint with {change}.", stacklevel=3
    )
    attempt.cfg, attempt.session = found, None
    return True


def next_rung(cfg: Any, brain_float: bool) -> Any:
    """The config with the next smaller need of memory for the same update; None: there is none.

    The ladder: fewer rows at once and as many more batches in an update; of texts, fewer tokens;
    then bfloat16, whose checkpoints are those of float32.

    Args:
        cfg: The config.
        brain_float: The device computes in bfloat16.
    """
    rows = cfg.rows_per_update // cfg.gradient_accumulation
    if rows > 1:
        return cfg.in_smaller_batches(next(n for n in itertools.count(2) if rows % n == 0))
    if hasattr(cfg, "in_shorter_texts") and (shorter := cfg.in_shorter_texts()):
        return shorter
    if brain_float and cfg.precision in ("auto", "float32"):
        return dataclasses.replace(cfg, precision="mixed_bfloat16")
    return None


def slower(cfg: Any) -> Any:
    """The config with half the learning rate, from the beginning to the end."""
    final = getattr(cfg, "learning_rate_final", None)
    half: dict[str, Any] = {} if final is None else {"learning_rate_final": final / 2}
    if getattr(cfg, "schedules", None):
        from kytolly.config.schedules import with_half_rate

        half["schedules"] = with_half_rate(cfg.schedules)
    return dataclasses.replace(cfg, learning_rate=cfg.learning_rate / 2, **half)


def changes(old: Any, new: Any) -> str:
    """The settings that differ between two configs, in words."""
    pairs = {f.name: (getattr(old, f.name), getattr(new, f.name)) for f in dataclasses.fields(old)}
    return ", ".join(f"{name} {a} -> {b}" for name, (a, b) in pairs.items() if a != b)


def detail(error: BaseException) -> str:
    """What the error that speaks of memory says, shortened."""
    error = next((one for one in causes(error) if speaks_of_memory(one)), error)
    text = str(error)
    first = min((text.find(word) for word in WORDS if word in text), default=0)
    return one_line(text[first:], 160).rstrip(". ") or type(error).__name__


def out_of_memory(cfg: Any, error: Exception, device: str | None) -> OutOfMemory:
    """The error of one line for a run that memory ends."""
    rows = cfg.rows_per_update // cfg.gradient_accumulation
    advice = "Set on_oom to shrink, or lower" if cfg.on_oom == "stop" else "Lower"
    if hasattr(cfg, "num_envs"):
        advice += " the batches (with as much more gradient_accumulation), num_envs, hidden_units "
        advice += "or replay_capacity"
    else:
        advice += " batch_size or the lengths of the data"
    return OutOfMemory(
        f"out of memory on {device or 'the CPU'} with {rows:,} rows at once ({detail(error)}), "
        f"expected that a batch and the buffers fit. {advice}."
    )


def has_brain_float(device: str | None) -> bool:
    """Whether a device is a GPU that computes in bfloat16."""
    if device is None or "GPU" not in device:
        return False
    import tensorflow as tf

    gpu = tf.config.list_physical_devices("GPU")[int(device.rpartition(":")[2])]
    found = tf.config.experimental.get_device_details(gpu).get("compute_capability") or (0, 0)
    return found[0] + found[1] / 10 >= BRAIN_FLOAT_SINCE
