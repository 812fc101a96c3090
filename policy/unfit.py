"""Why action values cannot be learned in an environment."""

from __future__ import annotations

from kytolly.environment.spec import ACTION_MASK, Discrete, EnvSpec


def unfit_environment(algorithm: str, env_spec: EnvSpec) -> ValueError:
    """The error for actions that are not Discrete, or that a mask forbids."""
    name = env_spec.name
    if not isinstance(env_spec.action, Discrete):
        return ValueError(
            f"the actions of {name} are a {type(env_spec.action).__name__}, and {algorithm} needs "
            "Discrete ones. Train it with ppo, or wrap the environment in "
            "gymnasium.wrappers.DiscretizeAction (Box) or a gymnasium.wrappers.TransformAction "
            "that numbers the combinations."
        )
    return ValueError(
        f"the observations of {name} have an entry {ACTION_MASK!r}, and {algorithm} would take "
        "actions that it forbids. Train it with ppo, or leave the entry out with a "
        "gymnasium.wrappers.FilterObservation."
    )
