"""The table of algorithms: the only place that knows which parts an algorithm is made of."""

from __future__ import annotations

import pkgutil
from collections.abc import Mapping
from typing import Any, NamedTuple

from kytolly.config.fields import from_mapping
from kytolly.config.words import nearest


class Algorithm(NamedTuple):
    """A row of the table. Each part is an object, or its "module:name" to import it when needed.

    Attributes:
        config: Configuration dataclass; its `algorithm` field is the name of the row.
        policy: `policy.base.Policy`: the learning rule.
        memory: `ReplayBuffer` or `RolloutBuffer`: which rows are learned from.
        exploration: `EpsilonGreedy` or `Sampling`: how to act while learning.
        network: Function (cfg, obs_spec, distribution) -> Keras model, where the user gives none.
    """

    config: Any
    policy: Any
    memory: Any
    exploration: Any
    network: Any


_DQN = Algorithm(
    config="kytolly.config.dqn:DQNConfig",
    policy="kytolly.policy.dqn:DQNPolicy",
    memory="kytolly.agent.replay_buffer:ReplayBuffer",
    exploration="kytolly.agent.epsilon_greedy:EpsilonGreedy",
    network="kytolly.model.q_networks:make_q_network",
)
ALGORITHMS: dict[str, Algorithm] = {
    "dqn": _DQN,
    "ddqn": _DQN._replace(policy="kytolly.policy.ddqn:DoubleDQNPolicy"),
    "ppo": Algorithm(
        config="kytolly.config.ppo:PPOConfig",
        policy="kytolly.policy.ppo:PPOPolicy",
        memory="kytolly.agent.rollout_buffer:RolloutBuffer",
        exploration="kytolly.agent.sampling:Sampling",
        network="kytolly.model.actor_critic_mlp:make_actor_critic",
    ),
}


def part(algorithm: str, name: str) -> Any:
    """The part `name` of an algorithm, imported now if nobody has needed it before."""
    if str(algorithm) not in ALGORITHMS:
        raise ValueError(
            f"{algorithm!r} is no algorithm; there are {', '.join(ALGORITHMS)}."
            + nearest(algorithm, ALGORITHMS)
        )
    found = getattr(ALGORITHMS[algorithm], name)
    return pkgutil.resolve_name(found) if isinstance(found, str) else found


def make_config(values: Mapping[str, Any]) -> Any:
    """The configuration of the algorithm that `values["algorithm"]` names; else ValueError."""
    if "algorithm" not in values:
        raise ValueError(
            f"the settings name no algorithm, expected one of {', '.join(ALGORITHMS)}: add it, as "
            "in {'algorithm': 'dqn'}."
        )
    return from_mapping(part(values["algorithm"], "config"), dict(values))
