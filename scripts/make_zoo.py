"""Trains every task of the results with its tuned settings, and keeps what plays best as the zoo.

`python scripts/make_zoo.py` trains what the zoo lacks, one task after the other, and
writes the table in docs/zoo.md. It may be stopped: runs go on where their last checkpoint was.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import math
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kytolly.benchmarks import learning, suite
from kytolly.command.exits import BadInput, OneLineParser, exit_status
from kytolly.command.options import path, seed
from kytolly.command.result import print_line
from kytolly.config.words import nearest, value_text
from kytolly.deployment.zoo import PREFIX, zoo_dir, zoo_names, zoo_result
from kytolly.record.files import write_text
from kytolly.record.saved_run import read_result

TASKS = {
    f"{task.algorithm.upper()}/{task.env}": task
    for task in (
        *learning.CLASSIC,
        learning.LUNAR_LANDER,
        *learning.PPO_CLASSIC,
        learning.PPO_LUNAR_LANDER,
        learning.PPO_HALF_CHEETAH,
    )
}
EPISODES = 100  # of the final evaluation, which the zoo states
NORMAL = 1.96  # standard errors on each side of a mean: 95%
KEPT = ("algorithm", "environment", "loop", "seed", "env_steps", "updates", "stopped_by")
BEGIN, END = "<!-- zoo: made by scripts/make_zoo.py -->", "<!-- end -->"
PAGE = Path("docs/zoo.md")


def main(argv: Sequence[str]) -> int:
    """Run the command; returns its exit status (see `exit_status`)."""
    return exit_status(lambda: make_zoo(parse(argv)))


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """The options."""
    parser = OneLineParser(prog="make_zoo", description=__doc__, allow_abbrev=False)
    add = parser.add_argument
    add("--only", metavar="NAME", help="one task, such as PPO/CartPole-v1")
    add("--seed", type=seed, default=1, help="seed of the runs; default 1")
    add(
        "--runs",
        type=path,
        default="runs/zoo",
        metavar="DIR",
        help="where runs are trained; default: runs/zoo",
    )
    return parser.parse_args(argv)


def make_zoo(args: argparse.Namespace) -> int:
    """Train what is missing; exit status 1 if a training failed."""
    failed = False
    for name in [task_name(args.only)] if args.only else TASKS:
        task = TASKS[name]
        if name in zoo_names():
            print_line(f"{name} is in the zoo")
        elif task.needs and importlib.util.find_spec(task.needs[0]) is None:
            print_line(f"{name} is left out: {task.needs[1]}")
        else:
            failed |= not add_to_zoo(name, args.seed, Path(args.runs) / name.replace("/", "_"))
    if PAGE.is_file():
        update_page(PAGE)
    return 1 if failed else 0


def task_name(given: str) -> str:
    """The name of a task, whatever its letters' case."""
    names = {name.casefold(): name for name in TASKS}
    if given.casefold() in names:
        return names[given.casefold()]
    raise BadInput(
        f"--only is {value_text(given)}, expected one of {', '.join(TASKS)}.{nearest(given, TASKS)}"
    )


def add_to_zoo(name: str, seed: int, run_dir: Path) -> bool:
    """Train a task, or what is left of it, and keep its three files; returns True on success."""
    if read_result(run_dir) is None:
        print_line(f"{name}: training in {run_dir}")
        command = [sys.executable, "-m", suite.COMMAND, *training_words(name, seed, run_dir)]
        if subprocess.run(command, stdout=subprocess.DEVNULL, check=False).returncode:
            print_line(f"{name} failed; its run is {run_dir}")
            return False
    result = zoo_result_of(json.loads((run_dir / "result.json").read_text("utf-8")))
    folder = zoo_dir() / name
    folder.mkdir(parents=True, exist_ok=True)
    write_text(folder / "result.json", json.dumps(result, indent=2) + "\n")
    for file in ("best.keras", "config.yaml"):  # the last one says that the folder is whole
        shutil.copyfile(run_dir / file, folder / file)
    evaluation = result["evaluation"]
    low, high = evaluation["return_interval"]
    print_line(
        f"{name}: return {evaluation['return_mean']:.1f}, 95% interval {low:.1f} to {high:.1f}"
    )
    return True


def training_words(name: str, seed: int, run_dir: Path) -> list[str]:
    """The words of `kytolly train` for a task."""
    task = TASKS[name]
    if (run_dir / "config.yaml").is_file():
        return ["train", task.algorithm, "--resume", str(run_dir), "--json"]
    return ["train", task.algorithm, "--env", task.env, "--tuned", "--loop", task.loop,
            "--seed", str(seed), "--total-env-steps", str(task.length()), "--reward-threshold",
            "none", "--final-evaluation-episodes", str(EPISODES), "--log-dir", str(run_dir),
            "--json"]  # fmt: skip


def zoo_result_of(result: dict[str, Any]) -> dict[str, Any]:
    """The part of `result.json` that the zoo keeps, without the machine, with a 95% interval."""
    evaluation = dict(result["evaluation"])
    mean = evaluation["return_mean"]
    half = NORMAL * evaluation["return_std"] / math.sqrt(evaluation["episodes"])
    evaluation["return_interval"] = [mean - half, mean + half]
    return {**{name: result[name] for name in KEPT}, "evaluation": evaluation}


def zoo_table() -> list[str]:
    """Lines of a Markdown table of the zoo, made from its files."""
    lines = [
        "| name | env steps | seed | return, mean of 100 episodes | 95% interval | size |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for name in zoo_names():
        result = zoo_result(name)
        evaluation = result["evaluation"]
        low, high = evaluation["return_interval"]
        size = (zoo_dir() / name / "best.keras").stat().st_size
        lines.append(
            f"| `{PREFIX}{name}` | {result['env_steps']:,} | {result['seed']} | "
            f"{evaluation['return_mean']:,.1f} | {low:,.1f} to {high:,.1f} | {size / 1e3:,.0f} kB |"
        )
    return lines


def update_page(page: Path) -> None:
    """Put the table of the zoo between its two marks in a page."""
    before, _, rest = page.read_text(encoding="utf-8").partition(BEGIN)
    after = rest.partition(END)[2]
    write_text(page, "\n".join([before + BEGIN, "", *zoo_table(), "", END]) + after)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
