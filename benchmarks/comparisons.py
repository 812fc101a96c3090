"""The tables of `kytolly benchmark` that compare this project with other libraries."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kytolly.benchmarks.competitors import usable_cores
from kytolly.benchmarks.suite import Options, Report, Side, Watch, comparison

CLONE = "set PUREJAXRL_CHECKOUT to a clone of github.com/luchris429/purejaxrl"
PPO_WIDE = ("--num-envs", "2048", "--num-steps", "16", "--minibatches", "32")


def own_side(algorithm: str, *arguments: str) -> Side:
    """A program of this project."""
    return Side("Kytolly", f"kytolly.benchmarks.{algorithm}", arguments)


def sb3_side(algorithm: str, steps: str, *more: str, name: str = "Stable-Baselines3") -> Side:
    """A program of Stable-Baselines3."""
    module = f"kytolly.benchmarks.competitors.sb3_{algorithm}"
    return Side(name, module, ("--env-steps", steps, *more), ("torch", "stable_baselines3"))


def jax_sides(algorithm: str, steps: str, *more: str) -> list[Side]:
    """The libraries whose whole loop is one JAX program."""
    clone, arguments = os.environ.get("PUREJAXRL_CHECKOUT", ""), ("--env-steps", steps, *more)
    named = (*arguments, "--checkout", str(Path(clone).absolute()))
    module, missing = "kytolly.benchmarks.competitors.{}_" + algorithm, "" if clone else CLONE
    return [
        Side("rejax", module.format("rejax"), arguments, ("jax", "rejax")),
        Side("PureJaxRL", module.format("purejaxrl"), named, ("jax",), missing),
    ]


def host_sides(algorithm: str, steps: str, *more: str) -> list[Side]:
    """Our host loop, and Stable-Baselines3 with one thread and with one for each core."""
    threads = str(usable_cores())
    own = own_side(algorithm, "--loop", "host", "--env-steps", steps, *more)
    sides = [own, sb3_side(algorithm, steps, *more)]
    if threads != "1":
        name = f"Stable-Baselines3, {threads} threads"
        sides.append(sb3_side(algorithm, steps, *more, "--threads", threads, name=name))
    return sides


# --- DQN -----------------------------------------------------------------------------------


def dqn_loops(title: str, steps: int, options: Options, watch: Watch, *more: str) -> Report:
    """Compare whole loops; Stable-Baselines3 takes a tenth of the others' env steps."""
    count, few = options.count(steps), options.count(steps // 10)
    own = own_side("dqn", "--env-steps", count, *more)
    sides = [own, sb3_side("dqn", few, *more), *jax_sides("dqn", count, *more)]
    return comparison(f"DQN on CartPole-v1, {title}", "env_steps", sides, options, watch)


def device(options: Options, watch: Watch) -> Report:
    """Compare the device loops at one update of 128 rows every 10 env steps."""
    return dqn_loops("batch 128, one update per 10 env steps", 200_000, options, watch)


def device_every_step(options: Options, watch: Watch) -> Report:
    """Compare the device loops at one update of 64 rows every env step."""
    more = ("--batch-size", "64", "--train-interval", "1")
    return dqn_loops("batch 64, one update per env step", 40_000, options, watch, *more)


def update(options: Options, watch: Watch) -> Report:
    """Compare one update inside a loop of updates."""
    arguments = ("--updates", options.count(20_000))
    jax = Side("JAX scan", "kytolly.benchmarks.competitors.jax_update", arguments, ("jax", "optax"))
    title = "One DQN update within one program, batch 128, fresh rows from a buffer of 10,000"
    sides = [own_side("dqn", "--update-only", *arguments), jax]
    return comparison(title, "updates", sides, options, watch)


def host(options: Options, watch: Watch) -> Report:
    """Compare the host loops on Gymnasium's own CartPole."""
    sides = host_sides("dqn", options.count(20_000))
    title = "DQN on Gymnasium's own CartPole-v1, batch 128, one update per 10 env steps"
    return comparison(title, "env_steps", sides, options, watch, pinned=False)


# --- PPO -----------------------------------------------------------------------------------


def ppo(options: Options, watch: Watch) -> Report:
    """Compare the device loops at 4 environments x 128 steps; SB3 takes fewer env steps."""
    count = options.count(1_000_000)
    sides = [
        own_side("ppo", "--env-steps", count),
        sb3_side("ppo", options.count(20_000)),
        *jax_sides("ppo", count),
    ]
    title = "PPO on CartPole-v1, 4 environments x 128 steps, 4 epochs of 4 minibatches, MLP 64-64"
    return comparison(title, "env_steps", sides, options, watch)


def ppo_wide(options: Options, watch: Watch) -> Report:
    """Compare the device loops at 2048 environments x 16 steps, and their compile seconds."""
    count = options.count(1_000_000)
    sides = [own_side("ppo", "--env-steps", count, *PPO_WIDE), *jax_sides("ppo", count, *PPO_WIDE)]
    title = (
        "PPO on CartPole-v1, 2048 environments x 16 steps, 4 epochs of 32 minibatches, MLP 64-64"
    )
    return with_compile_ratio(comparison(title, "env_steps", sides, options, watch))


def ppo_host(options: Options, watch: Watch) -> Report:
    """Compare the host loops on 8 of Gymnasium's own CartPole, stepped one after the other."""
    sides = host_sides("ppo", options.count(40_000), "--num-envs", "8")
    title = (
        "PPO on Gymnasium's own CartPole-v1, 8 environments x 128 steps, 4 epochs of 4 minibatches"
    )
    return comparison(title, "env_steps", sides, options, watch, pinned=False)


def pqn(options: Options, watch: Watch) -> Report:
    """Compare the device loops on Breakout by the rules of gymnax."""
    count = ("--env-steps", options.count(100_000))
    rejax = "kytolly.benchmarks.competitors.rejax_pqn"
    sides = [own_side("pqn", *count), Side("rejax", rejax, count, ("jax", "rejax"))]
    title = (
        "PQN on MinAtar's Breakout, 128 environments x 32 steps, 2 epochs of 32 minibatches, "
        "convolution of 16 and dense layer of 128 with layer norms"
    )
    return comparison(title, "env_steps", sides, options, watch)


def with_compile_ratio(report: Report) -> Report:
    """The table with one more column: our seconds of compiling over another side's."""
    own, rows, data = report.data["rows"][0]["compile_seconds"], [], []
    for row, found in zip(report.rows, report.data["rows"], strict=True):
        if "missing" in found:
            rows.append(row)
            data.append(found)
            continue
        ratio = own / found["compile_seconds"]
        rows.append([*row, f"{ratio:.2f}x" if rows else ""])
        data.append({**found, "kytolly_compile_ratio": ratio})
    used = ", ".join(f"{name} {version}" for name, version in compilers(data))
    note = (
        "Compile s: from the settings to a program that can run, with the drawing of the weights, "
        "without importing and without a cache of compiled code. The last column is Kytolly's "
        f"time over theirs: below 1, Kytolly compiles faster. Compilers: {used}."
    )
    columns = [*report.columns, "compile ratio"]
    return Report(report.title, columns, rows, [*report.notes, note], {**report.data, "rows": data})


def compilers(data: Sequence[dict[str, Any]]) -> list[tuple[str, str]]:
    """The libraries that compiled, with their versions."""
    found = {
        name: run["versions"][name]
        for side in data
        for run in side.get("runs", [])
        for name in ("tensorflow", "jaxlib")
        if name in run.get("versions", {})
    }
    return sorted(found.items(), reverse=True)
