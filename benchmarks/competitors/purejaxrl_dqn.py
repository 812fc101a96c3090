"""PureJaxRL's DQN on gymnax's CartPole-v1: the whole loop in one JAX program.

PureJaxRL is not a package. Clone it (https://github.com/luchris429/purejaxrl), install what its
`dqn.py` imports (jax, flax, optax, chex, gymnax, flashbax; wandb is not needed) and name the
clone with `--checkout`; its `make_train` is imported from there and runs as it is.

`dqn.py` was written for older versions of its dependencies. Three names are filled in around it,
none of which changes the work: an empty `wandb` where that is missing (it only logs, and is off),
`jax.tree_map` (renamed to `jax.tree.map`), and the single `done` that gymnax 1.0 split in two.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib.util
import pathlib
import subprocess
import sys
import time
import types
from typing import Any

from benchmarks.competitors import (
    Settings,
    Span,
    make_parser,
    make_result,
    parse,
    print_result,
    refuse,
    require,
    versions,
)

HIDDEN = (120, 84)  # written into PureJaxRL's network
DISTRIBUTIONS = ("jax", "jaxlib", "gymnax", "flashbax", "flax", "optax")


def load(checkout: pathlib.Path) -> types.ModuleType:
    """Import `dqn.py` from a clone of PureJaxRL, with the three names filled in.

    Args:
        checkout: Folder of the clone.
    """
    path = checkout / "purejaxrl" / "dqn.py"
    spec = importlib.util.spec_from_file_location("purejaxrl_dqn_as_published", path)
    if not path.is_file() or spec is None or spec.loader is None:
        refuse(
            f"--checkout {checkout} holds no purejaxrl/dqn.py. Give the folder of a clone of "
            "https://github.com/luchris429/purejaxrl."
        )
    jax, *_ = require("jax", "gymnax", "flashbax")
    if importlib.util.find_spec("wandb") is None:
        sys.modules.setdefault("wandb", types.ModuleType("wandb"))
    if not hasattr(jax, "tree_map"):
        jax.tree_map = jax.tree.map
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    try:
        from gymnax.wrappers.compat import LegacyStepAPIWrapper
    except ModuleNotFoundError:  # gymnax before 1.0 has one `done` already
        return module
    outermost = module.LogWrapper
    module.LogWrapper = lambda env: LegacyStepAPIWrapper(outermost(env))
    return module


def commit(checkout: pathlib.Path) -> str:
    """Return the commit of the clone, or `unknown` where git cannot say."""
    command = ["git", "-C", str(checkout), "rev-parse", "HEAD"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def run(settings: Settings, checkout: pathlib.Path) -> dict[str, Any]:
    """Train, time the second call of the compiled loop, and return the result.

    Args:
        settings: What to run. `hidden` must be `HIDDEN`.
        checkout: Folder of a clone of PureJaxRL.
    """
    if settings.hidden != HIDDEN:
        refuse(
            f"--hidden is {','.join(map(str, settings.hidden))}, but PureJaxRL's network has 120 "
            "and 84 units written into it. Leave --hidden at 120,84."
        )
    module = load(checkout)
    (jax,) = require("jax")
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
    key = jax.random.PRNGKey(settings.seed)
    begin = time.perf_counter()
    train = jax.jit(module.make_train(config)).lower(key).compile()
    compile_seconds = time.perf_counter() - begin

    jax.block_until_ready(train(key))
    with Span() as span:
        out = jax.block_until_ready(train(key))
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
    parser = make_parser("purejaxrl_dqn", __doc__, env_steps=200_000)
    parser.add_argument(
        "--checkout",
        type=pathlib.Path,
        required=True,
        default=argparse.SUPPRESS,
        help="folder of a clone of https://github.com/luchris429/purejaxrl",
    )
    settings, arguments = parse(parser, argv)
    print_result(run(settings, arguments.checkout))
    return 0


if __name__ == "__main__":
    sys.exit(main())
