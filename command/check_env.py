"""`kytolly check-env`: compares an environment with what it promises, and says what to mend."""

from __future__ import annotations

import argparse
import json
import sys
import threading
from collections.abc import Sequence

from kytolly.command.environment_options import add_environment_options, import_from_here
from kytolly.command.options import environment, positive, seconds, seed
from kytolly.command.result import print_line
from kytolly.command.start import prepare_machine

SLOW_SECONDS = 5.0  # after which the command says why it takes so long


def add_options(parser: argparse.ArgumentParser, words: Sequence[str]) -> None:
    """Add the options of `kytolly check-env`."""
    add = parser.add_argument
    text = "Gymnasium id, or module:id to import it first"
    add("env", type=environment, metavar="ENV", help=text)
    add_environment_options(parser)
    add("--steps", type=positive, default=1_000, help="env steps to play")
    add(
        "--timeout",
        type=seconds,
        metavar="SECONDS",
        default=60.0,
        help="most that a constructor, a reset or a step may take; default 60",
    )
    add("--seed", type=seed, default=0, help="seed of environment and actions")


def run(args: argparse.Namespace) -> int:
    """Print the findings; exit status 1 if one of them is an error."""
    prepare_machine()
    from kytolly.environment.gym.conformance import findings_of
    from kytolly.environment.gym.wrapped import wrapped_source

    given = getattr(args, "env_kwargs", None), getattr(args, "wrappers", ())
    import_from_here(args.env, *given[1])
    stream = sys.stderr if args.json else sys.stdout
    findings = []
    text = f"Each of several checks plays {args.steps:,} env steps, which takes a while here: "
    slow = threading.Timer(SLOW_SECONDS, print_line, [f"{text}--steps gives another number."])
    slow.daemon = True
    slow.start()
    try:
        for f in findings_of(wrapped_source(args.env, *given), args.steps, args.seed, args.timeout):
            findings.append(f)
            print(f"{f.level:8} {f.check:18} {f.text}".rstrip(), file=stream, flush=True)
    finally:
        slow.cancel()
    levels = [finding.level for finding in findings]
    failed = "error" in levels
    print(f"{args.env} {verdict(levels)}.", file=stream)
    if args.json:
        rows = [finding._asdict() for finding in findings]
        print(json.dumps({"environment": args.env, "ok": not failed, "findings": rows}))
    return 1 if failed else 0


def verdict(levels: Sequence[str]) -> str:
    """What the levels of all findings say of an environment."""
    if "error" in levels:
        return "cannot be trusted yet"
    count = levels.count("warning")
    if count:
        return f"can be trained in, with what the warning{'s say' if count > 1 else ' says'}"
    return "does what it promises"
