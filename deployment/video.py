"""Videos of greedy episodes: MP4 files and GIFs, written by ffmpeg frame by frame."""

from __future__ import annotations

import errno
import importlib.util
import os
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np

from kytolly.config.words import path_text
from kytolly.deployment.rendered import Episode, frame_of, frames_per_second, play_episodes
from kytolly.environment.faults import EnvironmentFault
from kytolly.record.files import write_output

if TYPE_CHECKING:
    from kytolly.deployment.loaded_agent import LoadedAgent

GIF_FPS = 50  # browsers slow down what shows a frame for less than 2/100 s
# Each frame of a GIF has colors of its own, and holds only what has changed.
GIF_COLORS = "split[a][b];[a]palettegen=stats_mode=single[p];[b][p]paletteuse=new=1:dither=none"
GIF_END = b";"
EVEN_SIZE = "pad=ceil(iw/2)*2:ceil(ih/2)*2"  # H.264 has half as many colors as pixels in a row
FORMATS: dict[str, dict[str, Any]] = {
    ".mp4": {"codec": "libx264", "quality": 6},
    ".gif": {"codec": "gif", "quality": None, "pix_fmt_out": "pal8"},
}


def record_video(
    agent: LoadedAgent,
    env: gymnasium.Env,
    path: Path,
    episodes: int,
    seed: int = 0,
    *,
    fps: float | None = None,
    watch: Callable[[int, Episode | None], object] = lambda frames, episode: None,
) -> list[Episode]:
    """Play greedy episodes and write all of them into one video, whole or not at all.

    Args:
        agent: What plays.
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


def check_video_path(path: Path) -> None:
    """Refuse a file that exists, that is no video, or that lies in no folder.

    Raises:
        ValueError: That, or the package that writes videos is not installed.
    """
    shown = path_text(path)
    if path.suffix.lower() not in FORMATS:
        raise ValueError(f"{shown} is no video, expected a name that ends with .mp4 or .gif.")
    if os.path.lexists(path):
        raise ValueError(f"{shown} exists, expected a new file: choose another one, or remove it.")
    if not path.parent.is_dir():
        raise ValueError(
            f"{path_text(path.parent)} is no folder, expected one for {path.name}: make it first."
        )
    if importlib.util.find_spec("imageio_ffmpeg") is None:
        raise ValueError(
            "videos are written by imageio-ffmpeg, which is not installed. Install it: "
            'pip install "kytolly[video]".'
        )


class VideoFile:
    """A video that is being written.

    Args:
        path: The file.
        fps: Frames in a second.

    Attributes:
        frames: How many there are.
    """

    def __init__(self, path: Path, fps: float):
        self.path, self.frames = path, 0
        self._fps: Any = Fraction(fps).limit_denominator(1_000)
        self._shape: tuple[int, ...] = ()
        self._ffmpeg: Any = None  # imageio-ffmpeg's writer, from the first frame on

    def add(self, frame: np.ndarray) -> None:
        """Add a frame, [H, W, 3] uint8; all have the same shape."""
        if not self._shape:
            self._begin(frame)
        if frame.shape != self._shape:
            raise EnvironmentFault(
                f"a frame has shape {frame.shape} after frames of shape {self._shape}, expected "
                "the same for all."
            )
        try:
            self._ffmpeg.send(frame)
        except OSError as error:
            raise self._failure("ffmpeg ended early") from OSError(errno.EIO, str(error))
        self.frames += 1

    def finish(self) -> None:
        """Wait until the file is whole."""
        if self._ffmpeg is not None:
            self._ffmpeg.close()
        if not self.path.is_file() or not self.path.stat().st_size:
            raise self._failure("ffmpeg wrote nothing")
        if not self._is_whole():
            raise self._failure("it cannot be read again")

    def abandon(self) -> None:
        """End without a file that is worth keeping."""
        if self._ffmpeg is not None:
            self._ffmpeg.close()

    def _begin(self, frame: np.ndarray) -> None:
        import imageio_ffmpeg

        kind = self.path.suffix.lower()
        limit = f"fps={GIF_FPS}," if self._fps > GIF_FPS else ""
        filters = {".mp4": EVEN_SIZE, ".gif": limit + GIF_COLORS}[kind]
        height, width, _ = self._shape = frame.shape
        self._ffmpeg = imageio_ffmpeg.write_frames(
            self.path,
            (width, height),
            fps=self._fps,
            ffmpeg_log_level="error",
            macro_block_size=1,
            output_params=["-filter_complex", filters],
            **FORMATS[kind],
        )
        self._ffmpeg.send(None)

    def _is_whole(self) -> bool:
        """True where the file is whole: ffmpeg ends without a word where a disk is full."""
        import imageio_ffmpeg

        try:
            frames, _ = imageio_ffmpeg.count_frames_and_secs(self.path)
        except RuntimeError:
            return False
        with self.path.open("rb") as file:
            file.seek(-1, os.SEEK_END)
            last = file.read()
        return bool(frames) and (self.path.suffix.lower() != ".gif" or last == GIF_END)

    def _failure(self, what: str) -> ValueError:
        error = ValueError(
            f"the video cannot be written ({what}), expected room for it on the disk. Make room, "
            "or record fewer episodes."
        )
        error.__cause__ = OSError(errno.EIO, what)
        return error
