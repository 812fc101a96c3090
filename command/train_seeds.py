"""`kytolly train --seeds`: the same training with several seeds, side by side in processes."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kytolly.command.child_runs import ChildRun, default_jobs, print_line, run_children
from kytolly.command.exits import BadInput
from kytolly.command.result import print_table
from kytolly.command.tuned import tuned_line
from kytolly.config.words import path_text
from kytolly.record.comparison import (
    DEFAULT_METRIC,
    GROUP_FILE,
    evaluations,
    make_groups,
    read_runs,
)
from kytolly.record.comparison_plot import plot_comparison
from kytolly.record.files import write_file, write_text
from kytolly.record.run_folder import RunFolder, SavedConfig, read_result, versions, yaml_text
from kytolly.record.seed_statistics import interval_text, summary

GivenConfig = Callable[[argparse.Namespace], tuple[Any, str]]
LINE_SECONDS = 5.0  # between two lines about a seed


def check_options(args: argparse.Namespace, flags: dict[str, Any]) -> None:
    """Refuse options that do not go together with `--seeds`."""
    if "seed" in flags:
        raise BadInput("--seed and --seeds are both given. Give one of them.")
    if args.profile:
        raise BadInput("--profile times one run, and --seeds trains several. Leave one out.")
    if args.resume and flags:
        raise BadInput(
            f"--resume with --seeds continues with the group's own settings. Leave "
            f"--{next(iter(flags)).replace('_', '-')} out."
        )


class SeedGroup:
    """The runs of several seeds in one folder, as they train.

    Attributes:
        folder: The group's folder, which holds `seed-N/` for each seed.
        config, environment: Of all runs; each has its own seed.
        init: The run whose weights all begin with, if any.
    """

    def __init__(
        self, folder: Path, config: Any, environment: str, seeds: list[int], init: str | None
    ):
        self.folder, self.config, self.environment = folder, config, environment
        self.init = init
        self.seeds, self.problems = seeds, dict[int, str]()
        self.waiting = [seed for seed in seeds if read_result(self.run_dir(seed)) is None]
        self.done = len(seeds) - len(self.waiting)
        self._line_at: dict[str, float] = {}
        self._best: dict[str, float] = {}

    def run_dir(self, seed: int) -> Path:
        """The folder of one seed's run."""
        return self.folder / f"seed-{seed}"

    def next_child(self) -> ChildRun | None:
        """The run of the next seed: a new one, or what is left of one that was stopped."""
        if not self.waiting:
            return None
        seed = self.waiting.pop(0)
        run_dir, words = self.run_dir(seed), ["train", self.config.algorithm]
        words += ["--env", self.environment, "--json"]
        words += ["--trust"] if self.config.wrappers else []  # this process was trusted with them
        if (run_dir / "config.yaml").is_file():
            words += ["--resume", str(run_dir)]
        else:
            given = ["--config", str(self.folder / GROUP_FILE), "--no-tuned", "--seed", str(seed)]
            words += [*given, "--log-dir", str(run_dir)]  # the file has all settings
            words += ["--init", self.init] if self.init else []
        return ChildRun(f"seed {seed}", run_dir, words)

    def show_progress(self, child: ChildRun) -> None:
        """Print what is new: warnings at once, an evaluation every few seconds."""
        for warning in child.new_warnings():
            print_line(f"{child.name}: {warning}")
        found, now = child.new_evaluations(), time.monotonic()
        if not found:
            return
        best = max([value for _, value in found] + [self._best.get(child.name, -float("inf"))])
        self._best[child.name] = best
        if now - self._line_at.get(child.name, -LINE_SECONDS) >= LINE_SECONDS:
            self._line_at[child.name] = now
            print_line(
                f"{child.name}: {found[-1][0]:,} of {self.config.total_env_steps:,} env steps, "
                f"evaluation return {found[-1][1]:.1f} (best {best:.1f})"
            )

    def end_child(self, child: ChildRun) -> None:
        """Note how a seed ended; what is wrong before anything trains is wrong for all."""
        seed, result = int(child.name.split()[1]), child.result()
        self.done += 1
        of_all = f"({self.done} of {len(self.seeds)})"
        if child.process.returncode or result is None:
            self.problems[seed] = child.problem()
            if child.process.returncode == 2 and not child.run_dir.exists() and self.is_untrained():
                raise BadInput(child.problem())
            why = "" if child.problem() in child.told else f": {child.problem()}"
            print_line(f"{child.name}: failed {of_all}{why}")
        else:
            score = result["evaluation"]["return_mean"]
            print_line(f"{child.name}: return {score:.1f} after {child.seconds:.1f} s {of_all}")

    def is_untrained(self) -> bool:
        """Whether no seed has a run yet."""
        return not any(self.folder.glob("seed-*/config.yaml"))

    def remove_if_untrained(self) -> None:
        """Remove what was written where no run began, so that the folder can be used again."""
        if self.is_untrained():
            for path in [*self.folder.glob("seed-*.log"), self.folder / GROUP_FILE]:
                path.unlink(missing_ok=True)
            RunFolder(self.folder).remove_if_empty()

    def summary(self, seconds: float) -> dict[str, Any]:
        """What result.json holds."""
        runs = [self.run_summary(seed) for seed in self.seeds]
        found: dict[str, Any] = {
            "algorithm": self.config.algorithm,
            "environment": self.environment,
            "wall_seconds": seconds,
            "run_dir": str(self.folder),
            "runs": runs,
        }
        for name in ("best", "last"):
            returns = [run[name] for run in runs if run.get(name) is not None]
            found[name] = summary(returns) if returns else None
        return found

    def run_summary(self, seed: int) -> dict[str, Any]:
        """One seed's results: of its best weights, and of its last evaluation during training."""
        run_dir, result = self.run_dir(seed), read_result(self.run_dir(seed))
        found: dict[str, Any] = {"seed": seed, "run_dir": str(run_dir)}
        if seed in self.problems:
            found["failed"] = self.problems[seed]
        if result is None:
            return found
        during = evaluations(run_dir)
        found |= {
            "best": result["evaluation"]["return_mean"],
            "last": during[-1][1] if during else None,
        }
        names = ("env_steps", "updates", "wall_seconds", "stopped_by")
        return found | {name: result[name] for name in names}

    def save_plot(self) -> str | None:
        """Save `seeds.png`; None where no run was evaluated."""
        paths = [run for run in map(self.run_dir, self.seeds) if read_result(run)]
        paths = [path for path in paths if evaluations(path)]
        if not paths:
            return None
        runs, unit = read_runs(paths)
        figure = plot_comparison(make_groups(runs, True), DEFAULT_METRIC, unit)
        file = self.folder / "seeds.png"
        write_file(file, lambda to: figure.savefig(to, dpi=150, format="png"))
        return str(file)


