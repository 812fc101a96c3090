"""`kytolly tune`: searches an algorithm's settings with Optuna, each trial a run of its own."""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import json
import math
import os
import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kytolly.command import train
from kytolly.command.child_runs import ChildRun, default_jobs, print_line, run_children
from kytolly.command.exits import BadInput
from kytolly.command.options import MOST_SEED, environment, path, positive, seconds
from kytolly.command.result import print_table

DEFAULT_TRIALS = 30
SUFFIXES = (".db", ".sqlite", ".sqlite3")
SHOWN_TRIALS = 10  # in the table at the end
EVALUATIONS = 20  # of a run, where its config names no interval


def add_options(parser: argparse.ArgumentParser, words: Sequence[str]) -> None:
    """Add the options of `kytolly tune`, and a flag for every setting of the algorithm."""
    train.refuse_only_in_python(words[1:2])
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.description = (
        "Search the settings of an algorithm. A setting that is given by a flag or in --config is\n"
        "not searched. --seed is the seed of the search; each trial trains with another one.\n"
        "`kytolly tune ALGO --help` shows all settings of one algorithm."
    )
    add = parser.add_argument
    add("algorithm", metavar="ALGO", help="algorithm to tune")
    add("--env", type=environment, help="Gymnasium id, such as CartPole-v1")
    add("--config", metavar="FILE", type=path, help="YAML file with settings that are not searched")
    add(
        "--trials",
        metavar="N",
        type=positive,
        default=DEFAULT_TRIALS,
        help=f"trials of the study, those of earlier commands included; default {DEFAULT_TRIALS}",
    )
    add(
        "--study",
        metavar="FILE",
        type=path,
        help="SQLite file of a study, continued if it exists; default: a new one in runs/",
    )
    add("--timeout", metavar="SECONDS", type=seconds, help="after which no trial begins")
    add("--jobs", metavar="N", type=positive, help="trials at a time; default: one a core")
    parser.set_defaults(preset=None, tuned=None, resume=None, log_dir=None, trust=False)
    algorithm = next((word for word in words if word in train.ALGORITHMS), None)
    train.add_settings(parser, algorithm)


