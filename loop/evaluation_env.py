"""Evaluations in another environment than the one that trains."""

from __future__ import annotations

from typing import Any

from kytolly.config.run import RunConfig
from kytolly.loop.choose import choose_side


def evaluation_side(cfg: RunConfig, env: Any, trained: Any) -> Any:
    """Where evaluations play; the environment must look to the agent like the `trained` one."""
    others: dict[str, Any] = {"loop": "auto"}
    if isinstance(env, str) or callable(env):
        others |= {"async_envs": cfg.async_envs, "on_env_fault": cfg.on_env_fault}
    side = choose_side(cfg.for_playing(**others), env)
    side.close()  # evaluations make environments of their own
    if (side.spec.obs, side.spec.action) != (trained.spec.obs, trained.spec.action):
        raise ValueError(
            f"evaluation_env has observations {side.spec.obs} and actions {side.spec.action}, "
            f"expected those of the environment that trains: {trained.spec.obs} and "
            f"{trained.spec.action}."
        )
    return side
