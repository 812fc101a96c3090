"""Acting with a saved agent, one observation at a time: the table `acting`.

As a program it makes a run, or loads one in a new process and times `act`::

    python -m kytolly.benchmarks.acting --algorithm dqn --path runs/acting --make
    python -m kytolly.benchmarks.acting --algorithm dqn --path runs/acting

`ppo-recurrent` has a memory, a GRU of 64 units, which is carried from one observation to the next.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kytolly.benchmarks.program import Program, Result, Span, run_program, versions
from kytolly.benchmarks.settings import ActingSettings
from kytolly.benchmarks.suite import (
    CPU_ONLY,
    Contender,
    Options,
    Report,
    Watch,
    missing_row,
    one_core,
    pinned_to,
    run_in_turns,
    run_module,
)

if TYPE_CHECKING:
    import numpy as np

    from kytolly.deployment.loaded_agent import LoadedAgent

ALGORITHMS = ("dqn", "ppo", "ppo-recurrent")
OURS, THEIRS = "kytolly.benchmarks.acting", "kytolly.benchmarks.competitors.sb3"
MEMORY = {"memory": "gru", "memory_units": 64}
RUNS = {  # that are saved; how well they play does not matter
    "dqn": {"algorithm": "dqn", "total_env_steps": 400, "warmup_env_steps": 200},
    "ppo": {"algorithm": "ppo", "total_env_steps": 512},
    "ppo-recurrent": {"algorithm": "ppo", "total_env_steps": 512, **MEMORY},
}


def acting_table(options: Options, watch: Watch) -> Report:
    """Load a saved agent in a new process and act, in turns with Stable-Baselines3."""
    count = options.count(20_000)
    core = one_core()
    with tempfile.TemporaryDirectory(prefix="kytolly-acting-") as folder:
        contenders = []
        for algorithm in ALGORITHMS:
            words = ("--algorithm", algorithm, "--path", f"{folder}/{algorithm}")
            theirs = ("acting", *words[:-1], f"{words[-1]}.zip")
            needs = ("torch", "stable_baselines3")
            needs += ("sb3_contrib",) if algorithm == "ppo-recurrent" else ()
            for contender in (
                Contender(f"Kytolly {algorithm}", OURS, words),
                Contender(f"Stable-Baselines3 {algorithm}", THEIRS, theirs, needs),
            ):
                if not contender.why_absent():
                    run_module(contender.module, (*contender.arguments, "--make"), core, CPU_ONLY)
                more = (*contender.arguments, "--observations", count)
                contenders.append(contender._replace(arguments=more))
        results, absent = run_in_turns(contenders, options.repeats, watch, core)
    rows = []
    data = []
    for index, contender in enumerate(contenders):
        if contender.name in absent:
            shown, missing = missing_row(contender.name, absent[contender.name])
            rows.append(shown)
            data.append(missing)
            continue
        theirs = medians(results[contender.name])
        ours = medians(results[contenders[index - index % 2].name])
        ratio = theirs["cpu_microseconds"] / ours["cpu_microseconds"]
        data.append({"name": contender.name, **theirs, "kytolly_cpu_ratio": ratio})
        data[-1]["runs"] = results[contender.name]
        rows.append([contender.name, *cells(theirs), f"{ratio:.1f}x" if index % 2 else ""])
    notes = [
        f"Median of {options.repeats} turns, the contenders in turn, {pinned_to(core)}, on "
        f"the CPU. One observation of CartPole-v1 at a time, MLP 64-64, {count} of them; with a "
        "memory a GRU of 64 units between the layers, theirs an LSTM before a layer of 64. Start: "
        "from before the first import to the first action. Load: the call that reads the agent, "
        "imports left out. The last column says how many times less CPU time Kytolly takes to act."
    ]
    columns = ["", "wall µs", "CPU µs", "load s", "start s", "CPU ratio"]
    title = "Acting with a saved agent in a new process"
    return Report(title, columns, rows, notes, {"rows": data, "core": core})


def medians(results: Sequence[Mapping[str, float]]) -> dict[str, float]:
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


# --- the program ---------------------------------------------------------------------------


def random_observations() -> list[np.ndarray]:
    """Observations such as CartPole-v1 gives, [4] float32 each."""
    import numpy as np

    return list(np.random.default_rng(0).normal(size=(256, 4)).astype(np.float32))


def acting_result(
    act: Callable[[np.ndarray], object],
    count: int,
    moments: tuple[float, float, float],
    packages: list[str],
) -> Result:
    """Act for the first time, then time `count` actions; the result of a program that acts.

    Args:
        act: One observation -> its action.
        count: How many actions.
        moments: Seconds before the first import, after the last one, and when the agent was loaded.
        packages: Whose versions are in the result.
    """
    start, imported, loaded = moments
    observations = random_observations()
    act(observations[0])
    acted = time.perf_counter()
    many = [observations[index % len(observations)] for index in range(count)]
    with Span() as span:
        for obs in many:
            act(obs)
    return {
        "versions": versions(*packages),
        "observations": count,
        "wall_seconds": span.wall_seconds,
        "cpu_seconds": span.cpu_seconds,
        "load_seconds": loaded - imported,
        "start_seconds": acted - start,
    }


def make_run(algorithm: str, path: str) -> None:
    """Train for a moment, without compiling."""
    from kytolly.trainer import Trainer

    small = {"hidden_units": (64, 64), "xla": False, "loop": "host"}
    episodes = {"evaluation_episodes": 1, "final_evaluation_episodes": 1}
    cfg = {**small, **episodes, **RUNS[algorithm]}
    Trainer(Path(path), progress=False).train(cfg, "CartPole-v1")


def remembering(agent: LoadedAgent) -> Callable[[np.ndarray], object]:
    """`act` of an agent with a memory, which hands its state on."""
    state = agent.initial_state()

    def act(obs: np.ndarray) -> object:
        nonlocal state
        action, state = agent.act(obs, state=state)
        return action

    return act


def run(settings: ActingSettings) -> Result:
    """Make a run, or load one and time its actions."""
    if settings.make:
        make_run(settings.algorithm, settings.path)
        return {"path": settings.path}
    start = time.perf_counter()
    import tensorflow as tf

    from kytolly.deployment.loaded_agent import load

    tf.config.threading.set_intra_op_parallelism_threads(1)
    imported = time.perf_counter()
    agent = load(settings.path)
    moments = (start, imported, time.perf_counter())
    act = remembering(agent) if settings.algorithm == "ppo-recurrent" else agent.act
    return acting_result(act, settings.observations, moments, ["tensorflow", "keras", "numpy"])


PROGRAM = Program(run, (ActingSettings,))

if __name__ == "__main__":
    sys.exit(run_program(PROGRAM, __doc__))
