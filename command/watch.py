"""`kytolly watch`: shows a run's best weights in a window, played greedily."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
from collections.abc import Mapping, Sequence

from kytolly.command.exits import BadInput
from kytolly.command.play import (
    add_play_options,
    episode_line,
    episodes_summary,
    load_and_make,
)
from kytolly.config.words import path_text


def add_options(parser: argparse.ArgumentParser, words: Sequence[str]) -> None:
    """Add the options of `kytolly watch`."""
    add_play_options(parser, 5)


def run(args: argparse.Namespace) -> int:
    """Play in a window until the episodes have ended, or the window is closed."""
    if not has_display(sys.platform, os.environ):
        raise BadInput(
            "there is no display (neither DISPLAY nor WAYLAND_DISPLAY is set), expected one for a "
            f"window. `kytolly record {path_text(args.run_dir)}` writes a video instead."
        )
    agent, env = load_and_make(args, "human")
    from kytolly.deployment.rendered import Episode, is_window_closed, play_episodes
    from kytolly.environment.faults import closing

    played: list[Episode] = []
    stream = sys.stderr if args.json else sys.stdout

    def stop_if_closed() -> None:
        if is_window_closed():
            raise WindowClosed

    with closing(env, args.env or args.run_dir), contextlib.suppress(WindowClosed):
        try:
            for episode in play_episodes(agent, env, args.episodes, args.seed, stop_if_closed):
                played.append(episode)
                print(episode_line(len(played), episode), file=stream, flush=True)
        except KeyboardInterrupt:
            raise KeyboardInterrupt(f"{len(played)} episodes were played.") from None
    if args.json:
        print(json.dumps({"episodes": episodes_summary(played), "run_dir": args.run_dir}))
    return 0


class WindowClosed(BaseException):
    """The user has closed the window; no exception, so that no environment can take it as one."""


def has_display(system: str, variables: Mapping[str, str]) -> bool:
    """True where a window can be shown.

    Args:
        system: As in `sys.platform`.
        variables: The process's environment variables.
    """
    if not system.startswith("linux"):
        return True
    return bool(variables.get("DISPLAY") or variables.get("WAYLAND_DISPLAY"))
