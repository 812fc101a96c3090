"""One member of a population-based training in a process of its own, for one of its rounds."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from kytolly.callback.base import Callback, TrainState
from kytolly.loop.host import HostState
from kytolly.record.checkpoint import FOLDER, complete_checkpoint
from kytolly.record.saved_checkpoint import check_files, path_without_pattern

PARENT = "parent"  # in a run's folder: the checkpoint of the member that it continues from


class Member(Callback):
    """Continues from the parent's checkpoint, if there is one, and ends the round.

    A parent of another moment than the run's newest checkpoint is one of an earlier round.

    Args:
        until: Env steps. The round ends with the first evaluation after them, by KeyboardInterrupt
            once the run is in a state that can be saved.

    Attributes:
        round_ended: It did.
    """

    def __init__(self, until: int):
        self.until, self.round_ended = until, False
        self._evaluated_at = 0

    def on_compile_begin(self, state: TrainState) -> None:
        """Take what the parent has learned."""
        parent = state.run_dir / PARENT / f"ckpt-{state.progress}"
        if parent.with_suffix(".json").is_file():
            take_learned(state.trackables, parent)

    def on_evaluation(self, state: TrainState) -> None:
        """Remember when."""
        self._evaluated_at = state.progress

    def on_interval_end(self, state: TrainState) -> None:
        """End the round, unless the run ends."""
        if self._evaluated_at == state.progress and self.until <= state.progress < state.total:
            self.round_ended = True
            raise KeyboardInterrupt


def take_learned(trackables: Any, checkpoint: Path) -> None:
    """Give a run at its beginning what another one has learned: weights, moments, memory, counters.

    The random stream and the number of episodes stay its own, as in a population. So do
    environments of the host and what is drawn for them: of the memory's rows, the newest then end
    episodes.

    Args:
        trackables: Of the run, with the values of its own checkpoint.
        checkpoint: The other run's, after as many env steps.
    """
    agent = trackables["agent"]
    own = [(variable, variable.numpy()) for variable in (agent.random_stream.key, agent.episodes)]
    host = trackables.get("host")
    loop = host.loop if isinstance(host, HostState) else None
    own_episodes = {} if loop is None else loop.restored
    check_files(str(checkpoint))
    with path_without_pattern(checkpoint.parent) as folder:
        whole = complete_checkpoint(trackables).read(str(folder / checkpoint.name))
    whole.assert_consumed()
    for variable, value in own:
        variable.assign(value)
    if loop is not None:
        acting = {"acting": loop.restored["acting"]} if "acting" in loop.restored else {}
        loop.set_state({**own_episodes, **acting})
        agent.memory.end_episodes()
    if agent.fixed_rate is not None:  # the config's, not the parent's
        agent.policy.optimizer.learning_rate = agent.fixed_rate
    agent.policy.publish()


def give_parent(folder: Path, parent: Path, env_steps: int) -> None:
    """Put the checkpoint of a parent into a member's folder; its list of files makes it complete.

    Args:
        folder: Of the member's run.
        parent: Of the parent's run.
        env_steps: Of both.
    """
    place, name = folder / PARENT, f"ckpt-{env_steps}"
    if (place / f"{name}.json").is_file():
        return
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    files = sorted((parent / FOLDER).glob(f"{name}.*"), key=lambda f: f.suffix == ".json")
    for file in files:
        shutil.copyfile(file, place / file.name)
