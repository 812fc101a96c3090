"""What several runs must have in common to be one population, and the population of them."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kytolly.config.fields import Default
from kytolly.config.run import RunConfig
from kytolly.config.words import path_text
from kytolly.environment.registry import TENSOR_ENVIRONMENTS

if TYPE_CHECKING:
    from kytolly.agent.parts import Model
    from kytolly.experiment.pbt import PopulationBased
    from kytolly.experiment.population import PopulationTraining, Say
    from kytolly.loop.base import EnvSource
    from kytolly.loop.device import TensorEnvRunner
    from kytolly.training_run import TrainResult

GROUP_FILE = "group.yaml"  # in a folder that holds the runs of several seeds
SWEEP_FILE = "sweep.yaml"  # in a folder that holds the groups of a sweep


def shared_yaml_text(config: RunConfig, beside: Mapping[str, object]) -> str:
    """As `yaml_text`, for several runs: names the settings that each may still choose itself."""
    from kytolly.record.run_folder import yaml_text

    fields = dataclasses.fields(config)
    names = [field.name for field in fields if isinstance(getattr(config, field.name), Default)]
    return yaml_text(config, {**beside, "not_given": names} if names else beside)


def reason_apart(cfg: RunConfig, env: str) -> str | None:
    """Why runs need processes of their own, in a few words; None where one program can hold them.

    Args:
        cfg: What the runs share.
        env: The id of their environment.
    """
    if env not in TENSOR_ENVIRONMENTS:
        return f"{env} is no tensor code, and a program cannot hold its environments"
    if cfg.env_kwargs:
        from kytolly.environment.gym.wrapped import is_ours_alone

        if not is_ours_alone(env):
            return f"arguments of {env} are for Gymnasium's, and a program cannot hold that"
    return unfit_setting(cfg)


def unfit_setting(cfg: RunConfig) -> str | None:
    """The setting with which a run needs a process of its own, in words; None where none does."""
    if cfg.loop == "host":
        return "loop is host, and a program cannot hold environments of the host"
    if cfg.wrappers:
        return "wrappers are for environments of the host"
    if "," in cfg.device or cfg.device == "gpus":
        return f"device is {cfg.device}, and a program of many agents has one device"
    if cfg.on_nan != "stop":
        return f"on_nan is {cfg.on_nan}, and a run cannot go back without the others"
    if cfg.on_oom != "stop":
        return f"on_oom is {cfg.on_oom}, and a run cannot become smaller without the others"
    return None


def prepare_population(
    configs: Sequence[RunConfig],
    env: EnvSource,
    folders: Sequence[Path],
    say: Say,
    *,
    model: Model | None = None,
    resume: bool = False,
    init_run: Path | None = None,
    wanted: Sequence[int] | None = None,
    pbt: PopulationBased | None = None,
) -> PopulationTraining:
    """The population of runs, which has not begun.

    Args:
        configs: One for each member, as the user gave them.
        env: As for `Trainer.train`.
        folders: Folder of each member's run.
        say: Shows a line of progress.
        model: As for `Trainer.train`.
        resume: Continue the runs in the folders.
        init_run: The run whose weights all members begin with.
        wanted: The members that train; None: all.
        pbt: What makes weak members continue from strong ones.

    Raises:
        ValueError: The runs cannot be one program, or do not fit the memory.
    """
    from kytolly.experiment.population import PopulationTraining
    from kytolly.loop.device import TensorEnvRunner
    from kytolly.loop.env_runner import configured_source, make_env_runner
    from kytolly.machine.facts import device_name
    from kytolly.training_run import fitted_config

    first = configs[0]
    others = [cfg.algorithm for cfg in configs if cfg.algorithm != first.algorithm]
    if others:
        raise ValueError(
            f"a population has {first.algorithm} and {others[0]}, expected one algorithm: its "
            "members are one program. Train a population of each."
        )
    reasons = [reason for cfg in configs if (reason := unfit_setting(cfg))]
    if reasons:
        raise apart_error(reasons[0])
    runner = make_env_runner(first, configured_source(first, env))
    if not isinstance(runner, TensorEnvRunner):
        runner.close()
        name = env if isinstance(env, str) else type(env).__name__
        raise apart_error(f"{name} is no tensor code, and a program cannot hold its environments")
    fitted = [fitted_config(cfg, runner, model) for cfg in configs]
    device = device_name(first.device)
    _require_room(fitted, runner, model, device)
    options = (device, model, resume, init_run, say, wanted, pbt)
    return PopulationTraining(fitted, runner, folders, *options)


def apart_error(reason: str) -> ValueError:
    """The error where runs cannot be one program."""
    return ValueError(
        f"{reason}: expected runs that one program can train. Train each in a process of its own, "
        "as `kytolly train ALGO --seeds 0-9 --apart` does."
    )


def train_population(
    configs: Sequence[RunConfig],
    env: EnvSource,
    log_dir: Path | None,
    say: Say,
    *,
    model: Model | None = None,
    resume: bool = False,
    init: str | Path | None = None,
) -> list[TrainResult]:
    """Train many agents in one program; `Trainer.train_population` describes it.

    Args:
        configs: One for each member.
        env: Where all of them train.
        log_dir: The folder of the members' folders; None: a new one in `runs/`.
        say: Shows a line of progress.
        model: The user's network.
        resume: Continue the runs in `log_dir`.
        init: The run whose weights all members begin with.
    """
    from kytolly.config.files import read_settings
    from kytolly.deployment.initial_weights import resolve_init_run
    from kytolly.record.files import write_text
    from kytolly.record.run_folder import RunFolder, versions

    if not configs:
        raise ValueError("train_population got no configs, expected at least one. Give one.")
    name = env if isinstance(env, str) else type(env).__name__
    if resume:
        if log_dir is None or not (log_dir / GROUP_FILE).is_file():
            raise ValueError(
                f"{'log_dir' if log_dir is None else path_text(log_dir)} has no {GROUP_FILE}, "
                "expected the folder of a population to resume: Trainer(log_dir='runs/NAME')."
            )
        if init is not None:
            resolve_init_run(init, log_dir, resume)  # which says that they do not go together
        init = read_settings(log_dir / GROUP_FILE)[1].get("init")
    init_run = None if init is None else resolve_init_run(init, None, False)
    folder = (
        RunFolder(log_dir).lock_folder()
        if resume and log_dir is not None
        else RunFolder.create(log_dir, f"{name}_{configs[0].algorithm}_population")
    )
    folders = [folder.path / name for name in member_names([cfg.seed for cfg in configs])]
    with folder:
        try:
            training = prepare_population(
                configs, env, folders, say, model=model, resume=resume, init_run=init_run
            )
        except ValueError:
            folder.remove_if_empty()
            raise
        if not resume:
            beside = {"environment": training.runner.spec.name, "versions": versions()}
            beside |= {} if init_run is None else {"init": str(init_run)}
            write_text(folder.path / GROUP_FILE, shared_yaml_text(training.configs[0], beside))
        results = training.train()
        if training.problems:
            raise ValueError(
                f"{len(training.problems)} of {len(configs)} members failed: "
                + "; ".join(f"{folders[m].name}: {why}" for m, why in training.problems.items())
                + f". The others are whole, in {path_text(folder.path)}."
            )
        return [
            saved_result(path) if result is None else with_own_agent(result)
            for path, result in zip(folders, results, strict=True)
        ]


def print_progress(line: str) -> None:
    """Print a line on standard error."""
    print(line, file=sys.stderr, flush=True)


def quiet(line: str) -> None:
    """Show no progress."""


def member_names(seeds: Sequence[int]) -> list[str]:
    """Names of the members' folders: of their seeds, or of their places where seeds repeat."""
    if len(set(seeds)) == len(seeds):
        return [f"seed-{seed}" for seed in seeds]
    return [f"member-{member}" for member in range(len(seeds))]


