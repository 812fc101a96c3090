"""Settings of a query rewriter."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Literal

from msgspec import Meta

from kytolly.config.fields import Positive, Rows, Share, setting
from kytolly.config.supervised import Buckets, Dropout, Passes, SupervisedConfig

Size = Annotated[int, Meta(ge=1, le=2**14), "units"]


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class RewriterConfig(SupervisedConfig):
    """Settings of a query rewriter, beside those of all supervised training."""

    algorithm: Literal["rewriter"] = setting("rewriter", "name of the task")
    target: Literal["terms", "texts"] = setting(
        "terms",
        "what a query becomes; terms: the best terms of its relevant documents, of all together; "
        "texts: the first words of each relevant document",
    )
    epochs: Passes = setting(15, "passes over the training data")
    batch_size: Rows = setting(64, "rows of a batch")
    learning_rate: Positive = setting(2e-3, "AdamW's largest step size")
    num_buckets: Buckets = setting(
        4, "groups of rows of similar length, padded alike; one program each"
    )
    vocabulary_size: Annotated[int, Meta(ge=8, le=2**20), "words"] = setting(
        6_000, "the most frequent words of the documents that are read and written"
    )
    max_source_length: Annotated[int, Meta(ge=1, le=2**12), "words"] = setting(
        32, "words of a query that are read; the rest is cut off"
    )
    max_target_length: Annotated[int, Meta(ge=1, le=2**10), "words"] = setting(
        10, "words that are written, at most"
    )
    units: Size = setting(256, "units of each of the four LSTM layers")
    attention: bool = setting(True, "whether each written word looks at every word of the query")
    pretrained: bool = setting(True, "whether word vectors begin as wordllama's; no: at random")
    dropout: Dropout = setting(
        0.3, "share of the numbers of word vectors and outputs dropped in training"
    )
    scheduled_sampling: Share = setting(
        0.25, "share of the words before that are the network's own guesses in training"
    )

    documents: Annotated[int, Meta(ge=0, le=10**8), "documents"] = setting(
        0,
        "documents, drawn by the seed, that are learned from beside queries: from the first words "
        "of each to the rest",
    )
    held_out_folds: Annotated[int, Meta(ge=0, le=100), "parts"] = setting(
        3,
        "parts of the train queries, each of which one more rewriter learns without, so that an "
        "agent can learn how far to trust the terms; 0: none",
    )

    def __post_init__(self) -> None:
        SupervisedConfig.__post_init__(self)
        for name in ("class_weights", "activation_checkpointing"):
            if getattr(self, name):
                raise ValueError(
                    f"{name} is {getattr(self, name)}, and a rewriter has no such thing. Leave it "
                    "out."
                )
        if self.held_out_folds == 1:
            raise ValueError(
                "held_out_folds is 1, and a rewriter without the only part would learn from no "
                "query. Give 2 or more, or 0 for none."
            )

    @property
    def command(self) -> str | None:
        """As in the parent."""
        return "kytolly train rewriter --collection DIR"

    @property
    def column_lengths(self) -> dict[str, int]:
        """As in the parent."""
        return {"source": self.max_source_length}

    def in_shorter_texts(self) -> RewriterConfig | None:
        """As in the parent."""
        return self.with_half("max_source_length")