class Search:
    """The trials of one command, which are told to the study as they train.

    Attributes:
        study: `optuna.Study`.
        config, environment: What every trial begins with.
        folder: Holds `trial-N/` for each trial.
    """

    def __init__(self, study: Any, space: Any, config: Any, env: str, folder: Path):
        self.study, self.config, self.environment, self.folder = study, config, env, folder
        from kytolly.command.study import distributions

        self.distributions = distributions(space)
        self.asked: dict[str, Any] = {}  # the trials of this command by name
        self.left, self.until = 0, math.inf

    def run(self, trials: int, jobs: int, timeout: float | None) -> None:
        """Train until the study has so many trials, or no time is left to begin one.

        Raises:
            BadInput: The folder holds a run that the next trials would be taken for.
        """
        from kytolly.command.study import counted_trials

        self.refuse_other_runs(len(self.study.get_trials()))
        self.left = trials - len(counted_trials(self.study))
        self.until = math.inf if timeout is None else time.monotonic() + timeout
        jobs = max(1, min(jobs, self.left))
        print_line(f"{max(0, self.left)} trials to train, {jobs} at a time, in {self.folder}")
        run_children(jobs, self.next_child, self.report, self.end_child)

    def refuse_other_runs(self, num_trials: int) -> None:
        """Refuse a folder with trials that the study does not have: they are another study's."""
        for run_dir in sorted(self.folder.glob("trial-*")):
            number = run_dir.name.removeprefix("trial-")
            if number.isascii() and number.isdigit() and int(number) >= num_trials:
                raise other_run(run_dir)

    def next_child(self) -> ChildRun | None:
        """The run of the next trial whose settings fit together."""
        from kytolly.agent.algorithms import make_config
        from kytolly.record.files import write_text
        from kytolly.record.run_folder import yaml_text

        while self.left > 0 and time.monotonic() < self.until:
            self.left -= 1
            trial = self.study.ask(self.distributions)
            name = f"trial {trial.number}"
            self.asked[name] = trial
            seed = (self.config.seed + trial.number) % (MOST_SEED + 1)
            values = {**dataclasses.asdict(self.config), **trial.params, "seed": seed}
            try:
                cfg = make_config(values)
            except ValueError as error:
                self.fail(name, str(error))
                continue
            run_dir = self.folder / f"trial-{trial.number}"
            if os.path.lexists(run_dir):  # made by somebody else since this command began
                raise other_run(run_dir)
            file = self.folder / f"{run_dir.name}.yaml"
            write_text(file, yaml_text(cfg, {"environment": self.environment}))
            words = ["train", cfg.algorithm, "--env", self.environment, "--json"]
            words += ["--config", str(file), "--log-dir", str(run_dir)]
            words += ["--trust"] if cfg.wrappers else []  # this process was trusted with them
            return ChildRun(name, run_dir, words)
        return None

    def report(self, child: ChildRun) -> None:
        """Report new evaluations, and stop a run that lags behind the others."""
        trial, own = self.asked[child.name], self.config.evaluation_interval_env_steps
        interval = own or max(1, self.config.total_env_steps // EVALUATIONS)
        for env_steps, value in child.new_evaluations():
            if math.isfinite(value):
                trial.report(value, env_steps // interval)
        if not child.stopped and trial.should_prune():
            child.stop()

    def end_child(self, child: ChildRun) -> None:
        """Tell the study how a trial ended; what is wrong at once is wrong for all."""
        result, name = None if child.process.returncode else child.result(), child.name
        shutil.rmtree(child.run_dir / "checkpoints", ignore_errors=True)  # no trial is continued
        if result is not None and math.isfinite(result["evaluation"]["return_mean"]):
            value = result["evaluation"]["return_mean"]
            self.study.tell(self.asked[name], value)
            self.print_trial(name, f"return {value:.1f} after {child.seconds:.1f} s")
        elif child.stopped:
            from optuna.trial import TrialState

            told = self.study.tell(self.asked[name], state=TrialState.PRUNED)
            self.print_trial(name, f"pruned at return {told.value:.1f}, {child.seconds:.1f} s")
        else:
            self.fail(name, child.problem())
            if child.process.returncode == 2 and not child.run_dir.exists():
                raise BadInput(child.problem())

    def fail(self, name: str, why: str) -> None:
        """Tell the study that a trial has no return."""
        from optuna.trial import TrialState

        from kytolly.command.study import FAILED

        self.asked[name].set_user_attr(FAILED, why)
        self.study.tell(self.asked[name], state=TrialState.FAIL)
        self.print_trial(name, f"failed: {why}")

    def print_trial(self, name: str, how: str) -> None:
        """Print a trial's line."""
        from kytolly.command.study import best_trial

        best = best_trial(self.study)
        so_far = "" if best is None else f" (best {best.value:.1f}, trial {best.number})"
        settings = settings_words(self.asked[name].params)
        print_line(f"{name}: {how}{so_far}; {settings}")


def run(args: argparse.Namespace) -> int:
    """Search, and write what was found."""
    from kytolly.command.study import hold_study, import_optuna, open_study
    from kytolly.config.files import read_settings
    from kytolly.config.search_space import SEARCH_SPACES, search_space

    train.check_algorithm(args.algorithm, list(SEARCH_SPACES))
    began, flags = time.perf_counter(), train.given_flags(args)
    cfg, env = train.given_config(args)
    given = set(flags) | set(read_settings(args.config)[0] if args.config else {})
    space = search_space(cfg.algorithm, given)
    import_optuna()
    file = study_file(args.study, env, cfg.algorithm)
    folder = file.with_suffix("")
    settings = {k: v for k, v in dataclasses.asdict(cfg).items() if k not in ("seed", *space)}
    task = {"algorithm": cfg.algorithm, "environment": env, "settings": settings, "space": space}
    is_new = not file.exists()
    if is_new and folder.exists() and any(folder.iterdir()):
        raise BadInput(
            f"{folder} holds files, and there is no study {file} that they belong to, expected a "
            "new folder for the trials. Choose another --study."
        )
    with hold_study(file):
        study = open_study(file, task, cfg.seed)
        folder.mkdir(exist_ok=True)
        search = Search(study, space, cfg, env, folder)
        try:
            search.run(args.trials, args.jobs or default_jobs(), args.timeout)
        except KeyboardInterrupt:
            found = save_findings(study, cfg, env, file, time.perf_counter() - began)
            raise KeyboardInterrupt(
                f"{len(found['trials'])} of {args.trials} trials are in {file}. The same command "
                f"with --study {file} continues."
            ) from None
        except BadInput:
            if is_new and not any(path.is_dir() for path in folder.iterdir()):
                # nothing can train with it
                file.unlink()
                shutil.rmtree(folder)
            raise
        found = save_findings(study, cfg, env, file, time.perf_counter() - began)
    print_findings(found, sys.stderr if args.json else sys.stdout)
    if args.json:
        print(json.dumps(found))
    return 0 if found["best"] else 1


def other_run(run_dir: Path) -> BadInput:
    """The error where a run stands in the place of a trial that has not begun."""
    return BadInput(
        f"{run_dir} exists, and the study has no such trial yet, expected a new folder for each: "
        "its result would be taken for the trial's. Move it away, or choose another --study."
    )


def study_file(given: str | None, env: str, algorithm: str) -> Path:
    """The study's file; its name without the end is the folder of the trials."""
    from kytolly.record.run_folder import path_part

    if given is None:
        moment = datetime.datetime.now().strftime("%Y%m%d-%H%M%S")
        return Path("runs") / f"{path_part(env)}_{algorithm}_tune_{moment}.db"
    if Path(given).suffix not in SUFFIXES or Path(given).is_dir():
        raise BadInput(
            f"--study is {given!r}, expected the name of a file that ends with "
            f"{', '.join(SUFFIXES)}, such as {Path(given).stem or 'study'}.db. Change it."
        )
    return Path(given)


def save_findings(study: Any, cfg: Any, env: str, file: Path, seconds: float) -> dict[str, Any]:
    """Write best.yaml, trials.png and result.json; returns what the last holds."""
    from kytolly.command.study import best_trial, counted_trials, settings_text
    from kytolly.record.files import write_file, write_text
    from kytolly.record.trials_plot import plot_trials

    folder, best = file.with_suffix(""), best_trial(study)
    states = {"COMPLETE": "complete", "PRUNED": "pruned", "FAIL": "failed"}
    trials = [
        {
            "number": trial.number,
            "state": states[trial.state.name],
            "value": trial.value,
            "params": trial.params,
            "run_dir": str(folder / f"trial-{trial.number}"),
            **trial.user_attrs,
        }
        for trial in counted_trials(study)
    ]
    found: dict[str, Any] = {
        "algorithm": cfg.algorithm,
        "environment": env,
        "study": str(file),
        "wall_seconds": seconds,
        "trials": trials,
        "best": None,
        "plot": None,
    }
    if trials:
        figure, picture = plot_trials(trials), folder / "trials.png"
        write_file(picture, lambda to: figure.savefig(to, dpi=120, format="png"))
        found["plot"] = str(picture)
    if best is not None:
        text = settings_text(cfg, env, best)
        config = write_text(folder / "best.yaml", text)
        found["best"] = {"number": best.number, "return_mean": best.value, "params": best.params}
        found["best"]["config"] = str(config)
    write_text(folder / "result.json", json.dumps(found, indent=2) + "\n")
    return found


def print_findings(found: dict[str, Any], file: Any) -> None:
    """Print the best trials, and what to do with them."""
    complete = [trial for trial in found["trials"] if trial["state"] == "complete"]
    complete.sort(key=lambda trial: -trial["value"])
    rows = [
        [str(trial["number"]), f"{trial['value']:.1f}", settings_words(trial["params"])]
        for trial in complete[:SHOWN_TRIALS]
    ]
    count = dict.fromkeys(("complete", "pruned", "failed"), 0)
    for trial in found["trials"]:
        count[trial["state"]] += 1
    words = ", ".join(f"{number} {name}" for name, number in count.items())
    notes = [f"{len(found['trials'])} trials: {words}, in {found['wall_seconds']:.1f} s"]
    if found["best"]:
        notes.append(
            f"Best settings: {found['best']['config']}. Their return is of one seed, and the best "
            f"of many: train several with `kytolly train {found['algorithm']} --env "
            f"{found['environment']} --config {found['best']['config']} --seeds 0-9`."
        )
    notes += [f"Plot: {found['plot']}"] * bool(found["plot"]) + [f"Study: {found['study']}"]
    print_table(["trial", "return", "settings"], rows, notes, file, text_column=2)


def settings_words(params: dict[str, Any]) -> str:
    """Settings in one line."""
    return ", ".join(
        f"{name} {value:.3g}" if isinstance(value, float) else f"{name} {value}"
        for name, value in params.items()
    )
