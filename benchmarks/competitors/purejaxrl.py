"""DQN and PPO, also with a memory, of PureJaxRL on gymnax's CartPole-v1: a loop in one JAX program.

PureJaxRL is not a package. Clone it (https://github.com/luchris429/purejaxrl), install what its
files import (jax, flax, optax, chex, gymnax; flashbax for DQN, distrax for PPO; no wandb) and name
the clone with `--checkout`; its `make_train` is imported from there and runs as it is.

It was written for older versions of its dependencies. Some names are filled in around it, none of
which changes the work: empty modules for `wandb`, `brax` and `navix` where those are missing (the
first only logs, and is off; the others are imported for environments other than this one),
`jax.tree_map` (renamed to `jax.tree.map`), the single `done` that gymnax 1.0 split in two, and
`flax.linen.GRUCell` without its number of units, which its first state used to say.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import pathlib
import subprocess
import sys
import time
import types
from collections.abc import Callable, Mapping
from typing import NamedTuple

from kytolly.benchmarks.competitors.rejax import one_done
from kytolly.benchmarks.program import (
    Program,
    Result,
    Span,
    make_result,
    refuse,
    require,
    run_programs,
    versions,
)
from kytolly.benchmarks.settings import (
    ONE_AGENT,
    Agents,
    DQNSettings,
    PPOSettings,
    RecurrentSettings,
)
from kytolly.config.fields import setting

URL = "https://github.com/luchris429/purejaxrl"
HIDDEN = {"dqn": (120, 84), "ppo": (64, 64), "ppo_rnn": (128, 128)}  # written into its networks
MEMORY = ("gru", 128)
PPO_DISTRIBUTIONS = ("jax", "jaxlib", "gymnax", "flax", "optax", "distrax")
DISTRIBUTIONS = {
    "dqn": ("jax", "jaxlib", "gymnax", "flashbax", "flax", "optax"),
    "ppo": PPO_DISTRIBUTIONS,
    "ppo_rnn": PPO_DISTRIBUTIONS,
}
UNUSED = {  # what it imports without need, and the names it takes from there
    "wandb": (),
    "brax": (),
    "brax.envs": (),
    "brax.envs.wrappers": (),
    "brax.envs.wrappers.training": ("EpisodeWrapper", "AutoResetWrapper"),
    "navix": (),
}


@dataclasses.dataclass(frozen=True)
class Clone:
    """PureJaxRL on this machine."""

    checkout: pathlib.Path = setting(dataclasses.MISSING, f"folder of a clone of {URL}")


class Built(NamedTuple):
    """A module of theirs, and the argument of its `make_train`."""

    module: types.ModuleType
    config: dict[str, object]


def load(checkout: pathlib.Path, name: str, hidden: tuple[int, ...]) -> types.ModuleType:
    """Import `dqn`, `ppo` or `ppo_rnn` from a clone; refuse other hidden layers than it has."""
    given, expected = (",".join(map(str, units)) for units in (hidden, HIDDEN[name]))
    if given != expected:
        refuse(
            f"--hidden is {given}, but PureJaxRL's network has {expected} units written into it. "
            f"Leave --hidden at {expected}."
        )
    path = checkout / "purejaxrl" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"purejaxrl_{name}_as_published", path)
    if not path.is_file() or spec is None or spec.loader is None:
        refuse(
            f"--checkout {checkout} holds no purejaxrl/{name}.py. Give the folder of a clone of "
            f"{URL}."
        )
    require(*DISTRIBUTIONS[name])
    fill_in_unused()
    sys.path.insert(0, str(path.parent))  # for its `wrappers`
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def fill_in_unused() -> None:
    """Put empty modules where packages are missing, and the name that JAX dropped."""
    (jax,) = require("jax")
    if not hasattr(jax, "tree_map"):
        jax.tree_map = jax.tree.map
    tops = {name.partition(".")[0] for name in UNUSED} - set(sys.modules)
    missing = {name for name in tops if importlib.util.find_spec(name) is None}
    for name, attributes in UNUSED.items():
        parent, _, child = name.rpartition(".")
        if name.partition(".")[0] not in missing:
            continue
        module = types.ModuleType(name)
        for attribute in attributes:
            setattr(module, attribute, None)
        sys.modules[name] = module
        if parent:
            setattr(sys.modules[parent], child, module)


def commit(checkout: pathlib.Path) -> str:
    """The commit of the clone, or `unknown` where git cannot say."""
    command = ["git", "-C", str(checkout), "rev-parse", "HEAD"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def measure(
    name: str,
    make_train: Callable,
    config: dict[str, object],
    settings: DQNSettings | PPOSettings,
    clone: Clone,
    agents: Agents,
    counts: Callable[[dict], tuple[int, int, float]],
    note: str,
) -> Result:
    """Compile the whole loop, call it twice, and time the second call.

    Args:
        name: `dqn`, `ppo` or `ppo_rnn`.
        make_train: PureJaxRL's.
        config: Its argument.
        settings: What was asked for.
        clone: Where PureJaxRL is.
        agents: How many of them train together, by `vmap`.
        counts: Env steps, updates and the last return, of what the loop returns.
        note: What differs from what was asked for.
    """
    (jax,) = require("jax")
    jax.config.update("jax_enable_compilation_cache", False)
    key = jax.random.PRNGKey(settings.seed)
    begin = time.perf_counter()
    train = make_train(config)
    if agents.agents > 1:
        key, train = jax.random.split(key, agents.agents), jax.vmap(train)
    train = jax.jit(train).lower(key).compile()
    compile_seconds = time.perf_counter() - begin

    jax.block_until_ready(train(key))
    with Span() as span:
        out = jax.block_until_ready(train(key))
    env_steps, updates, episode_return = counts(out)
    return make_result(
        name=f"PureJaxRL {name.upper()}",
        versions={"purejaxrl": commit(clone.checkout), **versions(*DISTRIBUTIONS[name])},
        env_steps=env_steps,
        updates=updates,
        span=span,
        compile_seconds=compile_seconds,
        settings={
            **dataclasses.asdict(settings),
            **dataclasses.asdict(agents),
            "episode_return_last": episode_return,
        },
        note=note,
    )


def make_dqn(settings: DQNSettings, clone: Clone) -> Built:
    """Their DQN on CartPole."""
    module = load(clone.checkout, "dqn", settings.hidden)
    outermost = module.LogWrapper
    module.LogWrapper = lambda env: one_done(outermost(env))
    config = {
        "NUM_ENVS": settings.num_envs,
        "BUFFER_SIZE": settings.buffer,
        "BUFFER_BATCH_SIZE": settings.batch_size,
        "TOTAL_TIMESTEPS": settings.env_steps + settings.warmup_env_steps,
        "EPSILON_START": 1.0,
        "EPSILON_FINISH": settings.epsilon_final,
        "EPSILON_ANNEAL_TIME": settings.warmup_env_steps,
        "TARGET_UPDATE_INTERVAL": settings.target_sync_env_steps,
        "LR": settings.learning_rate,
        "LEARNING_STARTS": settings.warmup_env_steps,
        "TRAINING_INTERVAL": settings.train_interval,
        "LR_LINEAR_DECAY": False,
        "GAMMA": settings.gamma,
        "TAU": 1.0,
        "ENV_NAME": "CartPole-v1",
        "WANDB_MODE": "disabled",
    }
    return Built(module, config)


def run_dqn(settings: DQNSettings, clone: Clone, agents: Agents = ONE_AGENT) -> Result:
    """DQN on CartPole."""
    module, config = make_dqn(settings, clone)
    note = (
        "Off: wandb. Its own: squared loss, no gradient clipping, the observation after an "
        "episode's end is the next episode's first. Timed: the second call of the compiled loop "
        f"from its start, the {settings.warmup_env_steps} env steps of warm-up without an update "
        "included (to its advantage)."
    )

    def counts(out: Mapping) -> tuple[int, int, float]:
        state = out["runner_state"][0]
        returns = out["metrics"]["returns"][..., -1]
        return int(state.timesteps.sum()), int(state.n_updates.sum()), float(returns.mean())

    return measure("dqn", module.make_train, config, settings, clone, agents, counts, note)


def make_ppo(settings: PPOSettings, clone: Clone) -> Built:
    """Their PPO on CartPole, with a memory where the settings have one."""
    is_recurrent = isinstance(settings, RecurrentSettings)
    if is_recurrent:
        check_memory(settings)
    module = load(clone.checkout, "ppo_rnn" if is_recurrent else "ppo", settings.hidden)
    if is_recurrent:
        module.nn = with_gru_cell(module.nn, settings.memory_units)
    innermost = module.FlattenObservationWrapper
    module.FlattenObservationWrapper = lambda env: innermost(one_done(env))
    config = {
        "LR": settings.learning_rate,
        "NUM_ENVS": settings.num_envs,
        "NUM_STEPS": settings.num_steps,
        "TOTAL_TIMESTEPS": settings.whole_env_steps,
        "UPDATE_EPOCHS": settings.epochs,
        "NUM_MINIBATCHES": settings.minibatches,
        "GAMMA": settings.gamma,
        "GAE_LAMBDA": settings.gae_lambda,
        "CLIP_EPS": settings.clip,
        "ENT_COEF": settings.entropy_coef,
        "VF_COEF": settings.value_coef,
        "MAX_GRAD_NORM": settings.max_grad_norm,
        "ACTIVATION": settings.activation,
        "ENV_NAME": "CartPole-v1",
        "ANNEAL_LR": False,
        "DEBUG": False,
    }
    return Built(module, config)


def check_memory(settings: RecurrentSettings) -> None:
    """Refuse another memory or activation than those that are written into their network."""
    if (settings.memory, settings.memory_units) != MEMORY or settings.activation != "relu":
        refuse(
            f"--memory is {settings.memory} of {settings.memory_units} units and --activation "
            f"{settings.activation}, but PureJaxRL's network has a {MEMORY[0]} of {MEMORY[1]} "
            "units and relu written into it. Leave these as they are."
        )


def with_gru_cell(linen: types.ModuleType, units: int) -> types.SimpleNamespace:
    """`flax.linen` with a `GRUCell` that is made, and begins, as flax had it in 2023."""
    (numpy,) = require("jax.numpy")

    def gru_cell() -> object:
        return linen.GRUCell(features=units)

    def initialize_carry(key: object, batch: tuple[int, ...], size: int) -> object:
        return numpy.zeros((*batch, size))

    gru_cell.initialize_carry = initialize_carry
    names = {name: getattr(linen, name) for name in dir(linen)}
    return types.SimpleNamespace(**{**names, "GRUCell": gru_cell})


def run_ppo(settings: PPOSettings, clone: Clone, agents: Agents = ONE_AGENT) -> Result:
    """PPO on CartPole."""
    module, config = make_ppo(settings, clone)
    note = (
        "Off: printing (DEBUG), annealing of the learning rate. Its own: the value is clipped, the "
        "time limit counts as a termination, observations and rewards are not normalized, and the "
        "return and length of every env step are kept and returned. Timed: the second call of the "
        "compiled loop, from its start, the drawing of weights included."
    )

    def counts(out: Mapping) -> tuple[int, int, float]:
        state, env_state = out["runner_state"][:2]
        returns = env_state.returned_episode_returns
        return int(env_state.timestep.sum()), int(state.step.sum()), float(returns.mean())

    name = "ppo_rnn" if isinstance(settings, RecurrentSettings) else "ppo"
    return measure(name, module.make_train, config, settings, clone, agents, counts, note)


PROGRAMS = {
    "dqn": Program(run_dqn, (DQNSettings, Clone, Agents), {"env_steps": 200_000}),
    "ppo": Program(run_ppo, (PPOSettings, Clone, Agents), {"env_steps": 200_000}),
    "ppo-recurrent": Program(run_ppo, (RecurrentSettings, Clone, Agents), {"env_steps": 200_000}),
}

if __name__ == "__main__":
    sys.exit(run_programs(PROGRAMS, __doc__))
