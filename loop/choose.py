"""Which loop an environment gets, and which session a run."""

from __future__ import annotations

from typing import Any

from kytolly.config.run import RunConfig
from kytolly.environment.registry import TENSOR_ENVIRONMENTS, tensor_environment
from kytolly.environment.spec import TensorEnvironment
from kytolly.loop.session import TrainingSession


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
        from kytolly.config.words import nearest

        raise ValueError(
            f"loop is 'device', and {env!r} does not exist as tensor code; these do: "
            f"{', '.join(sorted(TENSOR_ENVIRONMENTS))}.{nearest(env, TENSOR_ENVIRONMENTS)} "
            "Set loop='host' or 'auto', or write it as an environment.spec.TensorEnvironment."
        )
    if tensor_env is not None and cfg.loop != "host":
        if cfg.max_wall_seconds is not None:
            from kytolly.loop.timed_evaluation import TimedSide

            return TimedSide(tensor_env, cfg)
        from kytolly.loop.device import DeviceSide

        return DeviceSide(tensor_env, cfg)
    from kytolly.loop.host_side import HostSide

    return HostSide(env, cfg)


def choose_session(cfg: RunConfig) -> type[TrainingSession]:
    """What drives the loop: one that looks at the clock where the time is limited."""
    if cfg.max_wall_seconds is None:
        return TrainingSession
    from kytolly.loop.timed_session import TimedSession

    return TimedSession
