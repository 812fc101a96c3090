"""Several seeds together, side by side, and one after the other: the table `seeds`.

All sides are `kytolly train ppo --env CartPole-v1` as a user starts it, with a warm compile cache:
`--seeds --together`, `--seeds --apart`, and the command with `--seed` once for each seed.
"""

from __future__ import annotations

import resource
import tempfile
import time
from pathlib import Path
from typing import Any

from kytolly.benchmarks import suite
from kytolly.machine.hardware import usable_cores

SEEDS = 10
TRAIN = ("train", "ppo", "--env", "CartPole-v1", "--json")


def seeds_table(options: suite.Options, watch: suite.Watch) -> suite.Report:
    """Time all ways once, after a run that fills the compile cache."""
    count = options.seeds or (2 if options.quick else SEEDS)
    flags = (*TRAIN, *(("--total-env-steps", "3000") if options.quick else ()))
    watch.begin(3 + count)
    with tempfile.TemporaryDirectory(prefix="kytolly-seeds-") as name:
        folder = Path(name)
        cache = {"KYTOLLY_COMPILE_CACHE": str(folder / "cache"), "TF_XLA_FLAGS": ""}

        def run(what: str, *words: str) -> dict[str, float]:
            with watch.turn(what):
                began = clocks()
                arguments = [*flags, *words, "--log-dir", str(folder / what.replace(" ", "-"))]
                suite.run_module(suite.COMMAND, arguments, None, cache)
                return {key: value - began[key] for key, value in clocks().items()}

        run("first run", "--seed", "0")
        seeds = f"0-{count - 1}"
        together = run("together", "--seeds", seeds, "--together")
        side_by_side = run("side by side", "--seeds", seeds, "--apart")
        in_turns = [run(f"seed {seed}", "--seed", str(seed)) for seed in range(count)]
    in_turn = {key: sum(one[key] for one in in_turns) for key in together}
    sides = {"together": together, "side by side": side_by_side, "one after the other": in_turn}
    rows = [[name, *(f"{side[key]:.1f}" for key in suite.CLOCKS)] for name, side in sides.items()]
    ratios = {
        name: {key: in_turn[key] / side[key] for key in in_turn} for name, side in sides.items()
    }
    del ratios["one after the other"]
    for name, ratio in ratios.items():
        rows.append([f"ratio, {name}", *(f"{ratio[key]:.2f}" for key in suite.CLOCKS)])
    title = f"{count} seeds of PPO on CartPole, {usable_cores()} cores"
    notes = ["Seconds from the start of the first process to the end of the last, each side once."]
    data: dict[str, Any] = {
        "seeds": count,
        "cores": usable_cores(),
        "ratio": ratios["side by side"],
    }
    data |= {"together": together, "ratio_together": ratios["together"]}
    data |= {"side_by_side": side_by_side, "one_after_the_other": in_turn}
    return suite.Report(title, ["", "wall [s]", "CPU [s]"], rows, notes, data)


def clocks() -> dict[str, float]:
    """Wall time, and CPU time of all processes that have ended below this one."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return {"wall": time.perf_counter(), "cpu": used.ru_utime + used.ru_stime}
