"""`kytolly export`: writes a run's act function as a file that needs no kytolly."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kytolly.command.environment_options import import_from_here
from kytolly.command.exits import BadInput
from kytolly.command.options import add_run, add_trust, environment, episodes, path
from kytolly.command.start import hide_standard_error, prepare_machine
from kytolly.deployment.zoo import zoo_dir

if TYPE_CHECKING:
    from kytolly.deployment.export import ExportReport


def add_options(parser: argparse.ArgumentParser, words: Sequence[str]) -> None:
    """Add the options of `kytolly export`."""
    add = parser.add_argument
    add_run(parser)
    add("--format", choices=("saved_model", "litert", "onnx"), required=True, help="what to write")
    add(
        "--out",
        type=path,
        metavar="OUT",
        help="file or folder to write; default: in the run's folder",
    )
    add("--quantize", choices=("float16", "int8"), help="make the weights smaller (litert)")
    add("--env", type=environment, help="environment to play in; default: the run's own")
    add_trust(parser)
    add("--episodes", type=episodes, help="episodes to play by the agent, and by a quantized file")


def run(args: argparse.Namespace) -> int:
    """Export, and print how the file compares with the agent."""
    if args.out is None and Path(args.run_dir).is_relative_to(zoo_dir()):
        raise BadInput("--out is missing: nothing is written into the zoo. Give a file or folder.")
    prepare_machine()
    from kytolly.deployment.export import check_export, export
    from kytolly.deployment.loaded_agent import load
    from kytolly.environment.gym.wrapped import wrapped_source

    check_export(args.run_dir, args.format, args.out, args.quantize)
    agent = load(args.run_dir)
    env = args.env
    if env:
        import_from_here(env)
    elif args.trust:
        import_from_here(agent.env_name, *(agent.cfg.wrappers or ()))
        env = wrapped_source(agent.env_name, agent.cfg.env_kwargs, agent.cfg.wrappers or ())
    with hide_standard_error():  # converters print much
        report = export(
            agent, args.format, args.out, quantize=args.quantize, env=env, episodes=args.episodes
        )
    print(json.dumps(report.summary()) if args.json else report_text(report))
    return 0


def report_text(report: ExportReport) -> str:
    """The report as a few lines for a reader."""
    count = report.observations
    quantized = report.quantize or "float32"
    ties = f", {report.near_ties} of the others nearly tied" if report.near_ties else ""
    differs = (
        f"outputs differ by at most {report.largest_difference:.1e} "
        f"({report.relative_difference:.1e} of the largest)"
    )
    equal = f"; {report.equal_actions:,} of {count:,} actions equal{ties}"
    if report.action_difference is not None:
        differs += f", actions by {report.action_difference:.1e}"
        equal = "" if report.quantize else equal  # no rounded number equals another
    lines = [
        f"Export: {report.path} ({report.format}, {quantized}, {report.size_bytes:,} bytes)",
        f"Compared on {count:,} observations {report.observed}: {differs}{equal}",
    ]
    if report.agent_precision != "float32":
        lines.append(
            f"The agent computes in {report.agent_precision}, the file does not: "
            f"{report.equal_to_agent:,} of {count:,} actions are equal to the agent's own"
        )
    times = ", ".join(f"{name} {value:.1f}" for name, value in report.microseconds.items())
    lines.append(f"Microseconds for one action: {times}")
    for name, played in (report.returns or {}).items():
        if played["return_mean"] is None:
            lines.append(f"Return of the {name}: no episode ended")
            continue
        lines.append(
            f"Return of the {name}: {played['return_mean']:.1f} ± {played['return_std']:.1f} over "
            f"{played['episodes']} greedy episodes"
        )
    if report.quantize and report.returns is None:
        lines.append("Returns were not measured: nothing can be played. Give --env.")
    return "\n".join(lines)
