"""Gymnasium environments for training, and others like them for evaluation."""

from __future__ import annotations

import contextlib
import copy
import functools
import math
import time
from collections.abc import Callable, Iterator
from typing import cast

import gymnasium
import keras
import numpy as np

from kytolly.agent.acting import HostActor
from kytolly.agent.algorithms import part
from kytolly.agent.kytolly import KytollyAgent
from kytolly.agent.randomness import EVALUATION, stream_seed
from kytolly.callback.base import Evaluation
from kytolly.config.fields import Default
from kytolly.config.run import RunConfig
from kytolly.environment.gym.adapter import make_host_env, make_host_groups
from kytolly.environment.gym.make import make_env, registered_spec
from kytolly.environment.gym.process_pool import ProcessPool
from kytolly.environment.gym.remembering import RememberingHostEnv, remembering
from kytolly.environment.gym.step import EnvFactory, GymSource, HostEnv
from kytolly.environment.gym.vector import HostVector
from kytolly.environment.gym.wrapped import WrappedSource
from kytolly.environment.gym.wrappers import (
    changes_rewards,
    copy_statistics,
    warn_of_wrappers,
    without_reward_wrappers,
)
from kytolly.loop.collector import Collector
from kytolly.loop.host import HostLoop
from kytolly.loop.limits import EpisodeLimit

EVALUATION_ENVS = 8


class HostEnvRunner:
    """Gymnasium environments, stepped on the host."""

    loop_name = "host"

    def __init__(self, env: GymSource, cfg: RunConfig):
        self.cfg = cfg
        self.evaluation_source = evaluation_source(env)
        self.masks = cfg.action_masks and part(cfg.algorithm, "policy").takes_masks
        self.collector: type[Collector] = Collector
        if cfg.actors:
            from kytolly.loop.actors import ActorCollector, ActorEnvs

            self.collector = cast(type[Collector], ActorCollector)
            self.groups = [cast(HostEnv, ActorEnvs(env, cfg, cfg.num_envs, self.masks))]
        else:
            self.groups = self._make_groups(env)
        self._loop: HostLoop | None = None  # the newest
        first = self.groups[0]
        self.spec = first.spec
        self.num_envs = sum(group.num_envs for group in self.groups)
        inner: object = first
        if isinstance(first, RememberingHostEnv):
            inner = first.env
        processes = inner.processes if isinstance(inner, HostVector) else None
        self.process_pool: ProcessPool | None = None  # in which evaluations play
        if processes is not None:
            other = env.whole_games() if isinstance(env, WrappedSource) else None
            self.process_pool = ProcessPool(processes, other)
        self.given = first.given  # whose wrappers evaluations look at
        if self.given is not None:
            warn_of_wrappers(self.given, self.spec.name)

    def _make_groups(self, env: GymSource) -> list[HostEnv]:
        """The environments in this process, or each in one of its own."""
        cfg, is_given = self.cfg, not isinstance(self.cfg.num_envs, Default)
        # Two groups take turns where learning does not go on beside collecting.
        groups = 1 if part(cfg.algorithm, "memory").allows_lag else 2
        made = make_host_groups(
            env,
            cfg.num_envs if is_given else None,
            groups,
            otherwise=cfg.num_envs,
            seed=cfg.seed,
            async_envs=cfg.async_envs,
            threads=cfg.env_threads,
            masks=self.masks,
            timeout_seconds=cfg.env_timeout_seconds,
            restart=cfg.on_env_fault == "restart",
        )
        return [remembering(group, cfg.state_units, cfg.memory_inputs) for group in made]

    def loop(self, agent: KytollyAgent, device: str | None) -> HostLoop:
        """The loop that trains; it closes the environments that it steps."""
        self._loop = HostLoop(agent, self.groups, device, self.collector)
        self.groups = []
        return self._loop

    def reclaim(self) -> None:
        """Take back the environments of the newest loop, which has ended, for another one."""
        if self._loop is not None:
            self.groups = self._loop.release()

    def evaluator(
        self,
        network: keras.Model,
        episodes: int,
        seed: int,
        *,
        xla: bool,
        device: str | None,
        step_limit: int | None = None,
    ) -> HostEvaluator:
        """Plays episodes in environments apart from those that train."""
        distribution = part(self.cfg.algorithm, "policy").distribution_for(self.cfg, self.spec)
        actor = HostActor(network, distribution, self.spec.obs)
        num_envs: int | None = self.num_envs if self.num_envs > 1 else None
        if isinstance(self.evaluation_source, str):
            num_envs = min(episodes, EVALUATION_ENVS)

        source = self.evaluation_source
        if self.given is not None and changes_rewards(self.given):
            source = functools.partial(make_raw, self.evaluation_source)

        def environments(seed: int) -> contextlib.AbstractContextManager[HostEnv]:
            actor.refresh()
            if self.process_pool is not None:
                return self.process_pool.environments(num_envs or 1, seed)
            env = make_host_env(
                source,
                num_envs,
                seed=seed,
                masks=self.masks,
                timeout_seconds=self.cfg.env_timeout_seconds,
                restart=self.cfg.on_env_fault == "restart",
                threads=self.cfg.env_threads,
            )
            if env.given is not None:
                copy_statistics(self.given, env.given)
            return contextlib.closing(env)

        @contextlib.contextmanager
        def with_memory(seed: int) -> Iterator[HostEnv]:
            with environments(seed) as env:
                yield remembering(env, self.cfg.state_units, self.cfg.memory_inputs)

        limit = EpisodeLimit(self.spec, step_limit)
        return HostEvaluator(actor.greedy, with_memory, episodes, seed, limit)

    def close(self) -> None:
        """Close the environments that were made here, but for those of a loop."""
        for group in self.groups:
            group.close()
        self.groups = []
        if self.process_pool is not None:
            self.process_pool.close()


