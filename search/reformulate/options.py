"""Options of query reformulation, as its YAML files hold them."""

from __future__ import annotations

import dataclasses
import typing
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Literal

import yaml
from msgspec import Meta

from kytolly.config.fields import (
    NotNegative,
    Positive,
    Seed,
    Share,
    Widths,
    check_fields,
    from_mapping,
    setting,
)
from kytolly.config.files import given_or_packaged, read_yaml
from kytolly.config.words import nearest, value_text
from kytolly.record.files import write_text
from kytolly.search.index.metrics import metric_parts

TEXT = Meta(min_length=1, max_length=4_096, pattern=r"\A[^\0]*\Z", description="text")


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class RetrievalOptions:
    """Options of the search in a collection, and of an episode."""

    metric: Annotated[str, TEXT] = setting(
        "ndcg@10", "metric whose gain is the reward: ndcg@k, ap, recall@k or mrr@k"
    )
    k1: Annotated[float, Meta(ge=0, le=1_000)] = setting(
        1.5, "BM25's saturation of term frequencies"
    )
    b: Share = setting(0.75, "BM25's share of length normalization")
    feedback_documents: Annotated[int, Meta(ge=1, le=10**6), "documents"] = setting(
        10, "number of best documents that candidate terms are taken from"
    )
    candidates: Annotated[int, Meta(ge=1, le=10**6), "terms"] = setting(
        60, "maximum number of candidate terms of a query"
    )
    max_terms: Annotated[int, Meta(ge=1, le=1_000), "terms"] = setting(
        20, "maximum number of terms added to a query"
    )
    neighbors: Annotated[int, Meta(ge=0, le=10**5), "terms"] = setting(
        0, "maximum number of candidates that are near a query in the space of embeddings"
    )
    rewriter: Annotated[str, TEXT] | None = setting(
        None, "folder of a run of `kytolly train rewriter`, whose terms are candidates; none: none"
    )
    generated: Annotated[int, Meta(ge=1, le=10**4), "terms"] = setting(
        10, "maximum number of candidates that the rewriter proposes for a query"
    )
    query_terms: Annotated[int, Meta(ge=0, le=1_000), "terms"] = setting(
        12, "maximum number of terms of a query whose weight may be lowered; 0: none is"
    )
    typed_share: Share | Literal["auto"] | None = setting(
        "auto",
        "least share of the weight that typed words keep: each of its own, and all together of "
        "the query's; auto: the least with which dev queries do not drift, or 0.78; none: a word "
        "may lose up to 0.9",
    )
    fused_typed_share: Share | Literal["auto"] | None = setting(
        "auto", "the same in searches with cosines; auto: also as typed_share, where that is given"
    )
    fusion: Annotated[float, Meta(ge=0, le=1_000)] | Literal["auto"] = setting(
        "auto",
        "weight of the cosines of embeddings beside BM25; 0: BM25 alone; auto: 1, or what dev "
        "queries prefer",
    )
    encoder: Literal["auto", "wordllama", "hash", "own"] = setting(
        "auto",
        "encoder of texts; auto: wordllama if it is installed, else hash; own: the one that is "
        "given to `train` and `Reformulator.load` in Python",
    )
    dimension: Annotated[int, Meta(ge=1, le=2**14), "numbers"] = setting(
        256, "length of an embedding"
    )
    cache_entries: Annotated[int, Meta(ge=1, le=10**8), "texts"] = setting(
        500_000, "maximum number of embeddings kept in memory"
    )
    workers: Annotated[int, Meta(ge=1, le=1_024), "processes"] | None = setting(
        None, "processes that mine candidates; none: one for each core"
    )
    language: Annotated[str, TEXT] = setting(
        "english",
        "language of the stemmer, one of Snowball's, or none; auto: the language of the documents",
    )
    stop_words: Annotated[str, TEXT] = setting(
        "auto",
        "words left out: auto (the list of the language, if there is one), the name of a language "
        "that has a list, none, or a file",
    )
    ngrams: Annotated[int, Meta(ge=0, le=16), "characters"] = setting(
        0, "length of the n-grams in scripts without spaces; 0: none"
    )

    def __post_init__(self) -> None:
        check_fields(self)
        metric_parts(self.metric)

    @property
    def width(self) -> int:
        """Terms of a query that an agent decides on, at most."""
        return self.candidates + self.neighbors + self.most_generated + self.query_terms

    @property
    def most_generated(self) -> int:
        """Candidates that a rewriter proposes, at most."""
        return 0 if self.rewriter is None else self.generated


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class TrainingOptions:
    """Options of training: its length and sizes."""

    epochs: Annotated[int, Meta(ge=0, le=10**4), "passes"] = setting(
        5, "passes of PPO over the training queries; 0: no PPO"
    )
    batch_size: Annotated[int, Meta(ge=2, le=2**20), "env steps"] = setting(
        1_024, "rows of a minibatch"
    )
    collect_batch_size: Annotated[int, Meta(ge=1, le=2**17), "queries"] = setting(
        256, "number of queries reformulated at once"
    )
    buffer_size: Annotated[int, Meta(ge=2, le=2**26), "env steps"] = setting(
        16_384, "maximum number of env steps of a rollout"
    )
    episodes_per_update: Annotated[int, Meta(ge=1, le=2**20), "episodes"] = setting(
        2_048, "number of episodes of a rollout"
    )
    update_epochs: Annotated[int, Meta(ge=1, le=10**4), "passes"] = setting(
        4, "passes over each rollout"
    )
    learning_rate: Positive = setting(3e-4, "learning rate of PPO at the start; it falls to 0")
    gradient_accumulation: Annotated[int, Meta(ge=1, le=2**17), "minibatches"] = setting(
        1, "minibatches, one after the other, whose gradients make one update of PPO"
    )
    warmup_ratio: Annotated[float, Meta(ge=0, le=0.9)] = setting(
        0.0, "share of PPO's updates in which the learning rate rises to its full size"
    )
    weight_decay: NotNegative = setting(
        0.0, "share of the weights in matrices, times the learning rate, that an update removes"
    )
    use_amp: bool = setting(True, "half precision, which only a GPU uses")
    pretrained: bool = setting(True, "begin with the network that comes with the package")
    warm_start_epochs: Annotated[int, Meta(ge=0, le=10**4), "passes"] = setting(
        20, "passes over the judgments before PPO begins; 0: no warm start"
    )
    warm_start_learning_rate: Positive = setting(1e-2, "learning rate of the warm start")
    synthetic_queries: Annotated[int, Meta(ge=0, le=10**6), "queries"] = setting(
        0, "number of parts of documents that the warm start learns to find first, as queries"
    )
    held_out_folds: Annotated[int, Meta(ge=0, le=100), "parts"] = setting(
        3,
        "parts of the train queries, each of which one more warm start learns without, so that it "
        "can test what helps; 0: none",
    )
    weight_cost: NotNegative = setting(
        0.0, "loss of the warm start for each unit of weight that is added to a query"
    )
    term_cost: NotNegative = setting(0.0, "reward of PPO that each added term must earn")
    patience: Annotated[int, Meta(ge=1, le=10**6), "evaluations"] = setting(
        8, "evaluations without improvement before PPO stops"
    )
    min_improvement: NotNegative = setting(
        0.0, "smallest increase of the gain that counts as an improvement"
    )
    pool_documents: Annotated[int, Meta(ge=64, le=10**6), "documents"] = setting(
        512, "number of documents of each query that training ranks"
    )
    max_queries: Annotated[int, Meta(ge=1, le=10**8), "queries"] = setting(
        4_000, "maximum number of queries of a split that training uses, drawn by the seed"
    )

    def __post_init__(self) -> None:
        check_fields(self)


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class AgentOptions:
    """The policy, and how it learns."""

    hidden_units: Widths = setting((32, 32), "widths of the hidden layers")
    dropout: Annotated[float, Meta(ge=0, le=0.9)] = setting(
        0.1, "share of hidden units dropped in the warm start"
    )
    entropy_coef: NotNegative = setting(0.0, "weight of the entropy bonus")
    clip_range: Positive = setting(0.1, "how far a probability ratio may move from 1")
    value_coef: NotNegative = setting(0.5, "weight of the value loss")
    max_grad_norm: Positive | None = setting(
        0.5, "largest norm of the gradient of all weights together; none: any"
    )
    target_kl: Positive | None = setting(
        0.02, "updates from a rollout end once the KL divergence passes 1.5 times this"
    )

    def __post_init__(self) -> None:
        check_fields(self)


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class ReformulationOptions:
    """Everything that `train_optimized.py --config` reads."""

    collection: Annotated[str, TEXT] = setting(
        "builtin", "folder in the BEIR layout, builtin, or ir_datasets:NAME"
    )
    seed: Seed = setting(0, "seed of every random draw")
    retrieval: RetrievalOptions = dataclasses.field(default_factory=RetrievalOptions)
    training: TrainingOptions = dataclasses.field(default_factory=TrainingOptions)
    rl_agent: AgentOptions = dataclasses.field(default_factory=AgentOptions)

    def __post_init__(self) -> None:
        check_fields(self)


