"""Env steps of MinAtar alone: the table `minatar`, and the program that measures ours.

    python -m kytolly.benchmarks.minatar --game Breakout --num-envs 1024 --steps 1000

Actions are random, observations are written to memory at every step, and episodes begin anew where
they end. Speeds are env steps per second of CPU time: every contender computes on one thread.
"""

from __future__ import annotations

import statistics
import sys
import time
from typing import Any

from kytolly.benchmarks import suite
from kytolly.benchmarks.competitors import Span, make_result, print_result, versions
from kytolly.benchmarks.competitors.settings import StepSettings, step_parser
from kytolly.benchmarks.loop_timing import configure_without_cache

GAMES = ("Asterix", "Breakout", "Freeway", "Seaquest", "SpaceInvaders")
NUM_ENVS = "1024"
COMPETITORS = {"gymnax": ("gymnax_minatar", "jax"), "minatar": ("minatar_package", "minatar")}


def minatar(options: suite.Options, watch: suite.Watch) -> suite.Report:
    """Compare the env steps of each game."""
    core = suite.one_core()
    rows = []
    data = []
    for game in GAMES:
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
    where = "all cores free" if core is None else f"each process pinned to core {core}"
    notes = [
        f"Median of {options.repeats} turns, {where}, on the CPU. Env steps per second of CPU time "
        f"with random actions, observations made: {NUM_ENVS} environments of Kytolly and gymnax, "
        "one of minatar. Kytolly and minatar play with sticky actions and difficulty ramping, "
        "gymnax without.",
    ]
    columns = ["", "Kytolly", "gymnax", "ratio", "minatar", "ratio"]
    title = "MinAtar, env steps per second of CPU time"
    return suite.Report(title, columns, rows, notes, {"rows": data, "core": core})


def contenders(game: str, options: suite.Options) -> list[suite.Contender]:
    """Our program and the competitors', for one game."""
    many = ("--game", game, "--num-envs", NUM_ENVS, "--steps", options.count(1_000))
    one = ("--game", game, "--num-envs", "1", "--steps", options.count(50_000))
    # gymnax takes 50 microseconds for a step of Seaquest.
    fewer = (*many[:-1], options.count(200))
    listed = [suite.Contender("Kytolly", "kytolly.benchmarks.minatar", many)]
    for name, (module, package) in COMPETITORS.items():
        path = f"kytolly.benchmarks.competitors.{module}"
        listed.append(
            suite.Contender(name, path, one if name == "minatar" else fewer, (name, package))
        )
    return listed


def run(settings: StepSettings) -> dict[str, Any]:
    """Compile, step, and time it."""
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

    def step(time: Any, now: Any, _: Any, total: Any) -> Any:
        # Both halves of what Threefry gives at once: XLA does not vectorise their concatenation.
        pairs = [tf.split(stream.random_bits(2 * rows), 2) for _ in range(1 + draws // 2)]
        chosen, *random_bits = [words for pair in pairs for words in pair][: 1 + draws]
        numbers = tf.reshape(
            tf.stack([uniform(words) for words in random_bits], axis=1), [rows, draws]
        )
        now, after = step_and_reset(env, now, randint(chosen, actions), numbers)
        return time + 1, now, after.obs, total + tf.reduce_sum(after.reward)

    def play() -> Any:
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
        settings=settings._asdict(),
        note="Compile seconds hold a first call. Sticky actions 0.1, difficulty ramping.",
    )


def main(argv: list[str] | None = None) -> int:
    """Run the program."""
    settings = step_parser("minatar", __doc__, argv)
    configure_without_cache()
    print_result(run(settings))
    return 0


if __name__ == "__main__":
    sys.exit(main())
