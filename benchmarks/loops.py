"""This project's loops, measured the way the competitors are.

The loops run as `kytolly train` uses them, without evaluation, logging and checkpoints. The clock
starts when the program is compiled and the untimed env steps are over: DQN's warm-up with random
steps and `SETTLING_UPDATES` updates, or `SETTLING_ROLLOUTS` rollouts with theirs::

    python -m kytolly.benchmarks.loops dqn --env-steps 200000
    python -m kytolly.benchmarks.loops dqn --loop host --env-steps 50000
    python -m kytolly.benchmarks.loops ppo --num-envs 2048 --num-steps 16 --minibatches 32
    python -m kytolly.benchmarks.loops ppo --agents 64 --env-steps 20480
    python -m kytolly.benchmarks.loops ppo-recurrent --memory lru
    python -m kytolly.benchmarks.loops pqn --env-steps 400000
    python -m kytolly.benchmarks.loops atari --env-steps 2000
    python -m kytolly.benchmarks.loops update --updates 20000

PQN plays MinAtar's Breakout by the rules of gymnax: three actions, none of them sticky, and 1,000
env steps at most. Atari's Pong is preprocessed in the usual way, and NatureCNN learns from 32 rows
after every 4 env steps. `update` is the counterpart of `competitors.jax_update`: learning steps
alone, in one compiled while loop, each with rows drawn anew from a full buffer.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import itertools
import os
import sys
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from kytolly.benchmarks.program import (
    Program,
    Result,
    Span,
    make_result,
    refuse,
    run_programs,
    versions,
)
from kytolly.benchmarks.settings import (
    ATARI,
    ATARI_GAME,
    ONE_AGENT,
    Agents,
    AnySettings,
    DQNSettings,
    PPOSettings,
    PQNSettings,
    RecurrentSettings,
    RolloutSettings,
)
from kytolly.config.fields import setting

if TYPE_CHECKING:
    import tensorflow as tf

    from kytolly.agent.kytolly import KytollyAgent
    from kytolly.config.dqn import DQNConfig
    from kytolly.config.ppo import PPOConfig
    from kytolly.config.pqn import PQNConfig
    from kytolly.loop.learn import LoopMetrics

CARTPOLE, BREAKOUT = "CartPole-v1", "MinAtar/Breakout-v1"
BREAKOUT_RULES = {"sticky_actions": 0.0, "max_episode_steps": 1_000}
SETTLING_UPDATES = 100  # as for Stable-Baselines3; the first calls allocate
SETTLING_ROLLOUTS = 5
UPDATE_FIELDS = frozenset(
    {"batch_size", "buffer", "hidden", "learning_rate", "target_sync_updates", "gamma",
     "max_grad_norm", "seed"}
)  # fmt: skip


@dataclasses.dataclass(frozen=True, kw_only=True)
class LoopOptions:
    """The way in which a loop is measured."""

    loop: Literal["device", "host"] = setting("device", "loop to measure")
    calls: int = setting(1, "calls of the program for the timed env steps")
    digests: bool = setting(False, "add checksums of everything that the run computed")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Variant:
    """A member of the DQN family."""

    algorithm: str = setting("dqn", "one of the DQN family")
    switch: str | None = setting(None, "setting to turn on")
    atoms: int | None = setting(None, "num_atoms of C51 and Rainbow")


@dataclasses.dataclass(frozen=True, kw_only=True)
class PPOVariant:
    """A member of the PPO family."""

    algorithm: Literal["ppo", "ppo-kl"] = setting("ppo", "ppo or ppo-kl")


@dataclasses.dataclass(frozen=True)
class UpdateOptions:
    """Learning steps alone."""

    updates: int = setting(20_000, "updates to time")

    def __post_init__(self) -> None:
        """Refuse a measurement of nothing."""
        if self.updates < 1:
            raise ValueError(f"--updates is {self.updates}, expected at least 1.")


class Work(NamedTuple):
    """The work of one algorithm.

    Attributes:
        name: The algorithm, for the reader.
        settings: What the command line says.
        cfg: The config that does it.
        untimed: Env steps before the clock starts.
        note: What is special about the timed stretch.
        env: Gymnasium id.
    """

    name: str
    settings: AnySettings
    cfg: DQNConfig | PPOConfig | PQNConfig
    untimed: int
    note: str = ""
    env: str = CARTPOLE


# --- the work ------------------------------------------------------------------------------


def dqn_work(settings: DQNSettings, variant: Variant = Variant()) -> Work:
    """DQN or one of its family on CartPole."""
    cfg = dqn_config(settings, variant)
    return Work(
        name="DQN" if cfg.algorithm == "dqn" else cfg.algorithm,
        settings=settings,
        cfg=cfg,
        untimed=untimed_env_steps(settings),
        note=", with exploration at its final value",
    )


def untimed_env_steps(settings: DQNSettings) -> int:
    """Env steps of DQN before the clock starts."""
    return settings.warmup_env_steps + SETTLING_UPDATES * settings.train_interval


def dqn_config(settings: DQNSettings, variant: Variant = Variant()) -> DQNConfig:
    """The config that does what the competitors are asked to do."""
    from kytolly.agent.algorithms import make_config

    changes: dict[str, object] = {"algorithm": variant.algorithm}
    if variant.switch is not None:
        changes[variant.switch] = True
    if variant.atoms is not None:
        changes["num_atoms"] = variant.atoms
    return make_config(
        {
            "total_env_steps": untimed_env_steps(settings) + settings.env_steps,
            "num_envs": settings.num_envs,
            "seed": settings.seed,
            "hidden_units": settings.hidden,
            "layer_norm": False,
            "learning_rate": settings.learning_rate,
            "gamma": settings.gamma,
            "n_step": 1,
            "batch_size": settings.batch_size,
            "replay_capacity": settings.buffer,
            "warmup_env_steps": settings.warmup_env_steps,
            "train_interval_env_steps": settings.train_interval,
            "updates_per_interval": 1,
            "target_sync_updates": settings.target_sync_updates,
            "target_mix": 1.0,
            "max_grad_norm": settings.max_grad_norm,
            "epsilon_start": settings.epsilon_final,  # the warm-up explores with 1
            "epsilon_final": settings.epsilon_final,
            "exploration_repeat": 1,
            **changes,
        }
    )


def atari_work(settings: DQNSettings) -> Work:
    """DQN on Pong, which keeps its learning rate."""
    work = dqn_work(settings)
    cfg = dataclasses.replace(work.cfg, network="cnn", learning_rate_final=None)
    return work._replace(cfg=cfg, env=ATARI_GAME, note="")


def rollout_settings(settings: RolloutSettings) -> dict[str, Any]:
    """The settings that PPO and PQN share."""
    return {
        "total_env_steps": settings.whole_env_steps,
        "num_envs": settings.num_envs,
        "rollout_steps": settings.num_steps,
        "epochs": settings.epochs,
        "num_minibatches": settings.minibatches,
        "hidden_units": settings.hidden,
        "learning_rate": settings.learning_rate,
        "gamma": settings.gamma,
        "seed": settings.seed,
    }


def ppo_work(settings: PPOSettings, variant: PPOVariant = PPOVariant()) -> Work:
    """PPO, or PPO with a penalty on the divergence from where it began, on CartPole."""
    from kytolly.agent.algorithms import part

    cfg: PPOConfig = part(variant.algorithm, "config")(
        **rollout_settings(settings),
        activation=settings.activation,
        gae_lambda=settings.gae_lambda,
        gae_lambda_value=None,
        clip_range=settings.clip,
        entropy_coef=settings.entropy_coef,
        value_coef=settings.value_coef,
        max_grad_norm=settings.max_grad_norm,
        normalize_rewards=False,
        learning_rate_final=None,
        average_share=0.0,
    )
    untimed = SETTLING_ROLLOUTS * settings.env_steps_per_iteration
    return Work("PPO" if cfg.algorithm == "ppo" else cfg.algorithm, settings, cfg, untimed)


def recurrent_work(settings: RecurrentSettings) -> Work:
    """PPO with a memory on CartPole, of which it sees everything: what is measured is the work."""
    work = ppo_work(settings)
    memory = {"memory": settings.memory, "memory_units": settings.memory_units}
    cfg = dataclasses.replace(work.cfg, **memory, memory_place="after")
    return work._replace(name=f"PPO with a memory ({settings.memory})", cfg=cfg)


def pqn_work(settings: PQNSettings) -> Work:
    """PQN on Breakout."""
    from kytolly.config.pqn import PQNConfig

    cfg = PQNConfig(
        **rollout_settings(settings),
        env_kwargs=BREAKOUT_RULES,
        learning_rate_final=None,
        td_lambda=settings.td_lambda,
        max_grad_norm=settings.max_grad_norm,
        epsilon_final=settings.epsilon_final,
        exploration_env_steps=max(1, settings.whole_env_steps // 10),
        normalize_rewards=False,
    )
    untimed = SETTLING_ROLLOUTS * settings.env_steps_per_iteration
    return Work("PQN", settings, cfg, untimed, env=BREAKOUT)


# --- measuring -----------------------------------------------------------------------------


def measure(work: Work, options: LoopOptions, agents: Agents = ONE_AGENT) -> Result:
    """Train, time the steady state, and return the result."""
    from kytolly.benchmarks import core  # loads TensorFlow before the clock starts

    begin = time.perf_counter()
    loop, agent = core.make_loop(work.cfg, work.env, options.loop)  # and draws the weights
    train = core.train_function(loop, agents.agents)
    train(0)
    compile_seconds = time.perf_counter() - begin
    train(work.untimed)
    before = counts(agent)
    pieces = steps_per_call(work.settings, options.calls)
    with Span() as span:
        parts = [train(steps) for steps in pieces]
    after = counts(agent)
    metrics = functools.reduce(lambda sums, part: sums.plus(part), parts)
    loop.close()
    return make_result(
        name=f"Kytolly {work.name}, {options.loop} loop",
        versions=versions("tensorflow", "keras", "numpy", "gymnasium"),
        env_steps=agents.agents * (after[0] - before[0]),
        updates=agents.agents * (after[1] - before[1]),
        span=span,
        compile_seconds=compile_seconds,
        peak_memory_mib=peak_memory_mib(),
        settings={
            **dataclasses.asdict(work.settings),
            "calls": options.calls,
            **dataclasses.asdict(agents),
            "episodes": int(metrics.episodes),
        },
        note=(
            "Off: evaluation, logging, checkpoints, the compile cache. Timed after "
            f"{before[0]} env steps{work.note}."
        ),
        **({"digests": make_digests(agent, metrics)} if options.digests else {}),
    )


def measure_updates(settings: DQNSettings, options: UpdateOptions) -> Result:
    """Time the second call of the compiled loop of updates, and return the result."""
    from kytolly.benchmarks import core

    learner = core.make_learner(dqn_config(settings))
    begin = time.perf_counter()
    program = core.fused_updates(learner, True)
    program(0)
    compile_seconds = time.perf_counter() - begin
    program(options.updates)
    before = counts(learner.agent)[1]
    with Span() as span:
        loss = program(options.updates)
    counted = counts(learner.agent)[1] - before
    return make_result(
        name="Kytolly fused update",
        versions=versions("tensorflow", "keras", "numpy"),
        env_steps=None,
        updates=counted,
        span=span,
        compile_seconds=compile_seconds,
        microseconds_per_update=span.wall_seconds / counted * 1e6,
        cpu_microseconds_per_update=span.cpu_seconds / counted * 1e6,
        loss_last=loss,
        peak_memory_mib=peak_memory_mib(),
        settings={name: getattr(settings, name) for name in sorted(UPDATE_FIELDS)},
        note=(
            "No environment. Random rows drawn and gathered anew for each update, and, which the "
            f"competitor leaves out, a target copy every {settings.target_sync_updates} updates. "
            "Timed: the second call of the compiled loop, which goes on from the first."
        ),
    )


def steps_per_call(settings: AnySettings, calls: int) -> list[int]:
    """Env steps of each call, in whole iterations: the same sum for any `calls`.

    Calls of which some would measure nothing end the program.
    """
    size = settings.env_steps_per_iteration
    iterations = -(-settings.env_steps // size)
    if not 1 <= calls <= iterations:
        refuse(
            f"--calls is {calls}, expected 1 to {iterations}: a call is whole iterations of "
            f"{size} env steps. Lower --calls or raise --env-steps."
        )
    edges = [iterations * i // calls for i in range(calls + 1)]
    return [(b - a) * size for a, b in itertools.pairwise(edges)]


def counts(agent: KytollyAgent) -> tuple[int, int]:
    """Env steps and updates that the agent itself has counted."""
    return int(agent.env_steps.numpy()), int(agent.policy.updates.numpy())


def make_digests(agent: KytollyAgent, metrics: LoopMetrics) -> dict[str, str]:
    """Checksums of a run's state by part, and of its averaged metrics, to the last bit."""
    from kytolly.benchmarks import core

    parts = core.state_by_part(agent)
    digests = {
        name: digest(bytes_of(variable) for variable in part) for name, part in parts.items()
    }
    row = sorted(metrics.averages(agent).items())
    return {**digests, "metrics": digest([repr(row).encode()])}