TYPED_SHARE = 0.78  # where no dev query tests one
OF_EARLIER_RUNS = {"typed_share": None}
SECTIONS = {"retrieval": RetrievalOptions, "training": TrainingOptions, "rl_agent": AgentOptions}


def options_from(values: dict[str, Any]) -> ReformulationOptions:
    """Options from nested mappings; an unknown key is an error that names the nearest one."""
    known = [field.name for field in dataclasses.fields(ReformulationOptions)]
    sections: dict[str, Any] = {}
    for name, value in values.items():
        if name not in known:
            raise ValueError(
                f"{value_text(name)} is no section or setting, expected {', '.join(known)}."
                + nearest(name, known)
            )
        if name in SECTIONS:
            if not isinstance(value, dict):
                raise ValueError(
                    f"{name} is {value_text(value)}, expected settings below it, one a line."
                )
            value = from_mapping(SECTIONS[name], with_none(SECTIONS[name], value))
        sections[name] = value
    return ReformulationOptions(**sections)


def with_none(kind: type, values: dict[str, Any]) -> dict[str, Any]:
    """The values with None for the word `none`, which YAML takes for text, where None may stand."""
    hints = typing.get_type_hints(kind)
    optional = {name for name, hint in hints.items() if NoneType in typing.get_args(hint)}
    return {
        name: None if value == "none" and name in optional else value
        for name, value in values.items()
    }


def read_options(path: str | Path) -> ReformulationOptions:
    """Options from a YAML file."""
    return options_from(read_yaml(given_or_packaged(path)))


def read_run_options(path: Path) -> ReformulationOptions:
    """The options of a run; what its version did not know is as it was then."""
    values = read_yaml(path)
    retrieval = values.get("retrieval")
    if isinstance(retrieval, dict):
        values["retrieval"] = {**OF_EARLIER_RUNS, **retrieval}
    return options_from(values)


def write_options(path: str | Path, options: ReformulationOptions) -> None:
    """Every option as YAML that `read_options` reads."""
    values = dataclasses.asdict(options)
    for section in SECTIONS:
        values[section] = {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in values[section].items()
        }
    write_text(Path(path), yaml.safe_dump(values, sort_keys=False))
