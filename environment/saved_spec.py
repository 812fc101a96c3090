"""What an agent sees and does, as plain data that a run's config.yaml holds."""

from __future__ import annotations

from typing import Any

from kytolly.environment.spec import ActionSpace, Discrete, EnvSpec, MultiDiscrete


def plain_spec(env_spec: EnvSpec) -> dict[str, Any]:
    """Observation and action of an environment in words, numbers and lists.

    The observation is {shape, dtype}, or {entries: {name: {shape, dtype}}}. The action is
    {discrete: A}, {multi_discrete: [A1, A2, ...]} or {low: [D numbers], high: [D numbers]}. Where
    there are some, `grids` are the names of the entries that hold bools or small integers, and
    `encodings` say how entries are encoded: {name: {shape, counts, starts}}, "" the observation.
    """
    plain = {
        "observation": plain_observation(env_spec.obs),
        "action": plain_action(env_spec.action),
    }
    encodings = {
        name: {part: list(value) for part, value in encoding._asdict().items()}
        for name, encoding in env_spec.encodings
    }
    plain |= {"grids": list(env_spec.grids)} if env_spec.grids else {}
    return plain | ({"encodings": encodings} if encodings else {})


def plain_observation(obs: Any) -> dict[str, Any]:
    """An observation's shape and dtype, or those of its entries by name."""
    if isinstance(obs, dict):
        return {"entries": {name: plain_observation(entry) for name, entry in obs.items()}}
    return {"shape": [int(size) for size in obs.shape], "dtype": obs.dtype.name}


def plain_action(action: ActionSpace) -> dict[str, Any]:
    """What an environment accepts."""
    if isinstance(action, Discrete):
        return {"discrete": int(action.count)}
    if isinstance(action, MultiDiscrete):
        return {"multi_discrete": [int(count) for count in action.counts]}
    return {"low": [float(x) for x in action.low], "high": [float(x) for x in action.high]}