def digest(pieces: Iterable[bytes]) -> str:
    """SHA-256 over pieces of bytes."""
    total = hashlib.sha256()
    for piece in pieces:
        total.update(piece)
    return total.hexdigest()


def bytes_of(variable: tf.Variable) -> bytes:
    """The bytes of a TensorFlow or Keras variable."""
    import numpy as np

    return np.asarray(variable).tobytes()


def peak_memory_mib() -> float | None:
    """Peak memory of this process in MiB; None where the platform does not say."""
    try:
        import resource
    except ModuleNotFoundError:  # Windows
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 2**20 if sys.platform == "darwin" else peak / 2**10


def configure_without_cache() -> None:
    """Set TensorFlow up as `kytolly train` does, but for the compile cache: compiling is timed."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    from kytolly.machine.configure import configure_gpu_optimization

    configure_gpu_optimization(compile_cache=False, verbose=False)


# --- the programs --------------------------------------------------------------------------


def run_loop(
    make_work: Callable[..., Work],
    settings: AnySettings,
    options: LoopOptions,
    agents: Agents = ONE_AGENT,
    *more: Variant | PPOVariant,
) -> Result:
    """Configure TensorFlow and measure a loop; `make_work` gets the settings and `more`."""
    steps_per_call(settings, options.calls)  # refuses before TensorFlow is loaded
    if agents.agents > 1 and options.loop == "host":
        refuse("--agents goes with the device loop: leave --loop host or --agents out.")
    configure_without_cache()
    return measure(make_work(settings, *more), options, agents)


def run_atari(settings: DQNSettings) -> Result:
    """DQN on Pong in the host loop."""
    return run_loop(atari_work, settings, LoopOptions(loop="host"))


def run_updates(settings: DQNSettings, options: UpdateOptions) -> Result:
    """Configure TensorFlow and measure updates."""
    configure_without_cache()
    return measure_updates(settings, options)


PROGRAMS = {
    "dqn": Program(
        functools.partial(run_loop, dqn_work),
        (DQNSettings, LoopOptions, Agents, Variant),
        {"env_steps": 200_000},
    ),
    "ppo": Program(
        functools.partial(run_loop, ppo_work),
        (PPOSettings, LoopOptions, Agents, PPOVariant),
        {"env_steps": 1_000_000},
    ),
    "ppo-recurrent": Program(
        functools.partial(run_loop, recurrent_work),
        (RecurrentSettings, LoopOptions, Agents),
        {"env_steps": 200_000},
    ),
    "pqn": Program(
        functools.partial(run_loop, pqn_work),
        (PQNSettings, LoopOptions, Agents),
        {"env_steps": 400_000},
    ),
    "atari": Program(run_atari, (DQNSettings,), ATARI),
    "update": Program(
        run_updates,
        (DQNSettings, UpdateOptions),
        unused=frozenset(f.name for f in dataclasses.fields(DQNSettings)) - UPDATE_FIELDS,
    ),
}

if __name__ == "__main__":
    sys.exit(run_programs(PROGRAMS, __doc__))
