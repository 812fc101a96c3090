"""PureJaxRL's PPO on gymnax's CartPole-v1: the whole loop in one JAX program.

PureJaxRL is not a package. Clone it (https://github.com/luchris429/purejaxrl), install what its
`ppo.py` imports (jax, flax, optax, chex, distrax, gymnax) and name the clone with `--checkout`;
its `make_train` is imported from there and runs as it is.

Two things are filled in around it, neither of which changes the work: empty modules for `brax`
and `navix` where they are missing (its wrappers import them for environments other than this
one), and the single `done` that gymnax 1.0 split in two.
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
from kytolly.benchmarks.competitors.settings import PPOSettings

HIDDEN = (64, 64)  # written into PureJaxRL's network
DISTRIBUTIONS = ("jax", "jaxlib", "gymnax", "flax", "optax", "distrax")
UNUSED = {  # what its wrappers import for other environments, and the names they take from there
    "brax": (),
    "brax.envs": (),
    "brax.envs.wrappers": (),
    "brax.envs.wrappers.training": ("EpisodeWrapper", "AutoResetWrapper"),
    "navix": (),
}

NOTE = (
    "Off: printing (DEBUG), annealing of the learning rate. Its own: the value is clipped, the "
    "time limit counts as a termination, observations and rewards are not normalized, and the "
    "return and length of every env step are kept and returned. Timed: the second call of the "
    "compiled loop, from its start, the drawing of weights included."
)


def fill_in_unused() -> None:
    """Put empty modules where `brax` and `navix` would be, if they are not installed."""
    packages = [name for name in ("brax", "navix") if name not in sys.modules]
    missing = {name for name in packages if importlib.util.find_spec(name) is None}
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


def run(settings: PPOSettings, checkout: pathlib.Path) -> dict[str, Any]:
    """Train, time the second call of the compiled loop, and return the result.

    Args:
        settings: What to run. `hidden` must be `HIDDEN`.
        checkout: Folder of a clone of PureJaxRL.
    """
    check_hidden(settings, HIDDEN)
    module = load(checkout, "ppo", DISTRIBUTIONS, fill_in_unused)
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
    out, span, compile_seconds = time_second_call(module.make_train, config, settings.seed)
    state, env_state = out["runner_state"][:2]
    return make_result(
        name="PureJaxRL PPO",
        versions={"purejaxrl": commit(checkout), **versions(*DISTRIBUTIONS)},
        env_steps=int(env_state.timestep.sum()),
        updates=int(state.step),
        span=span,
        compile_seconds=compile_seconds,
        settings={
            **dataclasses.asdict(settings),
            "episode_return_last": float(env_state.returned_episode_returns.mean()),
        },
        note=NOTE,
    )


def main(argv: list[str] | None = None) -> int:
    """Run the program."""
    return run_program("purejaxrl_ppo", __doc__, PPOSettings, run, argv)


if __name__ == "__main__":
    sys.exit(main())
