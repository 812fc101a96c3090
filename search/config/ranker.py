"""Settings of a re-ranker."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Literal

from msgspec import Meta

from kytolly.config.fields import Positive, Rows, Share, setting
from kytolly.config.supervised import SHORTEST, Buckets, Dropout, Passes, SupervisedConfig

MARKS = 3  # `[CLS]` and two `[SEP]`


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class RankerConfig(SupervisedConfig):
    """Settings of a re-ranker, beside those of all supervised training."""

    algorithm: Literal["ranker"] = setting("ranker", "name of the task")
    first_search: Literal["fused", "bm25"] = setting(
        "fused",
        "search whose best documents are ranked anew; fused: BM25 and cosines of embeddings",
    )
    agent: Annotated[str, Meta(min_length=1)] | None = setting(
        None,
        "run of train_optimized.py, whose queries find the documents instead; negatives still come "
        "from first_search",
    )
    language: Annotated[str, Meta(min_length=1)] = setting(
        "english",
        "language of the documents, one of Snowball's stemmers, or none; auto: what most are in",
    )
    samples: Annotated[int, Meta(ge=1, le=10**8), "rows"] | None = setting(
        None,
        "training rows, each a question with a relevant document and negatives; none: one for "
        "each relevant document of each question",
    )
    negatives: Annotated[int, Meta(ge=1, le=64), "documents"] = setting(
        4, "documents of a row that are found and not relevant"
    )
    depth: Annotated[int, Meta(ge=2, le=1_000), "documents"] = setting(
        50, "best documents that are ranked anew, and that negatives are drawn from"
    )
    dev_queries: Annotated[int, Meta(ge=1, le=10**6), "queries"] = setting(
        100, "most dev queries of an evaluation; at least half of the split only chooses the weight"
    )
    k1: Annotated[float, Meta(ge=0, le=1_000)] = setting(
        1.5, "BM25's saturation of term frequencies"
    )
    b: Share = setting(0.75, "BM25's share of length normalization")
    epochs: Passes = setting(3, "passes over the training data")
    batch_size: Rows = setting(8, "rows of a batch")
    learning_rate: Positive = setting(5e-3, "AdamW's largest step size")
    num_buckets: Buckets = setting(
        4, "groups of rows of similar length, padded alike; one program each"
    )
    max_length: Annotated[int, Meta(ge=8, le=2**14), "tokens"] = setting(
        160, "tokens that are read of a question and a document together"
    )
    max_question_length: Annotated[int, Meta(ge=1, le=2**13), "tokens"] = setting(
        40, "tokens of a question that are read; the rest is cut off"
    )
    layers: Annotated[int, Meta(ge=0, le=24), "layers"] = setting(
        0, "Transformer blocks; 0: only what question and document have in common counts"
    )
    width: Annotated[int, Meta(ge=1, le=2**12), "units"] = setting(
        64, "length of a token's vector in the Transformer"
    )
    heads: Annotated[int, Meta(ge=1, le=256), "heads"] = setting(
        4, "attention heads of a Transformer block; they divide the width"
    )
    dropout: Dropout = setting(0.1, "share of the numbers dropped in training")
    train_embedding: bool = setting(
        False, "whether the token vectors learn too; else they stay as wordllama has them"
    )

    def __post_init__(self) -> None:
        SupervisedConfig.__post_init__(self)
        if self.width % self.heads:
            raise ValueError(
                f"heads is {self.heads}, expected a divisor of width ({self.width}): each head has "
                "as many units. Change one of them."
            )
        if self.context_length < 1:
            raise ValueError(
                f"max_length is {self.max_length}, expected at least max_question_length "
                f"({self.max_question_length}) + {MARKS + 1}: no token of a document would be "
                "read. Raise it, or lower max_question_length."
            )
        if self.class_weights is not None:
            raise ValueError(
                f"class_weights is {self.class_weights!r}, expected none: a re-ranker has no "
                "classes. Leave it out."
            )

    @property
    def context_length(self) -> int:
        """Tokens of a document that are read."""
        return self.max_length - self.max_question_length - MARKS

    @property
    def command(self) -> str | None:
        """As in the parent."""
        return "kytolly train ranker --collection DIR"

    @property
    def column_lengths(self) -> dict[str, int]:
        """As in the parent."""
        return {"context": self.context_length}

    def in_shorter_texts(self) -> RankerConfig | None:
        """As in the parent; half of the documents is left."""
        half = self.context_length // 2
        longest = half + self.max_question_length + MARKS
        return dataclasses.replace(self, max_length=longest) if half >= SHORTEST else None
