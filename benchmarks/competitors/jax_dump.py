"""Writes a training program of rejax or PureJaxRL as StableHLO, for the GPU's compiler.

    python -m kytolly.benchmarks.competitors.jax_dump --library rejax --row ppo --folder DIR

The program is lowered for CUDA, which draws random numbers in one kernel each; `--platform cpu`
lowers it for the CPU. FILE.npz has its inputs in order, and `env_steps`, which it trains for.
PureJaxRL's first weights are not orthogonal here: that takes LAPACK's QR, which is no kernel.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from kytolly.benchmarks.competitors import purejaxrl, rejax
from kytolly.benchmarks.program import Program, Result, refuse, require, run_program, versions
from kytolly.benchmarks.settings import DQNSettings, PPOSettings
from kytolly.config.fields import setting

ITERATIONS = 1_009  # in a call: no other loop has as many turns
SETTINGS = {
    "ppo": PPOSettings(),
    "ppo-wide": PPOSettings(num_envs=2048, num_steps=16, minibatches=32),
    "dqn": DQNSettings(),
    "dqn-10-envs": DQNSettings(num_envs=10),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class JaxDumpSettings:
    """One program to write."""

    library: Literal["rejax", "purejaxrl"] = setting("rejax", "library")
    row: str = setting("ppo", f"program: {', '.join(SETTINGS)}")
    folder: str = setting(".", "folder that gets the files")
    checkout: str = setting("", "folder of a clone of PureJaxRL")
    platform: Literal["cuda", "cpu"] = setting("cuda", "platform to lower for")
    iterations: int = setting(ITERATIONS, "iterations in a call")


def rejax_program(settings: DQNSettings | PPOSettings) -> tuple[Callable[..., Any], Any]:
    """Their loop without evaluation, and its state at the beginning."""
    (jax,) = require("jax")
    if isinstance(settings, DQNSettings):
        algorithm = rejax.make_dqn(settings)
    else:
        algorithm = rejax.make_ppo(settings)
    algorithm = algorithm.replace(eval_callback=lambda algo, state, rng: ())
    state = jax.jit(algorithm.init_state)(jax.random.PRNGKey(settings.seed))
    return lambda state: algorithm.train(train_state=state)[0], state


def purejaxrl_program(
    settings: DQNSettings | PPOSettings, checkout: str
) -> tuple[Callable[..., Any], Any]:
    """Their loop with the drawing of the weights, and its key."""
    (jax,) = require("jax")
    clone = purejaxrl.Clone(Path(checkout))
    if isinstance(settings, DQNSettings):
        module, config = purejaxrl.make_dqn(settings, clone)
    else:
        module, config = purejaxrl.make_ppo(settings, clone)
        module.orthogonal = lambda scale: jax.nn.initializers.normal(scale / 8)
    return module.make_train(config), jax.random.PRNGKey(settings.seed)


def dump(settings: JaxDumpSettings) -> Result:
    """Write the program and its inputs; returns the sizes of an iteration."""
    jax, np = require("jax", "numpy")
    work = SETTINGS[settings.row]
    per_iteration = work.env_steps_per_iteration
    work = dataclasses.replace(work, env_steps=settings.iterations * per_iteration)
    is_dqn = isinstance(work, DQNSettings)
    turns, untimed = 1, 0
    if settings.library == "rejax":
        function, start = rejax_program(work)
    else:
        function, start = purejaxrl_program(work, settings.checkout)
        if isinstance(work, DQNSettings):  # a turn of its loop is one env step
            turns, untimed = work.train_interval // work.num_envs, work.warmup_env_steps
    traced = jax.jit(function).trace(start)
    lowered = traced.lower(lowering_platforms=(settings.platform,))
    # As text, which other versions of jaxlib can read, too.
    text = lowered.compiler_ir("stablehlo").operation.get_asm(enable_debug_info=True)
    file = Path(settings.folder) / f"{settings.library}-{settings.row}"
    file.write_text(text)
    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(start)]
    counts = {"env_steps": work.env_steps + untimed, "iterations": settings.iterations}
    np.savez(f"{file}.npz", *leaves, **counts)
    return {
        "program": str(file),
        "iterations": settings.iterations * turns + untimed // work.num_envs,
        "turns": turns,
        "env_steps": per_iteration,
        "steps": 1 if is_dqn else work.num_steps,
        "updates": 1 if is_dqn else work.epochs * work.minibatches,
        "versions": versions("jax", "jaxlib", "gymnax", "flax", "optax"),
    }


def run(settings: JaxDumpSettings) -> Result:
    """Write one program."""
    if settings.row not in SETTINGS:
        refuse(f"--row is {settings.row!r}, expected one of {', '.join(SETTINGS)}.")
    return dump(settings)


PROGRAM = Program(run, (JaxDumpSettings,))

if __name__ == "__main__":
    sys.exit(run_program(PROGRAM, __doc__))
