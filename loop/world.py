"""Which loop an environment gets, and how it is evaluated."""

from __future__ import annotations

import copy
import dataclasses
import difflib
from typing import Any, cast

import gymnasium
import keras

from kytolly.agent.base import Agent
from kytolly.agent.factory import greedy_function, make_actor
from kytolly.agent.kytolly import KytollyAgent
from kytolly.agent.ppo_agent import PPOAgent
from kytolly.config.ppo import PPOConfig
from kytolly.config.run import RunConfig
from kytolly.environment.check import check_environment
from kytolly.environment.gym.adapter import make_host_env, make_host_groups
from kytolly.environment.gym.step import HostEnv
from kytolly.environment.registry import TENSOR_ENVIRONMENTS, tensor_environment
from kytolly.environment.spec import EnvSpec, TensorEnvironment
from kytolly.loop.device import DeviceLoop, DeviceProgram
from kytolly.loop.evaluate import DeviceEvaluator, HostEvaluator
from kytolly.loop.host import HostLoop
from kytolly.loop.rollout_device import RolloutDeviceLoop
from kytolly.loop.rollout_host import RolloutHostLoop
from kytolly.loop.session import Evaluator, Loop

EVALUATION_COPIES = 8


class DeviceWorld:
    """An environment in tensor code: training and evaluation are programs on the device."""

    loop_name = "device"

    def __init__(self, env: TensorEnvironment, cfg: RunConfig):
        self.env, self.cfg, self.num_envs = env, cfg, cfg.num_envs
        self.spec: EnvSpec = env.spec

    def loop(self, agent: Agent, device: str | None) -> DeviceProgram:
        """The loop that trains."""
        kind = RolloutDeviceLoop if isinstance(agent, PPOAgent) else DeviceLoop
        return kind(agent, self.env, device)

    def evaluator(
        self, network: keras.Model, episodes: int, seed: int, *, xla: bool, device: str | None
    ) -> Evaluator:
        """Plays `episodes` copies at once with the network."""
        greedy = greedy_function(self.cfg, self.spec, network)
        return DeviceEvaluator(greedy, self.env, episodes, seed, xla=xla, device=device)


class HostWorld:
    """Gymnasium environments, stepped on the host."""

    loop_name = "host"

    def __init__(self, env: Any, cfg: RunConfig):
        self.cfg = cfg
        self.separate = separate_source(env)
        copies = cfg.num_envs if cfg.num_envs > 1 else None  # None: as many as a vector has
        self.masks = isinstance(cfg, PPOConfig)
        self.groups = make_host_groups(
            env,
            copies,
            2 if isinstance(cfg, PPOConfig) else 1,
            seed=cfg.seed,
            async_envs=cfg.async_envs,
            masks=self.masks,
        )
        self.spec = self.groups[0].spec
        self.num_envs = sum(group.num_envs for group in self.groups)

    def loop(self, agent: Agent, device: str | None) -> Loop:
        """The loop that trains."""
        if isinstance(agent, PPOAgent):
            return RolloutHostLoop(agent, self.groups, device)
        return HostLoop(cast(KytollyAgent, agent), self.groups[0], device)

    def evaluator(
        self, network: keras.Model, episodes: int, seed: int, *, xla: bool, device: str | None
    ) -> Evaluator:
        """Plays episodes in environments apart from those that train."""
        actor = make_actor(self.cfg, self.spec, network)
        copies: int | None = self.num_envs if self.num_envs > 1 else None
        if isinstance(self.separate, str):
            copies = min(episodes, EVALUATION_COPIES)

        def make_env(seed: int) -> HostEnv:
            actor.refresh()
            return make_host_env(self.separate, copies, seed=seed, masks=self.masks)

        return HostEvaluator(actor, make_env, episodes, seed)


def repeatable(env: Any) -> bool:
    """Whether the user gave something that any number of copies can be made from."""
    made = isinstance(env, (gymnasium.Env, gymnasium.vector.VectorEnv))
    return isinstance(env, str) or (callable(env) and not made)


def separate_source(env: Any) -> Any:
    """An id or a function that makes environments like `env`, apart from `env` itself."""
    if repeatable(env):
        return env
    if isinstance(env, gymnasium.Env) and env.spec is not None:
        spec = env.spec
        return lambda: gymnasium.make(spec)
    try:
        pristine = copy.deepcopy(env)
    except Exception as error:
        raise ValueError(
            f"{type(env).__name__} cannot be copied for evaluation ({error}), and evaluating in "
            "the training environment would disturb it. Give a function that makes the "
            "environment instead: env=lambda: MyEnv(...)."
        ) from error
    return lambda: copy.deepcopy(pristine)


def choose_world(cfg: RunConfig, env: Any) -> DeviceWorld | HostWorld:
    """The device loop where the environment exists as tensor code, else the host loop."""
    if isinstance(env, type) and hasattr(env, "reset_uniforms"):
        env = env()  # a class of tensor environments, where an object was meant
    tensor_env = tensor_environment(env) if isinstance(env, str) else None
    if tensor_env is None and not isinstance(env, str) and isinstance(env, TensorEnvironment):
        check_environment(env)
        tensor_env = env
    if cfg.loop == "host" and isinstance(env, TensorEnvironment):
        raise ValueError(
            f"loop is 'host', and {type(env).__name__} is tensor code, expected a Gymnasium "
            "environment. Set loop='auto'."
        )
    if cfg.loop == "device" and tensor_env is None:
        known = ", ".join(sorted(name for name in TENSOR_ENVIRONMENTS if "probe" not in name))
        near = difflib.get_close_matches(str(env), TENSOR_ENVIRONMENTS, 1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise ValueError(
            f"loop is 'device', and {env!r} does not exist as tensor code; these do: {known}.{hint}"
            " Set loop='host' or 'auto', or write it as an environment.spec.TensorEnvironment."
        )
    if tensor_env is not None and cfg.loop != "host":
        return DeviceWorld(tensor_env, cfg)
    return HostWorld(env, cfg)


def evaluation_world(cfg: RunConfig, env: Any, trained: DeviceWorld | HostWorld) -> Any:
    """Where evaluations play, if not where training does; both must look alike to the agent."""
    world = choose_world(dataclasses.replace(for_one_copy(cfg), loop="auto"), env)
    if isinstance(world, HostWorld):
        for group in world.groups:  # evaluations make their own
            group.close()
    if (world.spec.obs, world.spec.action) != (trained.spec.obs, trained.spec.action):
        raise ValueError(
            f"evaluation_env has observations {world.spec.obs} and actions {world.spec.action}, "
            f"expected those of the environment that trains: {trained.spec.obs} and "
            f"{trained.spec.action}."
        )
    return world


def for_one_copy(cfg: RunConfig) -> RunConfig:
    """The settings for one environment copy that plays and does not learn."""
    one: dict[str, Any] = {"num_envs": 1, "async_envs": False}
    if isinstance(cfg, PPOConfig):  # the rollout of one copy need not be divisible
        one |= {"num_minibatches": 1, "gradient_accumulation": 1, "normalize_advantage": False}
    return dataclasses.replace(cfg, **one)
