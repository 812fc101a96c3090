"""How long an episode of an evaluation may last that has no time limit of its own."""

from __future__ import annotations

import warnings

from kytolly.callback.base import TrainState

STEP_LIMIT = 27_000  # env steps, as in Atari; the episode is cut there
LEAST_IN_TRAINING = 1_000  # env steps


def training_step_limit(state: TrainState) -> int:
    """Env steps of an episode of an evaluation during training, where nothing else limits them.

    A tenth of the interval between two evaluations, within bounds: a policy that never reaches an
    end must not take longer to evaluate than to train.
    """
    return min(STEP_LIMIT, max(LEAST_IN_TRAINING, state.interval("evaluation", 20) // 10))


class EpisodeLimit:
    """The longest episode of an evaluator, and one warning when an episode was cut.

    Args:
        name: Name of the environment.
        env_steps: Where an episode is cut; None takes `STEP_LIMIT`.
    """

    def __init__(self, name: str, env_steps: int | None = None):
        self.name, self.env_steps = name, env_steps or STEP_LIMIT
        self._has_warned = False

    def warn_of_cut(self) -> None:
        """Say that an episode was cut, the first time."""
        if self._has_warned:
            return
        self._has_warned, rest = True, ""
        if self.env_steps < STEP_LIMIT:
            rest = f" during training; the last evaluation of a run plays up to {STEP_LIMIT:,}"
        warnings.warn(
            f"An evaluation episode of {self.name} did not end within {self.env_steps:,} env steps "
            f"and was cut there{rest}. Give the environment a time limit (max_episode_steps, or "
            "Gymnasium's TimeLimit).",
            stacklevel=2,
        )
