"""Environments on the host for an agent with a memory."""

from __future__ import annotations

from kytolly.config.run import RunConfig
from kytolly.environment.gym.step import HostEnv


def remembering(env: HostEnv, cfg: RunConfig) -> HostEnv:
    """The environments, which keep the agent's memory where the config says that it has one."""
    if cfg.memory is None:
        return env
    from kytolly.config.memory import state_units
    from kytolly.environment.gym.remembering import RememberingHostEnv

    return RememberingHostEnv(env, state_units(cfg.memory, cfg.memory_units), cfg.memory_inputs)
