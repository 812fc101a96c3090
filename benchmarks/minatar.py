"""Env steps of MinAtar alone: the table `minatar`, and the program that measures ours.

    python -m kytolly.benchmarks.minatar --game Breakout --num-envs 1024 --steps 1000

Actions are random, observations are written to memory at every step, and episodes begin anew where
they end. Speeds are env steps per second of CPU time: every contender computes on one thread.
"""

from __future__ import annotations

import dataclasses
import statistics
import sys
import time
from typing import TYPE_CHECKING, Any, get_args

from kytolly.benchmarks import suite
from kytolly.benchmarks.loops import configure_without_cache
from kytolly.benchmarks.program import Program, Result, Span, make_result, run_program, versions
from kytolly.benchmarks.settings import Game, StepSettings

if TYPE_CHECKING:
    import tensorflow as tf

    from kytolly.environment.tensor.stepping import DeviceState

NUM_ENVS = "1024"
COMPETITORS = {"gymnax": ("gymnax", "jax"), "minatar": ("minatar",)}  # packages they need


def minatar(options: suite.Options, watch: suite.Watch) -> suite.Report:
    """Compare the env steps of each game."""
    core = suite.one_core()
    rows = []
    data = []
    for game in get_args(Game):
        results, absent = suite.run_in_turns(
            contenders(game, options), options.repeats, watch, core
        )
        speeds = {
            name: statistics.median(r["env_steps"] / r["cpu_seconds"] for r in runs)
            for name, runs in results.items()
        }
        cells = [game, f"{speeds['Kytolly']:,.0f}"]
        for name in COMPETITORS:
            ratio = speeds["Kytolly"] / speeds[name] if name in speeds else None
            cells += [f"{speeds[name]:,.0f}", f"{ratio:.1f}x"] if ratio else [absent[name], ""]
        rows.append(cells)
        data.append({"game": game, "env_steps_per_cpu_second": speeds, "missing": absent})
    notes = [
        f"Median of {options.repeats} turns, {suite.pinned_to(core)}, on the CPU. Env steps per "
        f"second of CPU time with random actions, observations made: {NUM_ENVS} environments of "
        "Kytolly and gymnax, one of minatar. Kytolly and minatar play with sticky actions and "
        "difficulty ramping, gymnax without.",
    ]
    columns = ["", "Kytolly", "gymnax", "ratio", "minatar", "ratio"]
    title = "MinAtar, env steps per second of CPU time"
    return suite.Report(title, columns, rows, notes, {"rows": data, "core": core})


def contenders(game: str, options: suite.Options) -> list[suite.Contender]:
    """Our program and the competitors', for one game."""
    many = ("--game", game, "--num-envs", NUM_ENVS, "--steps", options.count(1_000))
    one = ("--game", game, "--steps", options.count(50_000))
    # gymnax takes 50 microseconds for a step of Seaquest.
    fewer = (*many[:-1], options.count(200))
    listed = [suite.Contender("Kytolly", "kytolly.benchmarks.minatar", many)]
    for name, needs in COMPETITORS.items():
        words = (name, *(one if name == "minatar" else fewer))
        listed.append(suite.Contender(name, "kytolly.benchmarks.competitors.minatar", words, needs))
    return listed


def run(settings: StepSettings) -> Result:
    """Compile, step, and time it."""
    configure_without_cache()
    import tensorflow as tf

    from kytolly.agent.randomness import RandomStream, randint, uniform
    from kytolly.environment.registry import tensor_environment
    from kytolly.environment.tensor.stepping import reset_all, step_and_reset, uniforms_per_step

    env: Any = tensor_environment(f"MinAtar/{settings.game}-v0")
    stream = RandomStream(settings.seed)
    rows = settings.num_envs
    draws = uniforms_per_step(env)
    actions = tf.constant(env.spec.num_actions)
    start, obs = reset_all(env, stream.uniform(rows, env.reset_uniforms))
    state = tf.nest.map_structure(lambda t: tf.Variable(t, trainable=False), start)

    def step(
        time: tf.Tensor, now: DeviceState, _: tf.Tensor, total: tf.Tensor
    ) -> tuple[tf.Tensor, DeviceState, tf.Tensor, tf.Tensor]:
        # Both halves of what Threefry gives at once: XLA does not vectorize their concatenation.
        pairs = [tf.split(stream.random_bits(2 * rows), 2) for _ in range(1 + draws // 2)]
        chosen, *bits = [words for pair in pairs for words in pair][: 1 + draws]
        numbers = tf.reshape(tf.stack([uniform(words) for words in bits], axis=1), [rows, draws])
        now, after = step_and_reset(env, now, randint(chosen, actions), numbers)
        return time + 1, now, after.obs, total + tf.reduce_sum(after.reward)

    def play() -> tuple[tf.Tensor, tf.Tensor]:
        begin = tf.nest.map_structure(lambda v: v.read_value(), state)
        carried = (tf.constant(0), begin, obs, tf.constant(0.0))
        _, end, seen, total = tf.while_loop(lambda time, *_: time < settings.steps, step, carried)
        tf.nest.map_structure(lambda old, new: old.assign(new), state, end)
        return total, seen

    begin = time.perf_counter()
    program = tf.function(play, jit_compile=True, autograph=False).get_concrete_function()
    program()[0].numpy()
    compile_seconds = time.perf_counter() - begin
    with Span() as span:
        program()[0].numpy()
    return make_result(
        name="Kytolly",
        versions=versions("tensorflow"),
        env_steps=settings.steps * rows,
        updates=0,
        span=span,
        compile_seconds=compile_seconds,
        settings=dataclasses.asdict(settings),
        note="Compile seconds hold a first call. Sticky actions 0.1, difficulty ramping.",
    )


PROGRAM = Program(run, (StepSettings,))

if __name__ == "__main__":
    sys.exit(run_program(PROGRAM, __doc__))
