"""`kytolly record`: writes a video of a run's best weights, played greedily."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from kytolly.command.exits import print_problem
from kytolly.command.options import path, positive_number
from kytolly.command.play import (
    add_play_options,
    episode_line,
    episodes_summary,
    load_and_make,
)

if TYPE_CHECKING:
    from kytolly.deployment.rendered import Episode

PROGRESS_SECONDS = 2.0
MAX_FPS = 1_000


def add_options(parser: argparse.ArgumentParser, words: Sequence[str]) -> None:
    """Add the options of `kytolly record`."""
    add_play_options(parser, 3)
    add = parser.add_argument
    add(
        "--out",
        type=path,
        metavar="FILE",
        help="new file that ends with .mp4 or .gif; default: ENV_ALGO.mp4 in this folder",
    )
    add("--fps", type=fps, help="env steps in a second of video; default: as the environment says")


def fps(text: str) -> float:
    """Frames in a second."""
    return positive_number(text, MAX_FPS, "a number")


def run(args: argparse.Namespace) -> int:
    """Play, write the video and print the return of each episode."""
    from kytolly.deployment.trained_run import read_run
    from kytolly.record.run_folder import path_part

    _, saved, _ = read_run(args.run_dir)
    name = path_part(f"{saved.environment}_{saved.settings['algorithm']}")
    out = Path(args.out or f"{name}.mp4")
    from kytolly.deployment.video import check_video_path

    check_video_path(out)  # before anything that takes time
    agent, env = load_and_make(args, "rgb_array")
    from kytolly.deployment.video import record_video
    from kytolly.environment.faults import closing

    with closing(env, name):
        report = Report(args.episodes, sys.stderr if args.json else sys.stdout)
        played = record_video(agent, env, out, args.episodes, args.seed, fps=args.fps, watch=report)
    if args.json:
        summary = {"video": str(out), "frames": report.frames, "run_dir": args.run_dir}
        print(json.dumps({"episodes": episodes_summary(played), **summary}))
    else:
        print(f"Video: {out} ({report.frames:,} frames, {out.stat().st_size / 1e3:,.0f} kB)")
    return 0


class Report:
    """Prints each episode when it has ended and, while one lasts, a line every few seconds.

    Args:
        episodes: How many there will be.
        stream: Where episodes are printed.

    Attributes:
        frames: Frames so far.
    """

    def __init__(self, episodes: int, stream: TextIO):
        self.frames = 0
        self._episodes, self._stream, self._ended = episodes, stream, 0
        self._said = time.monotonic()

    def __call__(self, frames: int, episode: Episode | None) -> None:
        """See `record_video`."""
        self.frames = frames
        now = time.monotonic()
        if episode is not None:
            self._ended += 1
            print(episode_line(self._ended, episode), file=self._stream, flush=True)
        elif now - self._said >= PROGRESS_SECONDS:
            print_problem(
                f"episode {self._ended + 1} of {self._episodes}, {frames:,} frames so far"
            )
        else:
            return
        self._said = now
