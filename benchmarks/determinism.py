"""Two runs of one seed, compared bit by bit: `determinism`, `ppo-determinism`."""

from __future__ import annotations

import tempfile
from pathlib import Path

from kytolly.benchmarks import suite

SECOND_RUNS = {
    "the same seed": ("--seed", "1"),
    "the same, in 7 calls for 1": ("--seed", "1", "--calls", "7"),
    "another seed": ("--seed", "2"),
}


def determinism(options: suite.Options, watch: suite.Watch) -> suite.Report:
    """Compare runs of DQN in both loops."""
    return compare_runs("dqn", (), options.count(20_000), watch)


def ppo_determinism(options: suite.Options, watch: suite.Watch) -> suite.Report:
    """Compare runs of PPO in both loops; a trial run has smaller rollouts, to have 7 of them."""
    more = ("--num-steps", "8") if options.quick else ()
    return compare_runs("ppo", more, options.count(20_000), watch)


def compare_runs(
    algorithm: str, more: tuple[str, ...], env_steps: str, watch: suite.Watch
) -> suite.Report:
    """Compare runs of one algorithm; returns the table.

    Args:
        algorithm: dqn or ppo, which also names the program.
        more: Further flags of the program.
        env_steps: Length of every run.
        watch: Shows progress.
    """
    base = (algorithm, "--digests", "--env-steps", env_steps, *more)
    program = "kytolly.benchmarks.loops"
    watch.begin(2 * (2 + len(SECOND_RUNS)))
    rows = []
    data = []
    parts = []

    def add(loop: str, name: str, equal: dict[str, bool], **runs: object) -> None:
        words = ["equal" if same else "differs" for same in equal.values()]
        rows.append([f"{loop} loop: {name}", *words])
        data.append({"loop": loop, "second_run": name, "equal": equal, **runs})

    for loop in ("device", "host"):
        with watch.turn(f"{loop} loop"):
            first = suite.run_module(program, (*base, "--loop", loop, "--seed", "1"))
        for name, arguments in SECOND_RUNS.items():
            with watch.turn(f"{loop} loop, {name}"):
                second = suite.run_module(program, (*base, "--loop", loop, *arguments))
            ones, others = first["digests"], second["digests"]
            equal = {part: ones[part] == others[part] for part in ones}
            parts = list(equal)
            add(loop, name, equal, runs=[first, second])
        with watch.turn(f"{loop} loop, kytolly train twice"):
            state, metrics = train_twice(algorithm, loop, env_steps)
        equal = {part: metrics if part == "metrics" else state for part in parts}
        add(loop, f"kytolly train {algorithm}, the same seed", equal)
    notes = [
        "A run with seed 1 against a second run in another process, to the last bit. Metrics are "
        "the averages that training logs, without its times. Another number of calls rounds their "
        "sums in another order. Two runs of kytolly train are compared by their last checkpoint, "
        "which holds all parts, and by metrics.csv."
    ]
    title = f"Two runs of {algorithm.upper()} on CartPole-v1"
    return suite.Report(title, ["second run", *parts], rows, notes, {"rows": data})


def train_twice(algorithm: str, loop: str, env_steps: str) -> tuple[bool, bool]:
    """Run `kytolly train` twice; True where the last checkpoints, and the metrics, are equal."""
    from kytolly.record.metrics_file import NAME, read_rows

    ends = []
    with tempfile.TemporaryDirectory(prefix="kytolly-twice-") as folder:
        for number in ("1", "2"):
            run_dir = Path(folder) / number
            quarter = str(max(1, int(env_steps) // 4))
            flags = ("--loop", loop, "--total-env-steps", env_steps, "--seed", "1",
                     "--log-interval-env-steps", quarter,
                     "--evaluation-interval-env-steps", quarter)  # fmt: skip
            where = ("--env", "CartPole-v1", "--log-dir", str(run_dir), "--json")
            suite.run_module(suite.COMMAND, ("train", algorithm, *where, *flags))
            files = (run_dir / "checkpoints").glob("ckpt-*.data-*")
            last = max(files, key=lambda path: int(path.name.split("-")[1].split(".")[0]))
            rows = [
                {name: value for name, value in row.items() if "second" not in name}
                for row in read_rows(run_dir / NAME)
            ]
            ends.append((last.name, last.read_bytes(), rows))
    (name, state, metrics), (other_name, other_state, other_metrics) = ends
    return (name, state) == (other_name, other_state), metrics == other_metrics
