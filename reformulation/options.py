"""Settings of the query-reformulation application, as its YAML files hold them."""

from __future__ import annotations

import dataclasses
import difflib
from pathlib import Path
from typing import Any

import yaml

from kytolly.config.fields import check_fields, setting
from kytolly.config.files import from_mapping, read_yaml
from kytolly.retrieval.metric_names import parsed


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class RetrievalOptions:
    """What is searched, and what an episode may do."""

    metric: str = setting("ndcg@10", "whose gain is the reward: ndcg@k, ap, recall@k or mrr@k")
    k1: float = setting(1.5, "BM25's saturation of term frequencies", at_least=0)
    b: float = setting(0.75, "BM25's share of length normalisation", at_least=0, at_most=1)
    feedback_documents: int = setting(
        10, "best documents that candidate terms are taken from", unit="documents", at_least=1
    )
    candidates: int = setting(50, "most candidate terms of a query", unit="terms", at_least=1)
    max_terms: int = setting(5, "most terms added to a query", unit="terms", at_least=1)
    weight: float = setting(0.3, "of an added term, where a query's own term has 1", above=0)
    encoder: str = setting(
        "auto",
        "of terms and queries; auto: wordllama where it is installed, else hash",
        choices=("auto", "wordllama", "hash"),
    )
    dimension: int = setting(256, "numbers of an embedding", unit="numbers", at_least=1)
    cache_entries: int = setting(500_000, "most embeddings kept", unit="texts", at_least=1)
    workers: int | None = setting(
        None, "processes that mine candidates; none: one a core", unit="processes", at_least=1
    )

    def __post_init__(self) -> None:
        check_fields(self)
        parsed(self.metric)


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class TrainingOptions:
    """How long and how much at once."""

    epochs: int = setting(40, "passes over the training queries", unit="passes", at_least=1)
    batch_size: int = setting(1_024, "rows of a minibatch", unit="env steps", at_least=2)
    collect_batch_size: int = setting(
        256, "queries reformulated at once", unit="queries", at_least=1
    )
    buffer_size: int = setting(
        16_384, "most env steps collected between two updates", unit="env steps", at_least=2
    )
    episodes_per_update: int = setting(
        1_024, "collected between two rounds of updates", unit="episodes", at_least=1
    )
    update_epochs: int = setting(4, "passes over what was collected", unit="passes", at_least=1)
    learning_rate: float = setting(3e-4, "Adam's step size at the start", above=0)
    use_amp: bool = setting(True, "half precision where the device is faster with it")
    warm_start_epochs: int = setting(
        12, "passes over one-step gains before PPO begins; 0: none", unit="passes", at_least=0
    )
    warm_start_learning_rate: float = setting(1e-3, "Adam's step size meanwhile", above=0)
    patience: int = setting(
        8, "evaluations on dev queries without improvement", unit="evaluations", at_least=1
    )
    only_improvable: bool = setting(
        False, "PPO leaves out training queries that no single candidate improves"
    )
    max_pool_documents: int = setting(
        2_048,
        "training leaves out queries of which more documents matter: every copy would be as large",
        unit="documents",
        at_least=64,
    )
    search: str = setting(
        "auto",
        "where episodes are searched: in tables on the device, or in the index on the host, which "
        "leaves no wide query out; auto: the host where tables would be too large",
        choices=("auto", "device", "host"),
    )
    max_table_mebibytes: int = setting(
        2_048, "of the device's tables, before auto takes the host", unit="MiB", at_least=1
    )

    def __post_init__(self) -> None:
        check_fields(self)


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class AgentOptions:
    """The policy and how it learns."""

    hidden_units: tuple[int, ...] = setting(
        (64, 64), "widths of the hidden layers", unit="units", at_least=1
    )
    dropout: float = setting(0.2, "of hidden units in the warm start", at_least=0, at_most=0.9)
    entropy_coef: float = setting(0.01, "weight of the entropy bonus", at_least=0)
    gamma: float = setting(1.0, "discount per added term", at_least=0, at_most=1)
    gae_lambda: float = setting(0.95, "weight of longer sums in advantages", at_least=0, at_most=1)
    clip_range: float = setting(0.1, "how far a probability ratio may move from 1", above=0)
    value_coef: float = setting(0.5, "weight of the value loss", at_least=0)
    max_grad_norm: float = setting(0.5, "gradient clipping, over all weights together", above=0)
    target_kl: float | None = setting(
        0.02, "end a round of updates once the KL divergence passes 1.5 times this", above=0
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
                raise ValueError(f"{name} is {value!r}, expected settings below it, one a line.")
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
