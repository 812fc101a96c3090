"""Which loop an environment gets, and how it is evaluated."""

from __future__ import annotations

import dataclasses
import difflib
from typing import Any

from kytolly.config.run import RunConfig
from kytolly.environment.registry import TENSOR_ENVIRONMENTS, tensor_environment
from kytolly.environment.spec import TensorEnvironment


def choose_side(cfg: RunConfig, env: Any) -> Any:
    """The device where the environment exists as tensor code, else the host."""
    if isinstance(env, type) and hasattr(env, "reset_uniforms"):
        env = env()  # a class of tensor environments, where an object was meant
    tensor_env = tensor_environment(env) if isinstance(env, str) else None
    if isinstance(env, TensorEnvironment):
        if cfg.loop == "host":
            raise ValueError(
                f"loop is 'host', and {type(env).__name__} is tensor code, expected a Gymnasium "
                "environment. Set loop='auto'."
            )
        from kytolly.environment.check import check_environment

        check_environment(env)
        tensor_env = env
    if cfg.loop == "device" and tensor_env is None:
        known = ", ".join(sorted(name for name in TENSOR_ENVIRONMENTS if "probe" not in name))
        near = difflib.get_close_matches(str(env), TENSOR_ENVIRONMENTS, 1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise ValueError(
            f"loop is 'device', and {env!r} does not exist as tensor code; these do: {known}.{hint}"
            " Set loop='host' or 'auto', or write it as an environment.spec.TensorEnvironment."
        )
    if tensor_env is not None and cfg.loop != "host":
        from kytolly.loop.device_side import DeviceSide

        return DeviceSide(tensor_env, cfg)
    from kytolly.loop.host_side import HostSide

    return HostSide(env, cfg)


def evaluation_side(cfg: RunConfig, env: Any, trained: Any) -> Any:
    """Where evaluations play; an environment of their own must look alike to the agent."""
    if env is None:
        return trained
    playing = dataclasses.replace(cfg.for_playing(), loop="auto")
    if isinstance(env, str) or callable(env):
        faults = {"async_envs": cfg.async_envs, "on_env_fault": cfg.on_env_fault}
        playing = dataclasses.replace(playing, **faults)
    side = choose_side(playing, env)
    side.close()  # evaluations make environments of their own
    if (side.spec.obs, side.spec.action) != (trained.spec.obs, trained.spec.action):
        raise ValueError(
            f"evaluation_env has observations {side.spec.obs} and actions {side.spec.action}, "
            f"expected those of the environment that trains: {trained.spec.obs} and "
            f"{trained.spec.action}."
        )
    return side
