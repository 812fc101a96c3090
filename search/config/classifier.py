"""Settings of a text classifier."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Literal

from msgspec import Meta

from kytolly.config.fields import Positive, Rows, setting
from kytolly.config.supervised import Buckets, Dropout, Passes, SupervisedConfig

COLUMN = Meta(min_length=1, max_length=1_000, description="the name of a column")


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class ClassifierConfig(SupervisedConfig):
    """Settings of a text classifier, beside those of all supervised training."""

    algorithm: Literal["classifier"] = setting("classifier", "name of the task")
    text_column: Annotated[str, COLUMN] = setting("text", "column, or key, of the text")
    label_column: Annotated[str, COLUMN] = setting("label", "column, or key, of the label")
    epochs: Passes = setting(8, "passes over the training data")
    batch_size: Rows = setting(32, "rows of a batch")
    learning_rate: Positive = setting(1e-3, "AdamW's largest step size")
    class_weights: Literal["auto"] | None = setting(
        "auto", "auto: a class weighs the more, the rarer it is; none: all alike"
    )
    num_buckets: Buckets = setting(
        4, "groups of rows of similar length, padded alike; one program each"
    )
    max_length: Annotated[int, Meta(ge=1, le=2**16), "tokens"] = setting(
        256, "tokens of a text that are read; the rest is cut off"
    )
    filters: Annotated[int, Meta(ge=1, le=2**14), "filters"] = setting(
        128, "filters of the convolution"
    )
    kernel_size: Annotated[int, Meta(ge=1, le=64), "tokens"] = setting(
        3, "tokens in a row that a filter sees"
    )
    pair_buckets: Annotated[int, Meta(ge=0, le=2**24), "buckets"] = setting(
        2**16, "hashed pairs of tokens in the linear path beside the convolution; 0: no such path"
    )
    dropout: Dropout = setting(0.3, "share of the features dropped in training")
    train_embedding: bool = setting(
        True, "whether the token vectors learn too; else they stay as wordllama has them"
    )

    @property
    def command(self) -> str | None:
        """As in the parent."""
        return "kytolly train classifier --data FILE"

    @property
    def column_lengths(self) -> dict[str, int]:
        """As in the parent."""
        return {"tokens": self.max_length}

    def in_shorter_texts(self) -> ClassifierConfig | None:
        """As in the parent."""
        return self.with_half("max_length")
