"""Recovery after a fault: smaller batches, a smaller rate, no XLA, or one clear line.

Nothing here imports TensorFlow: commands ask whether an error means that memory is exhausted.
"""

from __future__ import annotations

import dataclasses
import errno
import itertools
import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from kytolly.environment.faults import one_line

if TYPE_CHECKING:
    from kytolly.config.run import RunConfig
    from kytolly.config.supervised import SupervisedConfig

    TrainingConfig: TypeAlias = RunConfig | SupervisedConfig

Fault: TypeAlias = dict[str, str | int]  # its name, when it came, and what was changed
MAX_RESTARTS = 3  # after losses that were not finite
BRAIN_FLOAT_SINCE = 8.0  # NVIDIA's compute capability
# What XLA and TensorFlow say in errors of other classes.
WORDS = ("RESOURCE_EXHAUSTED", "Out of memory", "OOM when allocating", "CUDA_ERROR_OUT_OF_MEMORY")
# What the system says of a disk, a quota, or a limit of the files' size.
FULL_DISK = {n: os.strerror(n) for n in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)}
FULL_DATABASE = ("database or disk is full", "disk I/O error")  # what SQLite says of it
CLASSES = {"ResourceExhaustedError", "MemoryError", "NotEnoughMemory"}


# What TensorFlow raises, and says, where XLA cannot compile.
COMPILE_CLASSES = {"InvalidArgumentError", "UnimplementedError", "NotFoundError", "InternalError"}
COMPILE_WORDS = ("compil", "xla", "jit", "unsupported op", "const", "hlo")


class OutOfMemory(MemoryError):
    """Memory does not suffice for training; the message is one line."""


class NotWritten(OSError):
    """Training ended, but not all of its files could be written; the message is one line."""

    def __init__(self, run_dir: Path, unwritten: Mapping[str, str]):
        reasons = ", ".join(f"{what} ({why})" for what, why in unwritten.items())
        super().__init__(
            errno.EIO,
            f"training ended, but not all of {run_dir} was written: {reasons}. Make room or give "
            "the folder back; what was written before is whole.",
        )

    def __str__(self) -> str:
        return str(self.strerror)


class NotFinite(ArithmeticError):
    """The loss is not finite, and the run may go on from its newest checkpoint."""


def is_out_of_memory(error: BaseException) -> bool:
    """True where an error, or one that it followed, means that memory does not suffice.

    The fault of an environment stays one.
    """
    if any(kind.__name__ == "EnvironmentFault" for kind in type(error).__mro__):
        return False
    return not disk_problem(error) and any(speaks_of_memory(cause) for cause in causes(error))


def is_compile_error(error: BaseException) -> bool:
    """True if XLA could not compile, and the program itself may be right."""
    names = {kind.__name__ for kind in type(error).__mro__}
    text = str(error).lower()
    speaks_of_it = any(word in text for word in COMPILE_WORDS)
    return bool(names & COMPILE_CLASSES) and speaks_of_it and not is_out_of_memory(error)


def warn_of_compile_error(function: Callable[..., object], error: BaseException) -> None:
    """Say that a program runs without XLA, and why."""
    reason = " ".join(str(error).split())[:300]
    warnings.warn(
        f"XLA cannot compile {getattr(function, '__qualname__', 'this program')}: "
        f"{reason} Training goes on without XLA, slower. Set xla=False to choose that.",
        stacklevel=3,
    )


def disk_problem(error: BaseException) -> str:
    """The system's words for a disk that takes no more, if that is what an error means; else ""."""
    for cause in causes(error):
        number = getattr(cause, "errno", None)
        if number in FULL_DISK:
            return FULL_DISK[number]
        for words in (*FULL_DISK.values(), *FULL_DATABASE):  # TensorFlow: an exhausted resource
            if words in str(cause):
                return words
    return ""


def speaks_of_memory(error: BaseException) -> bool:
    """True where an error itself means that memory does not suffice."""
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


