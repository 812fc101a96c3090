"""Acting with a saved agent, one observation at a time: the table `acting`.

As a program it makes a run, or loads one in a new process and times `act`.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kytolly.benchmarks.competitors import acting_program, acting_result
from kytolly.benchmarks.suite import (
    CPU_ONLY,
    Contender,
    Options,
    Report,
    Watch,
    one_core,
    run_in_turns,
    run_module,
)

ALGORITHMS = ("dqn", "ppo")
OWN, THEIRS = "kytolly.benchmarks.acting", "kytolly.benchmarks.competitors.sb3_acting"
SETTINGS: dict[str, dict[str, Any]] = {  # of the run; how well it plays does not matter
    "dqn": {"total_env_steps": 400, "warmup_env_steps": 200},
    "ppo": {"total_env_steps": 512},
}


def acting_table(options: Options, watch: Watch) -> Report:
    """Load a saved agent in a new process and act, in turns with Stable-Baselines3."""
    count = options.count(20_000)
    core = one_core()
    with tempfile.TemporaryDirectory(prefix="kytolly-acting-") as folder:
        contenders = []
        for algorithm in ALGORITHMS:
            pair = [
                Contender(f"Kytolly {algorithm}", OWN, (algorithm, f"{folder}/{algorithm}")),
                Contender(
                    f"Stable-Baselines3 {algorithm}",
                    THEIRS,
                    (algorithm, f"{folder}/{algorithm}.zip"),
                    ("torch", "stable_baselines3"),
                ),
            ]
            for contender in pair:
                if not contender.why_absent():
                    run_module(contender.module, (*contender.arguments, "--make"), core, CPU_ONLY)
                more = (*contender.arguments, "--observations", count)
                contenders.append(contender._replace(arguments=more))
        results, absent = run_in_turns(contenders, options.repeats, watch, core)
    rows = []
    data = []
    for index, contender in enumerate(contenders):
        if contender.name in absent:
            rows.append([f"{contender.name}: {absent[contender.name]}"])
            data.append({"name": contender.name, "missing": absent[contender.name]})
            continue
        theirs = medians(results[contender.name])
        ours = medians(results[contenders[index - index % 2].name])
        ratio = theirs["cpu_microseconds"] / ours["cpu_microseconds"]
        data.append({"name": contender.name, **theirs, "kytolly_cpu_ratio": ratio})
        data[-1]["runs"] = results[contender.name]
        rows.append([contender.name, *cells(theirs), f"{ratio:.1f}x" if index % 2 else ""])
    notes = [
        f"Median of {options.repeats} turns, the contenders in turn, each process on core {core}, "
        f"on the CPU. One observation of CartPole-v1 at a time, MLP 64-64, {count} of them. Start: "
        "from before the first import to the first action. Load: the call that reads the agent, "
        "imports left out. The last column says how many times less CPU time Kytolly takes to act."
    ]
    columns = ["", "wall µs", "CPU µs", "load s", "start s", "CPU ratio"]
    title = "Acting with a saved agent in a new process"
    return Report(title, columns, rows, notes, {"rows": data, "core": core})


def medians(results: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Medians over the turns of one contender; microseconds are for one observation."""

    def median(name: str, scale: float = 1.0) -> float:
        return statistics.median(scale * result[name] for result in results)

    each = 1e6 / results[0]["observations"]
    return {
        "wall_microseconds": median("wall_seconds", each),
        "cpu_microseconds": median("cpu_seconds", each),
        "load_seconds": median("load_seconds"),
        "start_seconds": median("start_seconds"),
    }


def cells(times: Mapping[str, float]) -> list[str]:
    """A contender's medians for the reader."""
    micro = [f"{times[f'{clock}_microseconds']:.1f}" for clock in ("wall", "cpu")]
    return [*micro, *(f"{times[f'{what}_seconds']:.2f}" for what in ("load", "start"))]


def make_run(algorithm: str, path: str) -> None:
    """Train for a moment, without compiling."""
    from kytolly.trainer import Trainer

    small = {"algorithm": algorithm, "hidden_units": (64, 64), "xla": False, "loop": "host"}
    episodes = {"evaluation_episodes": 1, "final_evaluation_episodes": 1}
    cfg = {**small, **episodes, **SETTINGS[algorithm]}
    Trainer(Path(path), progress=False).train(cfg, "CartPole-v1")


def run(algorithm: str, path: str, count: int) -> dict[str, Any]:
    """Load the run, then time `count` actions; returns the result."""
    start = time.perf_counter()
    import tensorflow as tf

    from kytolly.deployment.loaded_agent import load

    tf.config.threading.set_intra_op_parallelism_threads(1)
    imported = time.perf_counter()
    agent = load(path)
    moments = (start, imported, time.perf_counter())
    return acting_result(agent.act, count, moments, ["tensorflow", "keras", "numpy"])


def main(argv: list[str] | None = None) -> int:
    """Run the program."""
    return acting_program(__doc__, make_run, run, argv)


if __name__ == "__main__":
    sys.exit(main())