class HostEvaluator:
    """Plays episodes in Gymnasium environments, each environment its share of them.

    Args:
        act: Function from observations [E, *obs] to actions [E].
        environments: Function that makes environments from a seed, and closes them after a block.
        episodes: Episodes in all.
        seed: Seed of the episodes, together with their number.
        limit: The longest episode.
    """

    def __init__(
        self,
        act: Callable,
        environments: Callable[[int], contextlib.AbstractContextManager[HostEnv]],
        episodes: int,
        seed: int,
        limit: EpisodeLimit,
    ):
        self.act, self.environments, self.limit = act, environments, limit
        self.episodes, self.seed = episodes, seed

    def evaluate(self, number: int = 0, deadline: float = math.inf) -> Evaluation:
        """The returns and lengths of `episodes` episodes, other ones for each `number`."""
        with self.environments(stream_seed(self.seed, EVALUATION, number)) as env:
            return self._play(env, deadline)

    def _play(self, env: HostEnv, deadline: float) -> Evaluation:
        rest = np.arange(env.num_envs) < self.episodes % env.num_envs
        quota = self.episodes // env.num_envs + rest
        obs, played, cut, late = env.reset(), [], False, False
        now = np.zeros([env.num_envs, 2])  # return and length of each episode that goes on
        while quota.any() and not late:
            step = env.step(self.act(obs))
            obs = step.obs
            now[:, 0] += step.reward
            now[:, 1] += step.valid
            over = step.ended | (now[:, 1] >= self.limit.env_steps)
            late = time.perf_counter() > deadline
            if not over.any():
                continue
            for index in np.flatnonzero(over & (quota > 0)):
                quota[index] -= 1
                end = (step.episode_return[index], step.episode_length[index])
                played.append(end if step.ended[index] else tuple(now[index]))
            now[over] = 0.0
            if (over & ~step.ended).any():
                obs, cut = env.reset(), True
                now[:] = 0.0
        if cut:
            self.limit.warn_of_cut()
        late = bool(quota.any())
        if late:
            from kytolly.loop.late_evaluation import warn_of_time

            warn_of_time(env.spec.name, len(played), self.episodes)
        returns, lengths = np.array(played or now[quota > 0], np.float64).T
        return Evaluation.of_episodes(returns, lengths, late, self.limit.env_steps)


def make_raw(source: str | EnvFactory) -> gymnasium.Env | gymnasium.vector.VectorEnv:
    """An environment of an id or a function, without Gymnasium's wrappers of rewards."""
    env = make_env(registered_spec(source)) if isinstance(source, str) else source()
    return without_reward_wrappers(env)


def evaluation_source(env: GymSource) -> str | EnvFactory:
    """An id or a function that makes environments like `env`, apart from `env` itself."""
    if isinstance(env, WrappedSource):
        return env.whole_games()
    is_env = isinstance(env, (gymnasium.Env, gymnasium.vector.VectorEnv))
    if isinstance(env, str) or (callable(env) and not is_env):
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