def recover(
    cfg: TrainingConfig, error: Exception, device: str | None, keeps_network: bool
) -> tuple[TrainingConfig, str, str] | None:
    """The config to go on with after an error, the name of the fault, and what is changed.

    None where nothing helps.

    Args:
        cfg: The config that failed.
        error: What ended training.
        device: Where training runs, such as "/GPU:0"; None: on the CPU.
        keeps_network: The same network goes on to learn, so it keeps its precision.

    Raises:
        OutOfMemory: Memory does not suffice, and nothing may or can be made smaller.
    """
    if is_out_of_memory(error):
        changed = None
        if cfg.on_oom == "shrink":
            changed = reduce_memory(cfg, not keeps_network and has_brain_float(device))
        if changed is None:
            if type(error).__name__ == "NotEnoughMemory":
                return None  # it names what is too large
            raise out_of_memory(cfg, error, device) from error
        kind, text = "out_of_memory", f"out of memory ({detail(error)})"
    elif isinstance(error, NotFinite):
        changed = halve_learning_rate(cfg)
        kind, text = "non_finite", str(error)
    else:
        return None
    change = changes(cfg, changed)
    warnings.warn(
        f"{text}: training goes on from the newest checkpoint with {change}.", stacklevel=3
    )
    return changed, kind, change


def maybe_restart(faults: Sequence[Fault], progress: int, units: str) -> None:
    """Raise NotFinite where a run whose loss is not finite may go on from its newest checkpoint.

    Args:
        faults: Those of the run so far.
        progress: How much of the run is done.
        units: What it counts, in words.
    """
    before = sum(fault["fault"] == "non_finite" for fault in faults)
    if before < MAX_RESTARTS:
        raise NotFinite(f"the loss is not finite after {progress:,} {units}")


def reduce_memory(cfg: TrainingConfig, brain_float: bool) -> TrainingConfig | None:
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
    shorter = cfg.in_shorter_texts()
    if shorter is not None:
        return shorter
    if brain_float and cfg.precision in ("auto", "float32"):
        return dataclasses.replace(cfg, precision="mixed_bfloat16")
    return None


def halve_learning_rate(cfg: TrainingConfig) -> TrainingConfig:
    """The config with half the learning rate, from the beginning to the end."""
    half: dict[str, Any] = {"learning_rate": cfg.learning_rate / 2}
    if cfg.learning_rate_final is not None:
        half["learning_rate_final"] = cfg.learning_rate_final / 2
    if cfg.schedules:
        from kytolly.config.schedules import with_half_rate

        half["schedules"] = with_half_rate(cast(Mapping[str, str], cfg.schedules))
    return dataclasses.replace(cfg, **half)


def changes(old: TrainingConfig, new: TrainingConfig) -> str:
    """The settings that differ between two configs, in words."""
    pairs = {f.name: (getattr(old, f.name), getattr(new, f.name)) for f in dataclasses.fields(old)}
    return ", ".join(f"{name} {a} -> {b}" for name, (a, b) in pairs.items() if a != b)


def detail(error: BaseException) -> str:
    """The text of the error that speaks of memory, shortened."""
    error = next((cause for cause in causes(error) if speaks_of_memory(cause)), error)
    text = str(error)
    first = min((text.find(word) for word in WORDS if word in text), default=0)
    return one_line(text[first:], 160).rstrip(". ") or type(error).__name__


def out_of_memory(cfg: TrainingConfig, error: Exception, device: str | None) -> OutOfMemory:
    """The error of one line for a run that memory ends."""
    rows = cfg.rows_per_update // cfg.gradient_accumulation
    advice = "Set on_oom to shrink, or lower" if cfg.on_oom == "stop" else "Lower"
    return OutOfMemory(
        f"out of memory on {device or 'the CPU'} with {rows:,} rows at once ({detail(error)}), "
        f"expected that a batch and the buffers fit. {advice} {cfg.memory_settings}."
    )


def has_brain_float(device: str | None) -> bool:
    """True for a GPU that computes in bfloat16."""
    if device is None or "GPU" not in device:
        return False
    import tensorflow as tf

    gpu = tf.config.list_physical_devices("GPU")[int(device.rpartition(":")[2])]
    details = tf.config.experimental.get_device_details(gpu)
    major, minor = details.get("compute_capability") or (0, 0)
    return major + minor / 10 >= BRAIN_FLOAT_SINCE
