"""This project's DQN on CartPole-v1, measured the way the competitors are.

The loops as `kytolly train` uses them, without evaluation, logging and checkpoints::

    python -m kytolly.benchmarks.dqn --env-steps 200000
    python -m kytolly.benchmarks.dqn --loop host --env-steps 50000
    python -m kytolly.benchmarks.dqn --update-only --updates 20000

The clock starts when the program is compiled and the warm-up (random steps, then
`SETTLING_UPDATES` updates) is over. `--update-only` is the counterpart of
`kytolly.benchmarks.competitors.jax_update`: learning steps alone, in one compiled while loop, each
with rows drawn anew from a full buffer.
"""

from __future__ import annotations

import sys
import time
from typing import Any

from kytolly.benchmarks.competitors import (
    Span,
    make_parser,
    make_result,
    parse,
    print_result,
    refuse,
    versions,
)
from kytolly.benchmarks.competitors.settings import Settings
from kytolly.benchmarks.loop_timing import (
    Work,
    add_loop_flags,
    check_calls,
    configure_without_cache,
    counts,
    measure,
    peak_memory_mib,
)

SETTLING_UPDATES = 100  # as for Stable-Baselines3; the first calls allocate
UPDATE_FIELDS = ("batch_size", "buffer", "hidden", "learning_rate", "target_sync_updates", "gamma",
                 "max_grad_norm", "seed")  # fmt: skip


def make_config(settings: Settings, **more: Any) -> Any:
    """The config that does what the competitors are asked to do; `more` are other settings."""
    from kytolly.agent.algorithms import make_config

    given = {
        "total_env_steps": settings.env_steps,
        "num_envs": settings.num_envs,
        "seed": settings.seed,
        "hidden_units": settings.hidden,
        "learning_rate": settings.learning_rate,
        "gamma": settings.gamma,
        "n_step": 1,
        "batch_size": settings.batch_size,
        "replay_capacity": settings.buffer,
        "warmup_env_steps": settings.warmup_env_steps,
        "train_interval_env_steps": settings.train_interval,
        "updates_per_interval": 1,
        "target_sync_updates": settings.target_sync_updates,
        "max_grad_norm": settings.max_grad_norm,
        "epsilon_start": settings.epsilon_final,  # the warm-up explores with 1
        "epsilon_final": settings.epsilon_final,
    }
    return make_config({"algorithm": "dqn", **given, **more})


def measure_loop(
    settings: Settings, kind: str, calls: int, digests: bool, **more: Any
) -> dict[str, Any]:
    """Train, time the steady state, and return the result.

    Args:
        settings: What to run.
        kind: "device" or "host".
        calls: Calls of the program that the timed env steps are spread over.
        digests: Add checksums of everything that the run computed.
        more: Settings of the config beside these.
    """
    cfg = make_config(settings, **more)
    work = Work(
        name="DQN" if cfg.algorithm == "dqn" else cfg.algorithm,
        settings=settings,
        cfg=cfg,
        untimed=settings.warmup_env_steps + SETTLING_UPDATES * settings.train_interval,
        note=", with exploration at its final value",
    )
    return measure(work, kind, calls, digests)


def measure_updates(settings: Settings, updates: int) -> dict[str, Any]:
    """Time the second call of the compiled loop of updates, and return the result."""
    from kytolly.benchmarks import core

    agent = core.make_learner(make_config(settings))
    begin = time.perf_counter()
    program = core.fused_updates(agent, True)
    program(0)
    compile_seconds = time.perf_counter() - begin
    program(updates)
    before = counts(agent)[1]
    with Span() as span:
        loss = program(updates)
    counted = counts(agent)[1] - before
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
        settings={name: getattr(settings, name) for name in UPDATE_FIELDS},
        note=(
            "No environment. Random rows drawn and gathered anew for each update, and, which the "
            f"competitor leaves out, a target copy every {settings.target_sync_updates} updates. "
            "Timed: the second call of the compiled loop, which goes on from the first."
        ),
    )


def main(argv: list[str] | None = None) -> int:
    """Run the program."""
    parser = make_parser("dqn", __doc__, env_steps=200_000)
    parser.prog = "python -m kytolly.benchmarks.dqn"
    add_loop_flags(parser)
    parser.add_argument("--update-only", action="store_true", help="time learning steps alone")
    parser.add_argument(
        "--updates", type=int, default=20_000, help="updates to time with --update-only"
    )
    parser.add_argument("--algorithm", default="dqn", help="one of the DQN family")
    parser.add_argument("--switch", action="append", default=[], help="setting to turn on")
    parser.add_argument("--atoms", type=int, help="num_atoms of C51 and Rainbow")
    settings, arguments = parse(parser, argv)
    check_calls(arguments.calls, settings)
    if arguments.updates < 1:
        refuse(f"--updates is {arguments.updates}, expected at least 1.")
    configure_without_cache()
    if arguments.update_only:
        print_result(measure_updates(settings, arguments.updates))
    else:
        more = {"algorithm": arguments.algorithm, **dict.fromkeys(arguments.switch, True)}
        more |= {} if arguments.atoms is None else {"num_atoms": arguments.atoms}
        how = arguments.loop, arguments.calls, arguments.digests
        print_result(measure_loop(settings, *how, **more))
    return 0


if __name__ == "__main__":
    sys.exit(main())
