"""Videos of greedy episodes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium

from kytolly.deployment.episodes import Episode, play_episodes
from kytolly.deployment.rendered import frame_of, frames_per_second
from kytolly.deployment.video_file import VideoFile, check_video_path
from kytolly.record.files import write_output


def record_video(
    agent: Any,
    env: gymnasium.Env,
    path: Path,
    episodes: int,
    seed: int = 0,
    *,
    fps: float | None = None,
    watch: Callable[[int, Episode | None], Any] = lambda frames, episode: None,
) -> list[Episode]:
    """Play greedy episodes and write all of them into one video, whole or not at all.

    Args:
        agent: A `LoadedAgent`.
        env: Made with the render mode `rgb_array`; the caller closes it.
        path: A new file; its ending, .mp4 or .gif, says in which format.
        episodes: How many.
        seed: Seed of the environment.
        fps: Env steps shown in a second; None takes what the environment says.
        watch: Called with the number of frames so far after each frame, and with the episode
            where one has ended.

    Raises:
        ValueError: The path or the environment does not fit; a package is not installed.
        EnvironmentFault: The environment fails.
    """
    check_video_path(path)
    played: list[Episode] = []

    def write(partial: Path) -> None:
        partial.open("wb").close()  # fails before an episode is played, if at all
        video = VideoFile(partial, fps or frames_per_second(env))
        unwritten: list[ValueError] = []

        def show() -> None:
            frame = frame_of(env)
            try:
                video.add(frame)
            except ValueError as error:  # it passes through the environment, whose fault it is not
                unwritten.append(error)
                raise
            watch(video.frames, None)

        try:
            for episode in play_episodes(agent, env, episodes, seed, show):
                played.append(episode)
                watch(video.frames, episode)
        except BaseException:
            video.abandon()
            if unwritten:
                raise unwritten[0] from unwritten[0].__cause__
            raise
        video.finish()

    write_output(path, write)
    return played
