"""Options of query reformulation, as its YAML files hold them."""

from __future__ import annotations

import dataclasses
import difflib
import reprlib
from pathlib import Path
from typing import Any

import yaml

from kytolly.config.fields import check_fields, setting
from kytolly.config.files import from_mapping, read_yaml
from kytolly.retrieval.metric_names import metric_parts

MOST = 2**20  # what memory bears is checked where it is used; this keeps products within int64


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class RetrievalOptions:
    """How a collection is searched, and what an episode may do."""

    metric: str = setting(
        "ndcg@10", "metric whose gain is the reward: ndcg@k, ap, recall@k or mrr@k"
    )
    k1: float = setting(1.5, "BM25's saturation of term frequencies", at_least=0, at_most=1_000)
    b: float = setting(0.75, "BM25's share of length normalization", at_least=0, at_most=1)
    feedback_documents: int = setting(
        10,
        "number of best documents that candidate terms are taken from",
        unit="documents",
        at_least=1,
        at_most=MOST,
    )
    candidates: int = setting(
        50, "maximum number of candidate terms of a query", unit="terms", at_least=1, at_most=MOST
    )
    max_terms: int = setting(
        5, "maximum number of terms added to a query", unit="terms", at_least=1, at_most=1_000
    )
    weight: float = setting(
        0.3, "weight of an added term; a term of the query has 1", above=0, at_most=1_000
    )
    encoder: str = setting(
        "auto",
        "encoder of terms and queries; auto: wordllama if it is installed, else hash",
        choices=("auto", "wordllama", "hash"),
    )
    dimension: int = setting(
        256, "length of an embedding", unit="numbers", at_least=1, at_most=8_192
    )
    cache_entries: int = setting(
        500_000,
        "maximum number of embeddings kept in memory",
        unit="texts",
        at_least=1,
        at_most=10**9,
    )
    workers: int | None = setting(
        None,
        "processes that mine candidates; none: one for each core",
        unit="processes",
        at_least=1,
        at_most=1_024,
    )

    def __post_init__(self) -> None:
        check_fields(self)
        metric_parts(self.metric)


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class TrainingOptions:
    """How long to train, and with how much at once."""

    epochs: int = setting(
        40, "passes of PPO over the training queries", unit="passes", at_least=1, at_most=MOST
    )
    batch_size: int = setting(
        1_024, "rows of a minibatch", unit="env steps", at_least=2, at_most=MOST
    )
    collect_batch_size: int = setting(
        256, "number of queries reformulated at once", unit="queries", at_least=1, at_most=MOST
    )
    buffer_size: int = setting(
        16_384,
        "maximum number of env steps of a rollout",
        unit="env steps",
        at_least=2,
        at_most=2**31,
    )
    episodes_per_update: int = setting(
        1_024,
        "number of full-length episodes of a rollout",
        unit="episodes",
        at_least=1,
        at_most=2**31,
    )
    update_epochs: int = setting(
        4, "passes over each rollout", unit="passes", at_least=1, at_most=10_000
    )
    learning_rate: float = setting(
        3e-4, "learning rate of PPO at the start; it falls to 0", above=0
    )
    use_amp: bool = setting(True, "half precision, which only a GPU uses")
    warm_start_epochs: int = setting(
        12,
        "passes over one-step gains before PPO begins; 0: no warm start",
        unit="passes",
        at_least=0,
        at_most=MOST,
    )
    warm_start_learning_rate: float = setting(1e-3, "learning rate of the warm start", above=0)
    patience: int = setting(
        8,
        "evaluations on dev queries without improvement before PPO stops",
        unit="evaluations",
        at_least=1,
        at_most=MOST,
    )
    only_improvable: bool = setting(
        False, "leave out training queries that no single candidate improves"
    )
    max_pool_documents: int = setting(
        2_048,
        "training leaves out queries for which more documents matter; the widest query sets the "
        "size of every environment",
        unit="documents",
        at_least=64,
        at_most=2**31,
    )
    search: str = setting(
        "auto",
        "where episodes search: in tables on the device, or in the index on the host, which leaves "
        "no query out; auto: the host if tables would be too large",
        choices=("auto", "device", "host"),
    )
    max_table_mebibytes: int = setting(
        2_048,
        "maximum size of the device's tables with search: auto",
        unit="MiB",
        at_least=1,
        at_most=2**31,
    )

    def __post_init__(self) -> None:
        check_fields(self)


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class AgentOptions:
    """The policy, and how it learns."""

    hidden_units: tuple[int, ...] = setting(
        (64, 64), "widths of the hidden layers", unit="units", at_least=1, at_most=8_192
    )
    dropout: float = setting(
        0.2, "share of hidden units dropped in the warm start", at_least=0, at_most=0.9
    )
    entropy_coef: float = setting(0.01, "weight of the entropy bonus", at_least=0)
    gamma: float = setting(1.0, "discount for each added term", at_least=0, at_most=1)
    gae_lambda: float = setting(
        0.95, "lambda of generalized advantage estimation", at_least=0, at_most=1
    )
    clip_range: float = setting(0.1, "how far a probability ratio may move from 1", above=0)
    value_coef: float = setting(0.5, "weight of the value loss", at_least=0)
    max_grad_norm: float = setting(0.5, "gradient clipping, over all weights together", above=0)
    target_kl: float | None = setting(
        0.02, "updates from a rollout end once the KL divergence passes 1.5 times this", above=0
    )

    def __post_init__(self) -> None:
        check_fields(self)


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class ReformulationOptions:
    """Everything that `train_optimized.py --config` reads."""

    collection: str = setting("builtin", "folder in the BEIR layout, or builtin")
    seed: int = setting(0, "seed of every random draw", at_least=0, at_most=2**31 - 1)
    retrieval: RetrievalOptions = dataclasses.field(default_factory=RetrievalOptions)
    training: TrainingOptions = dataclasses.field(default_factory=TrainingOptions)
    rl_agent: AgentOptions = dataclasses.field(default_factory=AgentOptions)

    def __post_init__(self) -> None:
        check_fields(self)


SECTIONS = {"retrieval": RetrievalOptions, "training": TrainingOptions, "rl_agent": AgentOptions}


def options_from(values: dict[str, Any]) -> ReformulationOptions:
    """Options from nested mappings; an unknown key is an error that names the nearest one."""
    known = [field.name for field in dataclasses.fields(ReformulationOptions)]
    found: dict[str, Any] = {}
    for name, value in values.items():
        if name not in known:
            near = difflib.get_close_matches(str(name), known, 1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise ValueError(
                f"{name!r} is no section or setting, expected {', '.join(known)}.{hint}"
            )
        if name in SECTIONS:
            if not isinstance(value, dict):
                raise ValueError(
                    f"{name} is {reprlib.repr(value)}, expected settings below it, one a line."
                )
            value = from_mapping(SECTIONS[name], value)
        found[name] = value
    return ReformulationOptions(**found)


def read_options(path: str | Path) -> ReformulationOptions:
    """Options from a YAML file."""
    return options_from(read_yaml(path))


def write_options(path: str | Path, options: ReformulationOptions) -> None:
    """Every option as YAML that `read_options` reads."""
    values = dataclasses.asdict(options)
    for section in SECTIONS:
        values[section] = {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in values[section].items()
        }
    Path(path).write_text(yaml.safe_dump(values, sort_keys=False), encoding="utf-8")
