"""The cost of the DQN family's switches: `rainbow`."""

from __future__ import annotations

from kytolly.benchmarks import suite

SIDES = {
    "DQN": (),
    "DQN, noisy": ("--switch", "noisy"),
    "DQN, prioritized": ("--switch", "prioritized"),
    "C51": ("--algorithm", "c51"),
    "Rainbow, 21 atoms": ("--algorithm", "rainbow", "--atoms", "21"),
    "Rainbow": ("--algorithm", "rainbow"),
}


def rainbow(options: suite.Options, watch: suite.Watch) -> suite.Report:
    """Measure the device loop of DQN, of its switches and of Rainbow on the same work."""
    flags = ("--env-steps", options.count(100_000))
    sides = [
        suite.Side(name, "kytolly.benchmarks.dqn", (*flags, *more)) for name, more in SIDES.items()
    ]
    core = suite.one_core()
    results, absent = suite.run_in_turns(sides, options.repeats, watch, core)
    if absent:
        raise RuntimeError("; ".join(f"{name}: {reason}" for name, reason in absent.items()))
    found = {name: suite.medians(runs, "env_steps") for name, runs in results.items()}
    rows, data, plain = [], [], found["DQN"]
    for name, one in found.items():
        share = {
            clock: plain[f"{clock}_microseconds"] / one[f"{clock}_microseconds"]
            for clock in suite.CLOCKS
        }
        cells = suite.cells(one, "env_steps").values()
        rows.append([name, *cells, *(f"{number:.2f}x" for number in share.values())])
        data.append({"name": name, **one, "share": share, "runs": results[name]})
    where = "not pinned to a core" if core is None else f"each process pinned to core {core}"
    notes = [
        f"Median of {options.repeats} turns, the rows in turn, {where}, on the CPU. The last two "
        "columns are the speed as a share of plain DQN's."
    ]
    columns = ["", *suite.cells(plain, "env_steps"), "wall share", "CPU share"]
    title = "DQN's device loop on CartPole-v1, batch 128, one update per 10 env steps"
    return suite.Report(title, columns, rows, notes, {"rows": data, "core": core})
