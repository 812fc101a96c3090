"""Why action values cannot be learned in an environment."""

from __future__ import annotations

from typing import Any, cast

from kytolly.environment.spec import Discrete, EnvSpec


def unfit_environment(algorithm: str, env_spec: EnvSpec) -> ValueError:
    """The error for actions that are not Discrete, or for observations that are a Dict."""
    name, obs = env_spec.name, cast("dict[str, Any]", env_spec.obs)
    if not isinstance(env_spec.action, Discrete):
        return ValueError(
            f"the actions of {name} are a {type(env_spec.action).__name__}, and {algorithm} needs "
            "Discrete ones. Train it with ppo, or wrap the environment in "
            "gymnasium.wrappers.DiscretizeAction (Box) or a gymnasium.wrappers.TransformAction "
            "that numbers the combinations."
        )
    return ValueError(
        f"the observations of {name} are a Dict of {', '.join(obs)}, and {algorithm} "
        "needs one array. Train it with ppo, or wrap the environment in "
        "gymnasium.wrappers.FlattenObservation."
    )
