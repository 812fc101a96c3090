"""The tables of `kytolly benchmark`, and the command that prints them."""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import platform
import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TextIO

from kytolly.benchmarks.suite import Options, Report, Watch, progress_display
from kytolly.command.result import print_table
from kytolly.config.words import nearest, value_text


class Table(NamedTuple):
    """The function of a table, and its line in the help.

    Attributes:
        module: Of this room, or of `search.benchmark`.
        function: In it; called with options and a watch.
        measures: What it measures, for the help.
        takes: Options that it heeds, besides --repeats, --quick and --json.
    """

    module: str
    function: str
    measures: str
    takes: str = ""


SHORT = {
    "device": Table(
        "comparisons",
        "device",
        "DQN's device loop on CartPole-v1 against Stable-Baselines3, rejax and PureJaxRL",
    ),
    "device-every-step": Table(
        "comparisons", "device_every_step", "the same at batch 64 and one update per env step"
    ),
    "update": Table("comparisons", "update", "one DQN update against the same in JAX"),
    "host": Table(
        "comparisons",
        "host",
        "DQN's host loop on Gymnasium's CartPole-v1 against Stable-Baselines3",
    ),
    "atari": Table(
        "comparisons", "atari", "DQN's host loop on Atari's Pong against Stable-Baselines3"
    ),
    "environments": Table(
        "environments", "environments", "DQN's device loop with 1 to 4,096 environments"
    ),
    "determinism": Table(
        "determinism", "determinism", "whether two runs of DQN with one seed are bit-equal"
    ),
    "rainbow": Table("comparisons", "rainbow", "DQN's switches and Rainbow against plain DQN"),
    "replay": Table("replay", "replay", "layouts of prioritized replay, by rows of the memory"),
    "ppo": Table(
        "comparisons",
        "ppo",
        "PPO's device loop on CartPole-v1 against Stable-Baselines3, rejax and PureJaxRL",
    ),
    "ppo-recurrent": Table(
        "comparisons",
        "ppo_recurrent",
        "the device loop of PPO with a memory against PureJaxRL and sb3-contrib",
    ),
    "ppo-recurrent-host": Table(
        "comparisons",
        "ppo_recurrent_host",
        "the host loop of PPO with a memory against sb3-contrib's RecurrentPPO",
    ),
    "ppo-wide": Table(
        "comparisons", "ppo_wide", "PPO with 2,048 environments against rejax and PureJaxRL"
    ),
    "dqn-agents": Table(
        "comparisons", "dqn_agents", "64 agents of DQN together against rejax's and PureJaxRL's"
    ),
    "ppo-agents": Table(
        "comparisons", "ppo_agents", "64 agents of PPO together against rejax's and PureJaxRL's"
    ),
    "pqn": Table("comparisons", "pqn", "PQN's device loop on MinAtar's Breakout against rejax"),
    "minatar": Table(
        "minatar", "minatar", "env steps of MinAtar's games against gymnax and the package minatar"
    ),
    "ppo-host": Table(
        "comparisons",
        "ppo_host",
        "PPO's host loop on Gymnasium's CartPole-v1 against Stable-Baselines3",
    ),
    "ppo-environments": Table(
        "environments", "ppo_environments", "PPO's device loop with 1 to 16,384 environments"
    ),
    "ppo-determinism": Table(
        "determinism", "ppo_determinism", "whether two runs of PPO with one seed are bit-equal"
    ),
}
LONG = {
    "acting": Table(
        "acting", "acting_table", "actions of a loaded agent against Stable-Baselines3's predict"
    ),
    "gpu-program": Table(
        "gpu_program",
        "gpu_program",
        "launches and waits of each device loop on a GPU, by its compiler, without a GPU",
        "ALGO ... --gpu --kernels --log-dir --launch-microseconds --wait-microseconds",
    ),
    "start": Table(
        "start",
        "start_table",
        "seconds from the start of `kytolly train` to a solved CartPole",
        "--seeds",
    ),
    "seeds": Table(
        "seeds", "seeds_table", "ten seeds side by side against one after the other", "--seeds"
    ),
    "cluster": Table(
        "actors",
        "cluster_table",
        "ten seeds by a local Ray against side by side without",
        "--seeds",
    ),
    "actors": Table(
        "actors", "actors_table", "environments in Ray actors against processes without Ray"
    ),
    "actors-bytes": Table(
        "actors", "actors_bytes_table", "bytes between learner and actors, computed"
    ),
    "defaults": Table(
        "defaults",
        "defaults_table",
        "returns without tuned settings against Stable-Baselines3's defaults",
        "--algorithm --env --seeds --log-dir",
    ),
    "pbt": Table(
        "pbt",
        "pbt_table",
        "population-based training of PPO against random search and the tuned settings",
        "--seeds --env",
    ),
    "learning": Table(
        "learning", "learning_table", "returns of DQN on classic control", "--seeds --env --figure"
    ),
    "lunar-lander": Table(
        "learning", "lunar_lander_table", "returns of DQN on LunarLander-v3", "--seeds --figure"
    ),
    "ppo-learning": Table(
        "learning",
        "ppo_learning_table",
        "returns of PPO on classic control",
        "--seeds --env --figure",
    ),
    "ppo-lunar-lander": Table(
        "learning", "ppo_lunar_lander_table", "returns of PPO on LunarLander-v3", "--seeds --figure"
    ),
    "ppo-mujoco": Table(
        "learning",
        "ppo_mujoco_table",
        "returns of PPO on MuJoCo's tasks",
        "--seeds --env --figure",
    ),
}
SEARCH = {
    "text": Table(
        "text", "text", "training a query rewriter, each measure on and off", "--collection"
    ),
    "reformulation": Table(
        "reformulation",
        "reformulation",
        "episodes per second of training query reformulation",
        "--collection",
    ),
    "reformulation-scale": Table(
        "query_scale",
        "reformulation_scale",
        "preparing, training and searching 1,000 to 200,000 documents",
        "--figure --collection",
    ),
    "reformulation-learning": Table(
        "query_learning",
        "reformulation_learning",
        "nDCG@10 of query reformulation on test queries",
        "--seeds --collection",
    ),
    "reformulation-drift": Table(
        "query_drift",
        "reformulation_drift",
        "what a least share of typed words costs, and how much less searches drift",
        "--collection",
    ),
    "reformulation-zero-shot": Table(
        "query_zero_shot",
        "reformulation_zero_shot",
        "nDCG@10 of the package's network on documents that it has never seen",
        "--collection",
    ),
    "reformulation-ceiling": Table(
        "query_ceiling",
        "reformulation_ceiling",
        "which part of the agent loses how much of what its candidates allow",
        "--collection",
    ),
    "search": Table(
        "search_chain",
        "search_table",
        "BM25, the agent and the re-ranker, one after the other",
        "--seeds --collection",
    ),
}
if importlib.util.find_spec("kytolly.search") is None:  # a library without its guest
    SEARCH.clear()
