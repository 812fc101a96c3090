"""Exports an agent's act function, and compares the file with the agent before it is kept."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import importlib.util
import os
import shutil
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from kytolly.agent.acting import HostObs
from kytolly.agent.kytolly import KytollyAgent
from kytolly.config.words import path_text
from kytolly.deployment.act_function import (
    ActFunction,
    ActingParts,
    Run,
    acting_parts,
    carried_outputs,
    float32_outputs,
    greedy_actions,
    rows,
)
from kytolly.deployment.comparison import (
    Comparison,
    action_times,
    compare,
    compare_returns,
    equal_rows,
    require_agreement,
)
from kytolly.deployment.loaded_agent import LoadedAgent
from kytolly.deployment.observations import (
    closing_playground,
    play_observations,
    random_observations,
)
from kytolly.deployment.zoo import zoo_dir
from kytolly.environment.gym.step import GymSource
from kytolly.record.files import PARTIAL

OBSERVATIONS = 1_000  # on which a file is compared with the agent
EPISODES = 20
SEED = 0


class Format(NamedTuple):
    """A row of the table of formats.

    Attributes:
        name: The file's, or the folder's, in the run's folder.
        packages: Modules that it needs beside TensorFlow.
        quantizes: How its weights can be made smaller.
    """

    name: str
    packages: tuple[str, ...] = ()
    quantizes: tuple[str, ...] = ()


FORMATS = {  # each is a module of this room with `write` and `load`
    "saved_model": Format("saved_model"),
    "litert": Format("policy.tflite", ("ai_edge_litert",), ("float16", "int8")),
    "onnx": Format("policy.onnx", ("tf2onnx", "onnx", "onnxruntime")),
}


@dataclasses.dataclass(frozen=True)
class ExportReport:
    """The written files, and how they compare with the agent.

    Attributes:
        path: The file, or the folder.
        format, quantize: As asked for.
        size_bytes: Of the file, or of all files in the folder.
        observations: On how many the file and the agent were compared.
        observed: Where these came from.
        largest_difference: Of the values, or of params and value, from those of the agent's network
            in float32.
        relative_difference: The same, of each output divided by its largest number where that is
            above 1.
        equal_actions: Rows whose action is that of the agent's network in float32.
        near_ties: Rows among the others whose values are too close for their precision.
        action_difference: Of continuous actions, the largest; None for discrete ones.
        agent_precision: In what the agent's own network computes.
        equal_to_agent: Rows whose action is that of the agent in its own precision.
        microseconds: For one action, by what computes it: the agent, and files.
        returns: Of episodes played by the agent and by the file; None where none were.
    """

    path: Path
    format: str
    quantize: str | None
    size_bytes: int
    observations: int
    observed: str
    largest_difference: float
    relative_difference: float
    equal_actions: int
    near_ties: int
    action_difference: float | None
    agent_precision: str
    equal_to_agent: int
    microseconds: dict[str, float]
    returns: dict[str, dict[str, Any]] | None

    def summary(self) -> dict[str, Any]:
        """The same as JSON can hold it."""
        return {**dataclasses.asdict(self), "path": str(self.path)}


def export(
    agent: KytollyAgent | LoadedAgent,
    format: str,
    path: str | Path | None = None,
    *,
    quantize: str | None = None,
    env: GymSource | None = None,
    episodes: int | None = None,
) -> ExportReport:
    """Write an agent's greedy act function as a file that needs no kytolly.

    The file is compared with the agent on 1,000 observations, from playing where the environment
    can be made, and kept only if it agrees: to 1e-4 of the largest value, and in every action but
    for near ties. Of a quantized file the differences are reported, and the returns of episodes
    beside the agent's.

    Args:
        agent: `kytolly.load(RUN)`, or the `agent` of a training's result.
        format: "saved_model" (a folder), "litert" or "onnx".
        path: Where to write, which must not exist; None takes the run's folder.
        quantize: "float16" or "int8", for litert.
        env: What makes the environment, where its name does not: an id or a function.
        episodes: How many to play by the agent and as many by the file; None means 20 where the
            file is quantized, and otherwise 0.

    Raises:
        ValueError: An argument does not fit, a package is missing, or the file does not agree.
    """
    parts = acting_parts(agent)
    run_dir = agent.path if isinstance(agent, LoadedAgent) else None
    target = check_export(run_dir, format, path, quantize)
    obs, observed = make_observations(parts, env)
    act = ActFunction(parts, narrow_mask=quantize == "int8", unrolled=format == "litert")
    run, result, same = write_and_compare(parts, act, obs, target, format, quantize)
    if episodes is None:
        episodes = 0 if quantize is None else EPISODES
    return ExportReport(
        path=target,
        format=format,
        quantize=quantize,
        size_bytes=size_bytes(target),
        observations=OBSERVATIONS,
        observed=observed,
        largest_difference=result.largest_difference,
        relative_difference=result.relative_difference,
        equal_actions=result.equal_actions,
        near_ties=result.near_ties,
        action_difference=result.action_difference,
        agent_precision=parts.network.compute_dtype,
        equal_to_agent=same,
        microseconds=action_times(
            parts, act, obs, {**exports_beside(act, obs, target, format), format: run}
        ),
        returns=compare_returns(parts, act, env, run, episodes, SEED + 1) if episodes else None,
    )


def make_observations(parts: ActingParts, env: GymSource | None) -> tuple[HostObs, str]:
    """Observations to compare on, and where they come from."""
    with closing_playground(parts, env, SEED) as playground:
        if isinstance(playground, str):
            obs = random_observations(parts, OBSERVATIONS, SEED)
            return obs, f"drawn at random, because {playground}"
        obs = play_observations(parts, playground, OBSERVATIONS, SEED)
        return obs, f"from playing {playground.spec.name}"


def write_and_compare(
    parts: ActingParts,
    act: ActFunction,
    obs: HostObs,
    path: Path,
    format: str,
    quantize: str | None,
) -> tuple[Run, Comparison, int]:
    """Write a file that agrees, or none; how to run it, and how it compares.

    The last number counts the actions that are those of the agent in its own precision.
    """
    inputs = act.named_inputs(obs)
    module = format_module(format)
    partial = partial_path(path)
    remove(partial)
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        module.write(act, partial, inputs, quantize)
        run = module.load(partial)
        if parts.has_memory:
            outputs = carried_outputs(lambda now: run(act.named_inputs(now)), obs)
        else:
            outputs = run(inputs)
        result = compare(parts, outputs, float32_outputs(parts, obs))
        require_agreement(result, OBSERVATIONS, path, quantize)
        os.rename(partial, path)
    finally:
        remove(partial)
    return run, result, int(equal_rows(outputs["action"], greedy_actions(parts, obs)).sum())


def exports_beside(act: ActFunction, obs: HostObs, path: Path, format: str) -> dict[str, Run]:
    """Functions that run the other formats' files in the same folder, of the same agent.

    Not a SavedModel: it is a program, and the folder may be a stranger's.
    """
    inputs = act.named_inputs(rows(obs, slice(0, 1)))
    runtimes = {}
    for name, row in FORMATS.items():
        known = all(importlib.util.find_spec(package) for package in row.packages)
        if name in (format, "saved_model") or not known or not path.with_name(row.name).exists():
            continue
        with contextlib.suppress(Exception):  # another agent's; every runtime has its own error
            run = format_module(name).load(path.with_name(row.name))
            run(inputs)
            runtimes[name] = run
    return runtimes


def check_export(
    run_dir: str | Path | None, format: str, path: str | Path | None, quantize: str | None
) -> Path:
    """The path of an export; ValueError where there can be none."""
    check_format(format, quantize)
    target = export_path(run_dir, format, path, quantize)
    if target.exists() or target.is_symlink():
        raise ValueError(
            f"{target} exists, expected a new path: an export overwrites nothing. Choose another "
            "one, or remove it."
        )
    require_writable(target)
    return target


LONGEST_FILE = "1/variables/variables.data-00000-of-00001"  # in the folder of a SavedModel


def require_writable(target: Path) -> None:
    """ValueError where no file of that name can be made, found out before there is work to lose."""
    try:
        (partial_path(target) / LONGEST_FILE).exists()  # fails where that is too long a path
        folder = next(parent for parent in target.absolute().parents if parent.is_dir())
        probe = partial_path(folder / target.name)
        remove(probe)
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise ValueError(
            f"{path_text(target)} cannot be written ({error.strerror}), expected a new file or "
            "folder in one that is writable. Choose another path."
        ) from None


def partial_path(target: Path) -> Path:
    """The path of an export until it has been compared."""
    return target.with_name(f"{PARTIAL}{target.name}")


def check_format(format: str, quantize: str | None) -> None:
    """ValueError where there is no such format, it cannot be quantized so, or a package lacks."""
    if format not in FORMATS:
        raise ValueError(f"format is {format!r}, expected one of {', '.join(FORMATS)}.")
    row = FORMATS[format]
    if quantize is not None and quantize not in row.quantizes:
        able = [
            f"{name} ({', '.join(row.quantizes)})" for name, row in FORMATS.items() if row.quantizes
        ]
        raise ValueError(
            f"quantize is {quantize!r}, which {format} does not have; expected none. What "
            f"quantizes: {', '.join(able)}."
        )
    missing = [name for name in row.packages if importlib.util.find_spec(name) is None]
    if missing:
        raise ValueError(
            f"{format} needs the package {missing[0].replace('_', '-')}, which is not installed: "
            'pip install "kytolly[export]".'
        )


def format_module(format: str) -> ModuleType:
    """The module that writes and loads a format."""
    return importlib.import_module(f"kytolly.deployment.{format}")


def export_path(
    run_dir: str | Path | None, format: str, path: str | Path | None, quantize: str | None
) -> Path:
    """The path to write to."""
    if path is not None:
        return Path(path)
    if run_dir is None or Path(run_dir).is_relative_to(zoo_dir()):
        raise ValueError(
            "export() got no path, and the agent was not loaded from a run of yours: name the file "
            "or folder to write."
        )
    name = Path(FORMATS[format].name)
    return Path(run_dir) / (f"{name.stem}.{quantize}{name.suffix}" if quantize else name)


def size_bytes(path: Path) -> int:
    """Bytes of a file, or of the files in a folder."""
    files = [path] if path.is_file() else [p for p in path.rglob("*") if p.is_file()]
    return sum(file.stat().st_size for file in files)


def remove(path: Path) -> None:
    """Remove a file or a folder, if there is one."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