def run(args: argparse.Namespace, flags: dict[str, Any], given_config: GivenConfig) -> int:
    """Train all seeds and print how they did.

    Args:
        args: The options of `kytolly train`.
        flags: The settings among them.
        given_config: Makes the config and the environment of a new run from the options.
    """
    check_options(args, flags)
    began = time.perf_counter()
    group, held = existing_group(args) if args.resume else new_group(args, given_config)
    try:
        jobs = min(args.jobs or default_jobs(), max(1, len(group.waiting)))
        print_line(f"{len(group.waiting)} seeds to train, {jobs} at a time, in {group.folder}")
        run_children(jobs, group.next_child, group.show_progress, group.end_child)
        found = group.summary(time.perf_counter() - began)
        found["plot"] = group.save_plot()
        held.write_result(found)
    except KeyboardInterrupt:
        done = sum(read_result(group.run_dir(seed)) is not None for seed in group.seeds)
        folder = shlex.quote(str(group.folder))
        raise KeyboardInterrupt(
            f"{done} of {len(group.seeds)} seeds are done, and the others are saved as far as they "
            f"came. Continue with `kytolly train {group.config.algorithm} --resume {folder} "
            f"--seeds {','.join(map(str, group.seeds))}`."
        ) from None
    except BadInput:
        group.remove_if_untrained()
        raise
    finally:
        held.release()
    print_seeds(found, sys.stderr if args.json else sys.stdout)
    if args.json:
        print(json.dumps(found))
    return 1 if group.problems else 0


