"""The table of algorithms: the only place that knows which parts an algorithm is made of."""

from __future__ import annotations

import pkgutil
from collections.abc import Mapping
from typing import Any, NamedTuple

from kytolly.config.fields import from_mapping


class Algorithm(NamedTuple):
    """A row of the table. Each part is an object, or its "module:name" to import it when needed."""

    config: Any  # dataclass whose field `algorithm` is the name of the row
    policy: Any  # `policy.base.Policy`: the learning rule
    memory: Any  # `ReplayBuffer` or `RolloutBuffer`: which rows are learned from
    exploration: Any  # `EpsilonGreedy` or `Sampling`: how to act while learning
    network: Any  # (cfg, obs_spec, distribution) -> Keras model, where the user gives none


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
ALGORITHMS["ppo-kl"] = ALGORITHMS["ppo"]._replace(
    config="kytolly.config.ppo_kl:PPOKLConfig", policy="kytolly.policy.ppo_kl:PPOKLPolicy"
)


def part(algorithm: str, name: str) -> Any:
    """The part `name` of an algorithm, imported now if nobody has needed it before."""
    if str(algorithm) not in ALGORITHMS:
        from kytolly.config.words import nearest

        hint = nearest(algorithm, ALGORITHMS)
        raise ValueError(f"{algorithm!r} is no algorithm; there are {', '.join(ALGORITHMS)}.{hint}")
    found = getattr(ALGORITHMS[algorithm], name)
    return pkgutil.resolve_name(found) if isinstance(found, str) else found


def make_config(values: Any, default: str | None = None) -> Any:
    """The configuration of the algorithm that a mapping names, or of `default`.

    What is no mapping is a configuration already, and returned as it is.
    """
    if not isinstance(values, Mapping):
        return values
    algorithm = values.get("algorithm", default)
    if algorithm is None:
        raise ValueError(
            f"the settings name no algorithm, expected one of {', '.join(ALGORITHMS)}: add it, as "
            "in {'algorithm': 'dqn'}."
        )
    return from_mapping(part(algorithm, "config"), {"algorithm": algorithm, **values})
