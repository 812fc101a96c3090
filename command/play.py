"""Options of the commands that play a run, and what `kytolly record` and `kytolly watch` play."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from kytolly.command.environment_options import (
    add_environment_options,
    played_environment,
)
from kytolly.command.options import add_run, add_trust, environment, episodes, seed
from kytolly.command.start import prepare_machine

if TYPE_CHECKING:
    import gymnasium

    from kytolly.deployment.loaded_agent import LoadedAgent
    from kytolly.deployment.rendered import Episode


def add_play_options(
    parser: argparse.ArgumentParser, default_episodes: int, default_seed: int | None = 0
) -> None:
    """Add RUN, and which episodes are played."""
    add_run(parser)
    add = parser.add_argument
    add("--episodes", type=episodes, default=default_episodes, help="episodes to play")
    add("--env", type=environment, help="environment to play in; default: the run's own")
    add_environment_options(parser)
    add_trust(parser)
    told = "" if default_seed is None else f"; default {default_seed}"
    add("--seed", type=seed, default=default_seed, help=f"seed of the episodes{told}")


def load_and_make(args: argparse.Namespace, mode: str) -> tuple[LoadedAgent, gymnasium.Env]:
    """The agent of a run, and its environment in a render mode."""
    from kytolly.deployment.trained_run import read_run

    trained = read_run(args.run_dir)
    name, arguments, wrappers = played_environment(args, trained)
    prepare_machine(trained.cfg)
    from kytolly.deployment.loaded_agent import load
    from kytolly.deployment.rendered import make_rendered

    env = make_rendered(name, mode, arguments, wrappers)  # first: what it lacks is known at once
    return load(trained.folder.path), env


def episode_line(number: int, episode: Episode) -> str:
    """The line that is printed of an episode."""
    from kytolly.callback.base import places

    total = episode.episode_return
    digits = 1 if total == round(total, 1) else places(total)
    return f"Episode {number}: return {total:.{digits}f}, {episode.length:,} steps"


def episodes_summary(played: Sequence[Episode]) -> list[dict[str, float]]:
    """The episodes in JSON."""
    return [{"return": each.episode_return, "length": each.length} for each in played]
