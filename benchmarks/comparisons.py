"""The tables of `kytolly benchmark` in which this project's programs meet others'."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kytolly.benchmarks.competitors import usable_cores
from kytolly.benchmarks.suite import Options, Report, Side, Watch, compared

CLONE = "set PUREJAXRL_CHECKOUT to a clone of github.com/luchris429/purejaxrl"
PPO_WIDE = ("--num-envs", "2048", "--num-steps", "16", "--minibatches", "32")


def ours(algorithm: str, *arguments: str) -> Side:
    """This project's program."""
    return Side("Kytolly", f"benchmarks.{algorithm}", arguments)


def sb3(algorithm: str, steps: str, *more: str, name: str = "Stable-Baselines3") -> Side:
    """Stable-Baselines3's."""
    module = f"benchmarks.competitors.sb3_{algorithm}"
    return Side(name, module, ("--env-steps", steps, *more), ("torch", "stable_baselines3"))


def jax_loops(algorithm: str, steps: str, *more: str) -> list[Side]:
    """The libraries whose whole loop is one JAX program."""
    clone, arguments = os.environ.get("PUREJAXRL_CHECKOUT", ""), ("--env-steps", steps, *more)
    named = (*arguments, "--checkout", str(Path(clone).absolute()))
    module, missing = "benchmarks.competitors.{}_" + algorithm, "" if clone else CLONE
    return [
        Side("rejax", module.format("rejax"), arguments, ("jax", "rejax")),
        Side("PureJaxRL", module.format("purejaxrl"), named, ("jax",), missing),
    ]


def on_the_host(algorithm: str, steps: str, *more: str) -> list[Side]:
    """Our host loop, and Stable-Baselines3 with one thread and with one for each core."""
    threads = str(usable_cores())
    own = ours(algorithm, "--loop", "host", "--env-steps", steps, *more)
    sides = [own, sb3(algorithm, steps, *more)]
    if threads != "1":
        name = f"Stable-Baselines3, {threads} threads"
        sides.append(sb3(algorithm, steps, *more, "--threads", threads, name=name))
    return sides


# --- DQN -----------------------------------------------------------------------------------


def dqn_loops(title: str, steps: int, options: Options, watch: Watch, *more: str) -> Report:
    """Whole loops; Stable-Baselines3 takes a tenth of the others' env steps."""
    count, few = options.count(steps), options.count(steps // 10)
    own = ours("dqn", "--env-steps", count, *more)
    sides = [own, sb3("dqn", few, *more), *jax_loops("dqn", count, *more)]
    return compared(f"DQN on CartPole-v1, {title}", "env_steps", sides, options, watch)


def device(options: Options, watch: Watch) -> Report:
    """The device loop at one update of 128 rows every 10 env steps."""
    return dqn_loops("batch 128, one update per 10 env steps", 200_000, options, watch)


def device_every_step(options: Options, watch: Watch) -> Report:
    """The device loop at one update of 64 rows every env step."""
    more = ("--batch-size", "64", "--train-interval", "1")
    return dqn_loops("batch 64, one update per env step", 40_000, options, watch, *more)


def update(options: Options, watch: Watch) -> Report:
    """One update inside a loop of updates."""
    arguments = ("--updates", options.count(20_000))
    jax = Side("JAX scan", "benchmarks.competitors.jax_update", arguments, ("jax", "optax"))
    title = "One DQN update within one program, batch 128, fresh rows from a buffer of 10,000"
    sides = [ours("dqn", "--update-only", *arguments), jax]
    return compared(title, "updates", sides, options, watch)


def host(options: Options, watch: Watch) -> Report:
    """The host loop on Gymnasium's own CartPole."""
    sides = on_the_host("dqn", options.count(20_000))
    title = "DQN on Gymnasium's own CartPole-v1, batch 128, one update per 10 env steps"
    return compared(title, "env_steps", sides, options, watch, pinned=False)


# --- PPO -----------------------------------------------------------------------------------


def ppo(options: Options, watch: Watch) -> Report:
    """The device loop at 4 copies x 128 steps; Stable-Baselines3 takes fewer env steps."""
    count = options.count(1_000_000)
    sides = [
        ours("ppo", "--env-steps", count),
        sb3("ppo", options.count(20_000)),
        *jax_loops("ppo", count),
    ]
    title = "PPO on CartPole-v1, 4 environments x 128 steps, 4 epochs of 4 minibatches, MLP 64-64"
    return compared(title, "env_steps", sides, options, watch)


def ppo_wide(options: Options, watch: Watch) -> Report:
    """The device loop at 2048 copies x 16 steps, and how long it takes to compile."""
    count = options.count(1_000_000)
    sides = [ours("ppo", "--env-steps", count, *PPO_WIDE), *jax_loops("ppo", count, *PPO_WIDE)]
    title = (
        "PPO on CartPole-v1, 2048 environments x 16 steps, 4 epochs of 32 minibatches, MLP 64-64"
    )
    return with_compile_ratio(compared(title, "env_steps", sides, options, watch))


def ppo_host(options: Options, watch: Watch) -> Report:
    """The host loop on 8 of Gymnasium's own CartPole, stepped one after the other."""
    sides = on_the_host("ppo", options.count(40_000), "--num-envs", "8")
    title = (
        "PPO on Gymnasium's own CartPole-v1, 8 environments x 128 steps, 4 epochs of 4 minibatches"
    )
    return compared(title, "env_steps", sides, options, watch, pinned=False)


def with_compile_ratio(report: Report) -> Report:
    """The table with one column more: our seconds of compiling over another side's."""
    own, rows, data = report.data["rows"][0]["compile_seconds"], [], []
    for row, figures in zip(report.rows, report.data["rows"], strict=True):
        if "missing" in figures:
            rows.append(row)
            data.append(figures)
            continue
        ratio = own / figures["compile_seconds"]
        rows.append([*row, f"{ratio:.2f}x" if rows else ""])
        data.append({**figures, "kytolly_compile_ratio": ratio})
    used = ", ".join(f"{name} {version}" for name, version in compilers(data))
    note = (
        "Compile s: from the settings to a program that can run, drawing the weights included, "
        "importing left out, no cache of compiled code; the last column is Kytolly's over "
        f"theirs, so below 1 Kytolly compiles faster. Compilers: {used}."
    )
    columns = [*report.columns, "compiling"]
    return Report(report.title, columns, rows, [*report.notes, note], {**report.data, "rows": data})


def compilers(data: Sequence[dict[str, Any]]) -> list[tuple[str, str]]:
    """The libraries that compiled, with their versions."""
    found = {
        name: run["versions"][name]
        for figures in data
        for run in figures.get("runs", [])
        for name in ("tensorflow", "jaxlib")
        if name in run.get("versions", {})
    }
    return sorted(found.items(), reverse=True)