def with_own_agent(result: TrainResult) -> TrainResult:
    """A member's result with an agent of its own: while it trained, all members had one."""
    from kytolly.deployment.loaded_agent import load
    from kytolly.record.checkpoint import BEST

    has_weights = (result.run_dir / BEST).is_file()  # none where the loss was never finite
    return dataclasses.replace(result, agent=load(result.run_dir) if has_weights else None)


def saved_result(run_dir: Path) -> TrainResult:
    """The result of a run that had ended before."""
    import json

    from kytolly.callback.base import Evaluation
    from kytolly.record.metrics_file import NAME, number_in, read_rows
    from kytolly.training_run import TrainResult

    summary = json.loads((run_dir / "result.json").read_text("utf-8"))
    rows = read_rows(run_dir / NAME)
    history = [{name: number_in(row, name) for name in row} for row in rows]
    evaluation = Evaluation(**summary["evaluation"])
    stopped_by = summary["stopped_by"]
    return with_own_agent(TrainResult(None, history, evaluation, run_dir, stopped_by, summary))


def _require_room(
    configs: Sequence[RunConfig], runner: TensorEnvRunner, model: Model | None, device: str | None
) -> None:
    """Refuse more members than the memory holds."""
    from kytolly.agent.algorithms import part
    from kytolly.environment.mask import without_mask
    from kytolly.machine.memory import require_population_memory, training_bytes

    cfg, spec = configs[0], runner.spec
    params = part(cfg.algorithm, "policy").distribution_for(cfg, spec).num_params
    seen = without_mask(spec.obs)
    parts = training_bytes(cfg, seen, params, model, spec.frame_stack)
    require_population_memory(sum(parts.values()), len(configs), device)