TABLES = {**SHORT, **LONG, **SEARCH}
OPTIMIZATIONS = "optimizations"  # measured in this process, and printed by its own program
SYNONYMS = {"optimisations": OPTIMIZATIONS}


def run(
    name: str | None,
    *,
    repeats: int = 3,
    as_json: bool = False,
    env: str | None = None,
    seeds: int | None = None,
    figure: str | None = None,
    collection: str | None = None,
    algorithm: str | None = None,
    log_dir: str | None = None,
    quick: bool = False,
    algorithms: Sequence[str] = (),
    gpu: str | None = None,
    kernels: bool = False,
    launch_microseconds: float | None = None,
    wait_microseconds: float | None = None,
) -> int:
    """Measure and print one table, or without a name all that take minutes rather than hours.

    Returns the exit status. With `as_json` tables go to standard error, and standard output ends
    with one line of JSON. The other arguments are those of `Options`.

    Raises:
        ValueError: There is no table of that name, or it takes no names of algorithms.
    """
    name = SYNONYMS.get(name or "", name)
    if name == OPTIMIZATIONS:
        from kytolly.benchmarks import optimizations

        return optimizations.main(["--json"] * as_json + ["--quick"] * quick)
    if name is not None and name not in TABLES:
        known = [*TABLES, OPTIMIZATIONS]
        raise ValueError(
            f"{value_text(name)} is no table of `kytolly benchmark`; there are {', '.join(known)}."
            + nearest(name, known)
        )
    if algorithms and "ALGO" not in getattr(TABLES.get(name or ""), "takes", ""):
        raise ValueError(
            f"{algorithms[0]!r} follows {name or 'no table'!r}, which takes no algorithms. "
            "Leave it out."
        )
    options = Options(
        repeats=repeats,
        env=env,
        seeds=seeds,
        figure=figure,
        collection=collection,
        algorithm=algorithm,
        log_dir=log_dir,
        quick=quick,
        algorithms=tuple(algorithms),
        gpu=gpu,
        kernels=kernels,
        launch_microseconds=launch_microseconds,
        wait_microseconds=wait_microseconds,
    )
    output = sys.stderr if as_json else sys.stdout
    facts = machine_facts()
    reports = {}
    for key in [name] if name else SHORT:
        make = table_function(key)
        with progress_display() as progress:
            report = make(options, Watch(progress))
        command = f"kytolly benchmark {key} {options.as_flags()}"
        print_report(report, command, output)
        reports[key] = {"title": report.title, "command": command, **report.data}
    if not name:
        print(f"By name only: {', '.join([*LONG, *SEARCH, OPTIMIZATIONS])}.", file=output)
    if quick:
        print("A trial run: these numbers mean nothing.", file=output)
    if as_json:
        print(json.dumps({"machine": facts, "tables": reports}))
    return 0


def table_function(name: str) -> Callable[[Options, Watch], Report]:
    """The function that measures a table, imported now."""
    room = "search.benchmark" if name in SEARCH else "benchmarks"
    module = importlib.import_module(f"kytolly.{room}.{TABLES[name].module}")
    return getattr(module, TABLES[name].function)


def machine_facts() -> dict[str, Any]:
    """The facts of the machine that the numbers depend on."""
    from kytolly.machine import hardware

    return {
        "cpu": hardware.cpu_description()[0],
        "cores": hardware.usable_cores(),
        "os": platform.platform(),
        "python": platform.python_version(),
        "load_at_start": os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
    }


def print_report(report: Report, command: str, file: TextIO) -> None:
    """Print the table, what it means, and the command that made it."""
    notes = [*report.notes, command]
    print_table(report.columns, report.rows, notes, file, title=report.title)


def help_lines() -> list[str]:
    """The tables, with what they measure and which options they take."""
    lines = []
    by_name = {**LONG, **SEARCH}
    for title, tables in (("tables, measured without NAME:", SHORT), ("by name only:", by_name)):
        lines.append(title)
        for name, table in tables.items():
            takes = f" [{table.takes}]" if table.takes else ""
            lines.append(f"  {name:<23} {table.measures}{takes}")
    return [*lines, f"  {OPTIMIZATIONS:<23} each optimization against the same work without it"]
