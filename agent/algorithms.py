"""The table of algorithms: the only place that knows which parts an algorithm is made of."""

from __future__ import annotations

import pkgutil
from collections.abc import Mapping
from typing import Any, NamedTuple

from kytolly.config.fields import from_mapping
from kytolly.config.run import RunConfig


class Algorithm(NamedTuple):
    """A row of the table. Each part is an object, or its "module:name" to import it when needed."""

    config: Any  # dataclass whose field `algorithm` is the name of the row
    policy: Any  # `policy.base.Policy`: the learning rule
    memory: Any  # `ReplayBuffer` or `RolloutBuffer`: which rows are learned from
    exploration: Any  # `EpsilonGreedy` or `Sampling`: how to act while learning
    network: Any  # (cfg, obs_spec, distribution) -> Keras model, where the user gives none


def _row(
    module: str, name: str, memory: str, exploration: str, network: str, learner: str = ""
) -> Algorithm:
    """A row whose config lies in the module, and whose policy does where no `learner` is named."""
    config, policy = f"config.{module}:{name}Config", learner or f"{module}:{name}Policy"
    parts = (
        config,
        f"policy.{policy}",
        f"agent.{memory}",
        f"agent.{exploration}",
        f"model.{network}",
    )
    return Algorithm(*(f"kytolly.{name}" for name in parts))


_REPLAY = "replay_buffer:ReplayBuffer", "exploration:EpsilonGreedy"
_ROLLOUT = (
    "rollout_buffer:RolloutBuffer",
    "sampling:Sampling",
    "actor_critic_mlp:make_actor_critic",
)
_GREEDY_ROLLOUT = "rollout_buffer:RolloutBuffer", "exploration:EpsilonGreedy"
_DQN = _row("dqn", "DQN", *_REPLAY, "ddqn_mlp:make_q_network")
_C51 = _row(
    "c51", "C51", *_REPLAY, "distributional_mlp:make_atom_network", "distributional:C51Policy"
)
ALGORITHMS: dict[str, Algorithm] = {
    "dqn": _DQN,
    "ddqn": _DQN._replace(policy="kytolly.policy.ddqn:DoubleDQNPolicy"),
    "c51": _C51,
    "qr-dqn": _row(
        "qr_dqn",
        "QRDQN",
        *_REPLAY,
        "distributional_mlp:make_quantile_network",
        "distributional:QRDQNPolicy",
    ),
    "iqn": _row(
        "iqn",
        "IQN",
        *_REPLAY,
        "implicit_quantiles:make_implicit_quantile_network",
        "distributional:IQNPolicy",
    ),
    "munchausen": _DQN._replace(config="kytolly.config.munchausen:MunchausenConfig"),
    "rainbow": _C51._replace(config="kytolly.config.rainbow:RainbowConfig"),
    "pqn": _row("pqn", "PQN", *_GREEDY_ROLLOUT, "ddqn_mlp:make_q_network"),
    "ppo": _row("ppo", "PPO", *_ROLLOUT),
    "ppo-kl": _row("ppo_kl", "PPOKL", *_ROLLOUT),
}

# Settings that put another part in the place of an algorithm's own.
SWITCHES = (
    ("prioritized", "memory", "kytolly.agent.prioritized_replay:PrioritizedReplay"),
    ("noisy", "exploration", "kytolly.agent.noisy_greedy:NoisyGreedy"),
    ("memory", "memory", "kytolly.agent.sequences:SequenceMemory"),
    ("memory", "network", "kytolly.agent.sequences:make_memory_network"),
)


# The config of each kind of run that plays no episodes, and what it trains.
TEXT_MODELS = {
    "classifier": ("kytolly.search.config.classifier:ClassifierConfig", "a text classifier"),
    "ranker": ("kytolly.search.config.ranker:RankerConfig", "a re-ranker"),
    "rewriter": ("kytolly.search.config.rewriter:RewriterConfig", "a query rewriter"),
    "fine-tuning": (
        "kytolly.search.config.rewriting_ppo:RewritingPPOConfig",
        "a query rewriter, by PPO",
    ),
}


def part(algorithm: str, name: str) -> Any:
    """The part `name` of an algorithm, imported now if nobody has needed it before."""
    if str(algorithm) not in ALGORITHMS:
        from kytolly.config.words import nearest

        hint = nearest(algorithm, ALGORITHMS)
        raise ValueError(f"{algorithm!r} is no algorithm; there are {', '.join(ALGORITHMS)}.{hint}")
    value = getattr(ALGORITHMS[algorithm], name)
    return pkgutil.resolve_name(value) if isinstance(value, str) else value


def part_for(cfg: RunConfig, name: str) -> Any:
    """The part `name` of a config's algorithm, or what one of its switches has in its place."""
    for switch, replaced, path in reversed(SWITCHES):  # of two that are on, the later one counts
        if replaced == name and getattr(cfg, switch, False):
            return pkgutil.resolve_name(path)
    return part(cfg.algorithm, name)


def algorithms_with(setting: str) -> list[str]:
    """The algorithms that have a setting of that name."""
    configs = {name: part(name, "config") for name in ALGORITHMS}
    return [name for name, kind in configs.items() if setting in kind.__dataclass_fields__]


def make_config(values: Mapping[str, object] | RunConfig, default: str | None = None) -> Any:
    """The configuration of the algorithm that a mapping names, or of `default`.

    A configuration is returned as it is: TypeError where it is not of the kind of `default`.
    """
    if not isinstance(values, Mapping):
        given = getattr(values, "algorithm", None)
        if given is None or (default and given.startswith("ppo") != (default == "ppo")):
            from kytolly.config.words import wrong_config

            raise wrong_config(values, default)
        return values
    algorithm = values.get("algorithm", default)
    if not isinstance(algorithm, str):
        from kytolly.config.words import wrong_algorithm

        raise wrong_algorithm(algorithm, ALGORITHMS)
    kind = part(algorithm, "config")
    for name in set(values) - set(kind.__dataclass_fields__):
        if owners := algorithms_with(name):
            raise ValueError(
                f"{name!r} is not a setting of {kind.__name__}, but of {', '.join(owners)}. Leave "
                "it out, or choose one of these algorithms."
            )
    return from_mapping(kind, {"algorithm": algorithm, **values})
