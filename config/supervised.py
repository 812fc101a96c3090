"""Settings of supervised training, which every model of texts shares."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Literal, Self

from msgspec import Meta

from kytolly.config.fields import (
    NotNegative,
    Positive,
    Rows,
    Seed,
    Settings,
    Share,
    check_fields,
    setting,
)
from kytolly.config.run import DEVICE, DEVICE_HELP, ON_NAN, ON_OOM, Seconds

Updates = Annotated[int, Meta(ge=1, le=10**10), "updates"]
Passes = Annotated[int, Meta(ge=1, le=10**6), "passes"]
Buckets = Annotated[int, Meta(ge=1, le=64), "buckets"]
Dropout = Annotated[float, Meta(ge=0, le=0.9)]
Evaluations = Annotated[int, Meta(ge=1, le=10**6), "evaluations"]
SHORTEST = 32  # tokens to which texts are cut where memory does not suffice
NAME = Meta(pattern=r"\A[a-z][a-z0-9-]{0,31}\Z", description="a name of lower-case letters")


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class SupervisedConfig(Settings):
    """Settings of supervised training; the config of a task adds its own.

    An *update* is one optimizer step, an *epoch* one pass over the rows of the training data.
    """

    algorithm: Annotated[str, NAME] = setting("supervised", "name of the task")
    epochs: Passes = setting(5, "passes over the training data")
    total_updates: Updates | None = setting(None, "length of training; none: as epochs say")
    batch_size: Rows = setting(32, "rows of a batch")
    gradient_accumulation: Rows = setting(
        1, "batches, one after the other, whose gradients make one update"
    )
    num_buckets: Buckets = setting(
        10, "groups of rows of similar length, padded alike; one program each"
    )
    updates_per_call: Annotated[int, Meta(ge=1, le=10**4), "updates"] = setting(
        16, "most updates in one call of a program, all from one bucket"
    )
    tables: Literal["auto", "device", "host"] = setting(
        "auto", "where the training data lies; auto: on the device if it takes a quarter or less"
    )
    host_workers: Annotated[int, Meta(ge=1, le=256), "threads"] = setting(
        2, "threads that prepare batches, where the training data lies on the host"
    )
    learning_rate: Positive = setting(3e-4, "AdamW's largest step size")
    schedule: Literal["linear", "cosine", "constant"] = setting(
        "linear", "how the learning rate falls to 0 after the warm-up; constant: it stays"
    )
    warmup_ratio: Share = setting(0.1, "share of the run in which the learning rate rises linearly")
    weight_decay: NotNegative = setting(
        0.01, "AdamW's decay of weight matrices; biases and scales have none"
    )
    adam_epsilon: Positive = setting(1e-7, "constant in Adam's denominator (epsilon-hat)")
    max_grad_norm: Positive | None = setting(
        1.0, "largest norm of the gradient of all weights together; none: any"
    )
    label_smoothing: Share = setting(
        0.0, "probability that is taken from the right class and given to all alike"
    )
    class_weights: Literal["auto"] | None = setting(
        None, "auto: a class weighs the more, the rarer it is; none: all alike"
    )
    activation_checkpointing: bool = setting(
        False, "compute activations twice and keep few: less memory, more time"
    )
    evaluation_interval_updates: Updates | None = setting(
        None, "interval between two evaluations; none: a twentieth of the run"
    )
    log_interval_updates: Updates | None = setting(
        None, "interval between two rows of metrics; none: a fiftieth of the run"
    )
    checkpoint_interval_updates: Updates | None = setting(
        None, "interval between two checkpoints; none: a fifth of the run"
    )
    early_stop_patience: Evaluations | None = setting(
        None, "evaluations without improvement that end training; none: no such end"
    )
    early_stop_min_improvement: NotNegative = setting(
        0.0, "smallest improvement that counts for early stopping"
    )
    max_wall_seconds: Seconds | None = setting(
        None, "wall-clock time that ends training; none: no such end"
    )
    seed: Seed = setting(0, "seed of every random draw")
    device: Annotated[str, DEVICE] = setting("auto", DEVICE_HELP)
    precision: Literal["auto", "float32", "mixed_float16", "mixed_bfloat16"] = setting(
        "auto", "number format of the network; auto: Keras's global policy"
    )
    xla: bool = setting(True, "compile the training programs with XLA")
    on_oom: Literal["stop", "shrink"] = setting("stop", ON_OOM)
    on_nan: Literal["stop", "restart"] = setting("stop", ON_NAN)

    learning_rate_final = schedules = None  # `schedule` says how the learning rate falls
    memory = None  # no sequence goes on in the next batch
    memory_settings = "batch_size or the lengths of the data"  # which decide what a run needs

    def __post_init__(self) -> None:
        check_fields(self)

    @property
    def command(self) -> str | None:
        """The command line that trains by such a config; None: only Python does."""
        return None

    @property
    def rows_per_update(self) -> int:
        """Rows from which an update learns."""
        return self.batch_size * self.gradient_accumulation

    def in_smaller_batches(self, factor: int) -> Self:
        """The same updates, each from `factor` times as many batches; it divides a batch."""
        batches = self.gradient_accumulation * factor
        rows = self.batch_size // factor
        return dataclasses.replace(self, batch_size=rows, gradient_accumulation=batches)

    @property
    def column_lengths(self) -> dict[str, int]:
        """Most tokens of a row in columns of the training data; the others are as they are."""
        return {}

    def in_shorter_texts(self) -> Self | None:
        """The config with texts of half the length; None where they are short already."""
        return None

    def with_half(self, name: str) -> Self | None:
        """The config with half of a setting that counts tokens, if `SHORTEST` or more are left."""
        half = getattr(self, name) // 2
        return dataclasses.replace(self, **{name: half}) if half >= SHORTEST else None