def new_group(args: argparse.Namespace, given_config: GivenConfig) -> tuple[SeedGroup, RunFolder]:
    """A new folder with the settings of all runs, held by this process."""
    cfg, env = given_config(args)
    held = RunFolder.create(args.log_dir, f"{env}_{cfg.algorithm}_seeds")
    tuned = "" if args.tuned is False else tuned_line(cfg, env)
    if tuned:
        print_line(f"kytolly: {tuned}")
    beside = {"environment": env, "loop": cfg.loop, "versions": versions()}
    init = None if args.init is None else os.path.abspath(args.init)
    beside |= {"init": init} if init else {}
    write_text(held.path / GROUP_FILE, yaml_text(cfg, beside))
    return SeedGroup(held.path, cfg, env, args.seeds, init), held


def existing_group(args: argparse.Namespace) -> tuple[SeedGroup, RunFolder]:
    """The folder of a group whose seeds are not all done, held by this process."""
    from kytolly.agent.algorithms import make_config
    from kytolly.config.files import read_settings

    folder, file = RunFolder(Path(args.resume)), Path(args.resume) / GROUP_FILE
    if not file.is_file():
        raise BadInput(
            f"{path_text(args.resume)} has no {GROUP_FILE}, expected the folder of a training with "
            "--seeds. Give that one, or continue a single run without --seeds."
        )
    settings, beside = read_settings(file)
    cfg = make_config(settings)
    saved = SavedConfig(settings, beside.get("environment", ""), beside.get("loop"), "")
    env = args.env or folder.trusted_environment(saved, trust=args.trust)
    folder.trusted_wrappers(saved, trust=args.trust)
    if (cfg.algorithm, saved.environment) != (args.algorithm, env):
        raise BadInput(
            f"{args.algorithm} on {env} is asked for, and the group in {path_text(args.resume)} is "
            f"{cfg.algorithm} on {saved.environment}. Change one of them."
        )
    init = beside.get("init")
    held = folder.lock_folder()  # before the group looks at which seeds are done
    return SeedGroup(held.path, cfg, env, args.seeds, init), held


def print_seeds(found: dict[str, Any], file: Any) -> None:
    """Print one line for each seed, and what they are together."""
    rows = []
    for one in found["runs"]:
        if "best" not in one:
            rows.append([str(one["seed"]), "failed", "", "", ""])
            continue
        last = "" if one["last"] is None else f"{one['last']:.1f}"
        cells = [f"{one['best']:.1f}", last, f"{one['env_steps']:,}", f"{one['wall_seconds']:.1f}"]
        rows.append([str(one["seed"]), *cells])
    notes = [f"Seed {one['seed']}: {one['failed']}" for one in found["runs"] if "failed" in one]
    for name, words in (("best", "best weights"), ("last", "last evaluation")):
        if found[name]:
            text = interval_text(found[name])
            notes.append(f"Return of the {words}: {text}, interquartile mean and 95% interval")
    notes.append(f"{found['algorithm']} on {found['environment']}, {found['wall_seconds']:.1f} s")
    notes += [f"Plot: {found['plot']}"] * bool(found["plot"]) + [f"Runs: {found['run_dir']}"]
    print_table(["seed", "return", "last", "env steps", "seconds"], rows, notes, file)
