"""The choice of the loop for an environment: the device's, or the host's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kytolly.config.run import RunConfig
from kytolly.environment.registry import TENSOR_ENVIRONMENTS, tensor_environment
from kytolly.environment.spec import TensorEnvironment

if TYPE_CHECKING:
    from kytolly.loop.base import EnvRunner, EnvSource


def make_env_runner(cfg: RunConfig, env: EnvSource) -> EnvRunner:
    """The device's runner where the environment exists as tensor code, else the host's."""
    if isinstance(env, type) and hasattr(env, "reset_uniforms"):
        env = env()  # a class of tensor environments, where an object was meant
    if cfg.actors and cfg.loop != "host":
        refuse_tensor_code(env)
    if isinstance(env, TensorEnvironment):
        if cfg.loop == "host":
            raise ValueError(
                f"loop is 'host', and {type(env).__name__} is tensor code, expected a Gymnasium "
                "environment. Set loop='auto'."
            )
        from kytolly.environment.check import check_environment
        from kytolly.loop.device import TensorEnvRunner

        check_environment(env)
        return TensorEnvRunner(env, cfg)
    tensor_env = tensor_environment(env) if isinstance(env, str) else None
    if cfg.loop == "device" and tensor_env is None:
        from kytolly.config.words import nearest

        raise ValueError(
            f"loop is 'device', and {env!r} does not exist as tensor code; these do: "
            f"{', '.join(sorted(TENSOR_ENVIRONMENTS))}.{nearest(env, TENSOR_ENVIRONMENTS)} "
            "Set loop='host' or 'auto', or write it as an environment.spec.TensorEnvironment."
        )
    if tensor_env is not None and cfg.loop != "host":
        from kytolly.loop.device import TensorEnvRunner

        return TensorEnvRunner(tensor_env, cfg)
    from kytolly.loop.host_env_runner import HostEnvRunner

    return HostEnvRunner(env, cfg)


def configured_source(cfg: RunConfig, env: EnvSource) -> EnvSource:
    """An environment's source with the arguments and wrappers of a config."""
    if not cfg.env_kwargs and not cfg.wrappers:
        return env
    from kytolly.environment.gym.wrapped import wrapped_source

    return wrapped_source(env, cfg.env_kwargs, cfg.wrappers)


def refuse_tensor_code(env: EnvSource) -> None:
    """Refuse an environment that trains on the device, where actors are set."""
    if isinstance(env, TensorEnvironment) or (isinstance(env, str) and tensor_environment(env)):
        name = env if isinstance(env, str) else type(env).__name__
        raise ValueError(
            f"actors is set, and {name} is tensor code, which trains faster in the learner's own "
            "program, expected an environment of the host. Leave actors out, or set loop='host' "
            "for Gymnasium's."
        )
