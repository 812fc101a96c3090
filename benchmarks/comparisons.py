"""The tables of `kytolly benchmark` that compare this project with other libraries."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from kytolly.benchmarks import suite
from kytolly.benchmarks.settings import ATARI_GAME
from kytolly.benchmarks.suite import Contender, Options, Report, Watch, comparison
from kytolly.machine.hardware import usable_cores

CLONE = "set PUREJAXRL_CHECKOUT to a clone of github.com/luchris429/purejaxrl"
LOOPS = "kytolly.benchmarks.loops"
COMPETITORS = "kytolly.benchmarks.competitors"
AGENTS = "64"
RECURRENT = (
    "4 environments x 128 steps, 4 epochs of 4 minibatches, a dense layer, a memory, and a dense "
    "layer each of policy and value, 128 units all"
)
PPO_WIDE = ("--num-envs", "2048", "--num-steps", "16", "--minibatches", "32")


def our_contender(program: str, *arguments: str) -> Contender:
    """A program of this project."""
    return Contender("Kytolly", LOOPS, (program, *arguments))


def sb3_contender(
    program: str, steps: str, *more: str, name: str = "Stable-Baselines3"
) -> Contender:
    """A program of Stable-Baselines3."""
    words = (program, "--env-steps", steps, *more)
    return Contender(name, f"{COMPETITORS}.sb3", words, ("torch", "stable_baselines3"))


def jax_contenders(program: str, steps: str, *more: str) -> list[Contender]:
    """The libraries whose whole loop is one JAX program."""
    clone = os.environ.get("PUREJAXRL_CHECKOUT", "")
    words = (program, "--env-steps", steps, *more)
    named = (*words, "--checkout", str(Path(clone).absolute()))
    return [
        Contender("rejax", f"{COMPETITORS}.rejax", words, ("jax", "rejax")),
        Contender("PureJaxRL", f"{COMPETITORS}.purejaxrl", named, ("jax",), "" if clone else CLONE),
    ]


def sb3_by_threads(program: str, steps: str, *more: str) -> list[Contender]:
    """Stable-Baselines3 with one thread and with one for each core."""
    threads = str(usable_cores())
    contenders = [sb3_contender(program, steps, *more)]
    if threads != "1":
        name = f"Stable-Baselines3, {threads} threads"
        contenders.append(sb3_contender(program, steps, *more, "--threads", threads, name=name))
    return contenders


def host_contenders(program: str, steps: str, *more: str) -> list[Contender]:
    """Our host loop, and Stable-Baselines3."""
    ours = our_contender(program, "--loop", "host", "--env-steps", steps, *more)
    return [ours, *sb3_by_threads(program, steps, *more)]


# --- DQN -----------------------------------------------------------------------------------


def dqn_loops(title: str, steps: int, options: Options, watch: Watch, *more: str) -> Report:
    """Compare whole loops; Stable-Baselines3 takes a tenth of the others' env steps."""
    count, few = options.count(steps), options.count(steps // 10)
    ours = our_contender("dqn", "--env-steps", count, *more)
    contenders = [ours, sb3_contender("dqn", few, *more), *jax_contenders("dqn", count, *more)]
    return comparison(f"DQN on CartPole-v1, {title}", "env_steps", contenders, options, watch)


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
    jax = Contender("JAX scan", f"{COMPETITORS}.jax_update", arguments, ("jax", "optax"))
    title = "One DQN update within one program, batch 128, fresh rows from a buffer of 10,000"
    contenders = [our_contender("update", *arguments), jax]
    return comparison(title, "updates", contenders, options, watch)


def host(options: Options, watch: Watch) -> Report:
    """Compare the host loops on Gymnasium's own CartPole."""
    contenders = host_contenders("dqn", options.count(20_000))
    title = "DQN on Gymnasium's own CartPole-v1, batch 128, one update per 10 env steps"
    return comparison(title, "env_steps", contenders, options, watch, pinned=False)


def atari(options: Options, watch: Watch) -> Report:
    """Compare the host loops on Pong."""
    steps = options.count(2_000)
    ours = our_contender("atari", "--env-steps", steps)._replace(needs=("ale_py",))
    needs = ("torch", "stable_baselines3", "cv2", "ale_py")
    others = [other._replace(needs=needs) for other in sb3_by_threads("atari", steps)]
    title = f"DQN on {ATARI_GAME}, NatureCNN, batch 32, one update per 4 env steps, one environment"
    return comparison(title, "env_steps", [ours, *others], options, watch, pinned=False)


def dqn_agents(options: Options, watch: Watch) -> Report:
    """Compare 64 agents of DQN in one program, each with the work of `device`."""
    count = ("--env-steps", options.count(20_000), "--agents", AGENTS)
    contenders = [our_contender("dqn", *count), *jax_contenders("dqn", *count[1:])]
    title = f"{AGENTS} agents of DQN on CartPole-v1, batch 128, one update per 10 env steps of each"
    return comparison(title, "env_steps", contenders, options, watch)


# --- PPO -----------------------------------------------------------------------------------


def ppo(options: Options, watch: Watch) -> Report:
    """Compare the device loops at 4 environments x 128 steps; SB3 takes fewer env steps."""
    count = options.count(1_000_000)
    contenders = [
        our_contender("ppo", "--env-steps", count),
        sb3_contender("ppo", options.count(20_000)),
        *jax_contenders("ppo", count),
    ]
    title = "PPO on CartPole-v1, 4 environments x 128 steps, 4 epochs of 4 minibatches, MLP 64-64"
    return comparison(title, "env_steps", contenders, options, watch)


def recurrent(memory: str, steps: str, loop: str = "device") -> Contender:
    """Our PPO with a memory."""
    words = ("ppo-recurrent", "--env-steps", steps, "--loop", loop, "--memory", memory)
    return our_contender(*words)._replace(name=f"Kytolly, {memory.upper()}")


def recurrent_sb3(options: Options) -> Contender:
    """sb3-contrib's RecurrentPPO, which has an LSTM."""
    name = "RecurrentPPO, LSTM"
    theirs = sb3_contender("ppo-recurrent", options.count(5_000), "--memory", "lstm", name=name)
    return theirs._replace(needs=(*theirs.needs, "sb3_contrib"))


def ppo_recurrent(options: Options, watch: Watch) -> Report:
    """Compare the device loops of PPO with a memory, all over the one with a GRU."""
    count = options.count(200_000)
    _, purejaxrl = jax_contenders("ppo-recurrent", count)
    contenders = [
        recurrent("gru", count),
        purejaxrl._replace(name="PureJaxRL, GRU"),
        recurrent("lstm", count),
        recurrent_sb3(options),
    ]
    title = f"PPO with a memory on CartPole-v1, {RECURRENT}"
    return comparison(title, "env_steps", contenders, options, watch)


def ppo_recurrent_host(options: Options, watch: Watch) -> Report:
    """Compare the host loops of PPO with an LSTM."""
    contenders = [recurrent("lstm", options.count(40_000), "host"), recurrent_sb3(options)]
    title = f"PPO with a memory on Gymnasium's own CartPole-v1, {RECURRENT}"
    return comparison(title, "env_steps", contenders, options, watch)


def ppo_agents(options: Options, watch: Watch) -> Report:
    """Compare 64 agents of PPO in one program, each with the work of `ppo`."""
    count = ("--env-steps", options.count(20_480), "--agents", AGENTS)
    contenders = [our_contender("ppo", *count), *jax_contenders("ppo", *count[1:])]
    title = f"{AGENTS} agents of PPO on CartPole-v1, 4 environments x 128 steps each, MLP 64-64"
    return comparison(title, "env_steps", contenders, options, watch)


def ppo_wide(options: Options, watch: Watch) -> Report:
    """Compare the device loops at 2048 environments x 16 steps, and their compile seconds."""
    count = options.count(1_000_000)
    contenders = [
        our_contender("ppo", "--env-steps", count, *PPO_WIDE),
        *jax_contenders("ppo", count, *PPO_WIDE),
    ]
    title = (
        "PPO on CartPole-v1, 2048 environments x 16 steps, 4 epochs of 32 minibatches, MLP 64-64"
    )
    return with_compile_ratio(comparison(title, "env_steps", contenders, options, watch))


def ppo_host(options: Options, watch: Watch) -> Report:
    """Compare the host loops on 8 of Gymnasium's own CartPole, stepped one after the other."""
    contenders = host_contenders("ppo", options.count(40_000), "--num-envs", "8")
    title = (
        "PPO on Gymnasium's own CartPole-v1, 8 environments x 128 steps, 4 epochs of 4 minibatches"
    )
    return comparison(title, "env_steps", contenders, options, watch, pinned=False)


def pqn(options: Options, watch: Watch) -> Report:
    """Compare the device loops on Breakout by the rules of gymnax."""
    count = options.count(100_000)
    rejax, _ = jax_contenders("pqn", count)
    contenders = [our_contender("pqn", "--env-steps", count), rejax]
    title = (
        "PQN on MinAtar's Breakout, 128 environments x 32 steps, 2 epochs of 32 minibatches, "
        "convolution of 16 and dense layer of 128 with layer norms"
    )
    return comparison(title, "env_steps", contenders, options, watch)


def with_compile_ratio(report: Report) -> Report:
    """The table with one more column: our seconds of compiling over another contender's."""
    ours = report.data["rows"][0]["compile_seconds"]
    rows = []
    data = []
    for row, row_data in zip(report.rows, report.data["rows"], strict=True):
        if "missing" in row_data:
            rows.append(row)
            data.append(row_data)
            continue
        ratio = ours / row_data["compile_seconds"]
        rows.append([*row, f"{ratio:.2f}x" if rows else ""])
        data.append({**row_data, "kytolly_compile_ratio": ratio})
    used = ", ".join(f"{name} {version}" for name, version in compilers(data))
    note = (
        "Compile s: from the settings to a program that can run, with the drawing of the weights, "
        "without importing and without a cache of compiled code. The last column is Kytolly's "
        f"time over theirs: below 1, Kytolly compiles faster. Compilers: {used}."
    )
    columns = [*report.columns, "compile ratio"]
    return Report(report.title, columns, rows, [*report.notes, note], {**report.data, "rows": data})


def compilers(data: Sequence[Mapping]) -> list[tuple[str, str]]:
    """The libraries that compiled, with their versions."""
    compilers = {
        name: run["versions"][name]
        for contender in data
        for run in contender.get("runs", [])
        for name in ("tensorflow", "jaxlib")
        if name in run.get("versions", {})
    }
    return sorted(compilers.items(), reverse=True)


SWITCHES = {
    "DQN": (),
    "DQN, noisy": ("--switch", "noisy"),
    "DQN, prioritized": ("--switch", "prioritized"),
    "C51": ("--algorithm", "c51"),
    "QR-DQN": ("--algorithm", "qr-dqn"),
    "IQN": ("--algorithm", "iqn"),
    "Rainbow": ("--algorithm", "rainbow"),
    "Rainbow, 51 atoms": ("--algorithm", "rainbow", "--atoms", "51"),
}


def rainbow(options: Options, watch: Watch) -> Report:
    """Measure the device loop of DQN, of its switches and of its relatives on the same work."""
    flags = ("dqn", "--env-steps", options.count(100_000))
    contenders = [Contender(name, LOOPS, (*flags, *more)) for name, more in SWITCHES.items()]
    core = suite.one_core()
    results, _ = suite.run_in_turns(contenders, options.repeats, watch, core, all_ours=True)
    speeds = {name: suite.medians(runs, "env_steps") for name, runs in results.items()}
    rows = []
    data = []
    plain = speeds["DQN"]
    for name, speed in speeds.items():
        share = {
            clock: plain[f"{clock}_microseconds"] / speed[f"{clock}_microseconds"]
            for clock in suite.CLOCKS
        }
        cells = suite.cells(speed, "env_steps").values()
        rows.append([name, *cells, *(f"{number:.2f}x" for number in share.values())])
        data.append({"name": name, **speed, "share": share, "runs": results[name]})
    notes = [
        f"Median of {options.repeats} turns, the rows in turn, {suite.pinned_to(core)}, on the "
        "CPU. The last two columns are the speed as a share of plain DQN's."
    ]
    columns = ["", *suite.cells(plain, "env_steps"), "wall share", "CPU share"]
    title = "DQN's device loop on CartPole-v1, batch 128, one update per 10 env steps"
    return Report(title, columns, rows, notes, {"rows": data, "core": core})
