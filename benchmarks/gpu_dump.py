"""Writes a program of ours as StableHLO, with what it starts from: the device loop as it trains.

    python -m kytolly.benchmarks.gpu_dump --row dqn --folder DIR

DIR/dqn is the program. DIR/dqn.npz has its inputs in order, the number of iterations first and then
the variables of a new run, and `env_steps_per_iteration`. Traced for a GPU, lowered for a CPU.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Literal, NamedTuple

from kytolly.benchmarks.loops import (
    PPOVariant,
    Variant,
    Work,
    configure_without_cache,
    dqn_work,
    ppo_work,
    pqn_work,
    recurrent_work,
)
from kytolly.benchmarks.program import Program, Result, refuse, run_program
from kytolly.benchmarks.settings import DQNSettings, PPOSettings, PQNSettings, RecurrentSettings
from kytolly.config.fields import setting

CPU = "/job:localhost/replica:0/task:0/device:CPU:0"


class Row(NamedTuple):
    """A program of the table.

    Attributes:
        algorithm: Name in the table of algorithms.
        title: What the program does in an iteration.
        work: Makes what the program is built from.
        words: The command line of `benchmarks.loops` and the competitors that times the same work.
        more: What the loops of ours take beside it.
        agents: How many of them train together, all in each kernel.
    """

    algorithm: str
    title: str
    work: Callable[[], Work]
    words: tuple[str, ...]
    more: tuple[str, ...] = ()
    agents: int = 1


def _together(row: Row, agents: int) -> Row:
    title = f"{agents:,} agents: {row.title}"
    words = ("--agents", str(agents))
    return row._replace(title=title, more=(*row.more, *words), agents=agents)


def _dqn_row(algorithm: str, num_envs: int = 10) -> Row:
    envs = "1 env" if num_envs == 1 else f"{num_envs} envs"
    steps = "10 env steps" if num_envs == 1 else "one step each"
    title = f"CartPole, {envs}, {steps} and one update"
    settings = DQNSettings(num_envs=num_envs)
    return Row(
        algorithm,
        title,
        lambda: dqn_work(settings, Variant(algorithm=algorithm)),
        ("dqn", "--num-envs", str(num_envs)),
        ("--algorithm", algorithm),
    )


def _ppo_row(settings: PPOSettings, algorithm: Literal["ppo", "ppo-kl"] = "ppo") -> Row:
    updates = settings.epochs * settings.minibatches
    steps = f"{settings.num_envs:,} envs x {settings.num_steps} steps"
    title = f"CartPole, {steps}, {updates} updates"
    sizes = {
        "--num-envs": settings.num_envs,
        "--num-steps": settings.num_steps,
        "--minibatches": settings.minibatches,
    }
    words = (word for flag, size in sizes.items() for word in (flag, str(size)))
    variant = PPOVariant(algorithm=algorithm)
    more = () if algorithm == "ppo" else ("--algorithm", algorithm)
    return Row(algorithm, title, lambda: ppo_work(settings, variant), ("ppo", *words), more)


def _recurrent_row(memory: Literal["gru", "lru"]) -> Row:
    settings = RecurrentSettings(memory=memory)
    title = f"{memory.upper()} of {settings.memory_units} units, {PPO.title}"
    words = ("ppo-recurrent", "--memory", memory)
    return Row("ppo", title, lambda: recurrent_work(settings), words)


WIDE = PPOSettings(num_envs=2048, num_steps=16, minibatches=32)
PPO, DQN = _ppo_row(PPOSettings()), _dqn_row("dqn", 1)
PQN = Row(
    "pqn",
    "MinAtar's Breakout, 128 envs x 32 steps, 64 updates",
    lambda: pqn_work(PQNSettings()),
    ("pqn",),
)
ROWS = {
    "ppo": PPO,
    "ppo-agents": _together(PPO, 1024),
    "ppo-wide": _ppo_row(WIDE),
    "ppo-gru": _recurrent_row("gru"),
    "ppo-lru": _recurrent_row("lru"),
    "ppo-kl": _ppo_row(PPOSettings(), "ppo-kl"),
    "dqn": DQN,
    "dqn-agents": _together(DQN, 128),
    "dqn-10-envs": _dqn_row("dqn"),
    "pqn": PQN,
    "pqn-agents": _together(PQN, 16),
    **{name: _dqn_row(name) for name in ("ddqn", "c51", "qr-dqn", "iqn", "munchausen", "rainbow")},
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class DumpSettings:
    """One program to write."""

    row: str = setting("dqn", f"program: {', '.join(ROWS)}")
    folder: str = setting(".", "folder that gets the files")
    devices: int = setting(1, "GPUs that train together, of which the first one's program it is")


def dump(row: str, folder: Path, devices: int = 1) -> Result:
    """Write the program of a row and its inputs; returns the sizes of an iteration."""
    import numpy as np
    import tensorflow as tf

    from kytolly.benchmarks import core
    from kytolly.environment.state_variable import state_for_a_gpu
    from kytolly.loop.device import DeviceLoop
    from kytolly.loop.mapped_population import MappedPopulation

    work = ROWS[row].work()
    with state_for_a_gpu():
        loop, agent = core.make_loop(work.cfg, work.env, "device")
    if not isinstance(loop, DeviceLoop):
        raise TypeError(f"{row} has no device loop.")
    signature, function = [tf.TensorSpec([], tf.int32)], loop.program.function
    agents = ROWS[row].agents
    if agents > 1:
        function = MappedPopulation(loop, agents).program.function
    elif devices > 1:
        from kytolly.loop.replicas import ReplicatedLoop

        function = ReplicatedLoop(loop, [CPU] * devices).program.programs[0].function

    def run_on_gpu(iterations: tf.Tensor) -> object:
        with tf.device("/GPU:0"):
            return function(iterations)

    program = tf.function(run_on_gpu, jit_compile=True, autograph=False, input_signature=signature)
    lowered = program.experimental_get_compiler_ir(tf.constant(1, tf.int32))
    file = folder / row
    file.write_bytes(lowered(stage="stablehlo_serialized", device_name=CPU))
    concrete = program.get_concrete_function()
    values = {id(variable.handle): variable.numpy() for variable in concrete.variables}
    inputs = [np.int32(1), *(values[id(handle)] for handle in concrete.captured_inputs)]
    steps = agents * loop.env_steps_per_iteration
    np.savez(f"{file}.npz", *inputs, env_steps_per_iteration=np.int64(steps))
    return {
        "program": str(file),
        "devices": devices,
        "steps": loop.rollout_steps,
        "env_steps": steps,
        "updates": agent.memory.updates,
        "versions": {"tensorflow": tf.__version__},
    }


def run(settings: DumpSettings) -> Result:
    """Configure TensorFlow and write one program."""
    if settings.row not in ROWS:
        refuse(f"--row is {settings.row!r}, expected one of {', '.join(ROWS)}.")
    configure_without_cache()
    return dump(settings.row, Path(settings.folder), settings.devices)


PROGRAM = Program(run, (DumpSettings,))

if __name__ == "__main__":
    sys.exit(run_program(PROGRAM, __doc__))
