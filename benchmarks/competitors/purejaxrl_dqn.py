"""PureJaxRL's DQN on gymnax's CartPole-v1: the whole loop in one JAX program.

PureJaxRL is not a package. Clone it (https://github.com/luchris429/purejaxrl), install what its
`dqn.py` imports (jax, flax, optax, chex, gymnax, flashbax; wandb is not needed) and name the
clone with `--checkout`; its `make_train` is imported from there and runs as it is.

`dqn.py` was written for older versions of its dependencies. Three names are filled in around it,
none of which changes the work: an empty `wandb` where that is missing (it only logs, and is off),
`jax.tree_map` (renamed to `jax.tree.map`), and the single `done` that gymnax 1.0 split in two.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import pathlib
import sys
import types
from typing import Any

from kytolly.benchmarks.competitors import make_result, versions
from kytolly.benchmarks.competitors.packages import one_done
from kytolly.benchmarks.competitors.purejaxrl import (
    check_hidden,
    commit,
    load,
    run_program,
    time_second_call,
)
from kytolly.benchmarks.competitors.settings import Settings

HIDDEN = (120, 84)  # written into PureJaxRL's network
DISTRIBUTIONS = ("jax", "jaxlib", "gymnax", "flashbax", "flax", "optax")


def fill_in() -> None:
    """Put an empty module where `wandb` would be, and the name that JAX dropped."""
    import jax

    if importlib.util.find_spec("wandb") is None:
        sys.modules.setdefault("wandb", types.ModuleType("wandb"))
    if not hasattr(jax, "tree_map"):
        jax.tree_map = jax.tree.map


def run(settings: Settings, checkout: pathlib.Path) -> dict[str, Any]:
    """Train, time the second call of the compiled loop, and return the result.

    Args:
        settings: What to run. `hidden` must be `HIDDEN`.
        checkout: Folder of a clone of PureJaxRL.
    """
    check_hidden(settings, HIDDEN)
    module = load(checkout, "dqn", DISTRIBUTIONS, fill_in)
    outermost = module.LogWrapper
    module.LogWrapper = lambda env: one_done(outermost(env))
    steps = settings.env_steps + settings.warmup_env_steps
    config = {
        "NUM_ENVS": settings.num_envs,
        "BUFFER_SIZE": settings.buffer,
        "BUFFER_BATCH_SIZE": settings.batch_size,
        "TOTAL_TIMESTEPS": steps,
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
    out, span, compile_seconds = time_second_call(module.make_train, config, settings.seed)
    state = out["runner_state"][0]
    return make_result(
        name="PureJaxRL DQN",
        versions={"purejaxrl": commit(checkout), **versions(*DISTRIBUTIONS)},
        env_steps=int(state.timesteps),
        updates=int(state.n_updates),
        span=span,
        compile_seconds=compile_seconds,
        settings={
            **dataclasses.asdict(settings),
            "episode_return_last": float(out["metrics"]["returns"][-1]),
        },
        note=(
            "Off: wandb. Its own: squared loss, no gradient clipping, the observation after an "
            "episode's end is the next episode's first. Timed: the second call of the compiled "
            f"loop from its start, the {settings.warmup_env_steps} env steps of warm-up without "
            "an update included (to its advantage)."
        ),
    )


def main(argv: list[str] | None = None) -> int:
    """Run the program."""
    return run_program("purejaxrl_dqn", __doc__, Settings, run, argv)


if __name__ == "__main__":
    sys.exit(main())
