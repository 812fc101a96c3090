"""Settings of algorithms that learn from rollouts: collect, pass over the rows, forget them."""

from __future__ import annotations

import dataclasses
from fractions import Fraction
from typing import Annotated, Any

from msgspec import Meta

from kytolly.config.fields import Default, DefaultCount, Environments, EnvSteps, setting
from kytolly.config.run import RunConfig

Minibatches = Annotated[int, Meta(ge=1, le=2**17), "minibatches"]
RolloutSteps = Annotated[int, Meta(ge=1, le=10**6), "env steps"]
DEFAULT_ROWS = 1_024  # of a rollout, at least
MIN_MINIBATCH_ROWS = 64  # below which more gradients are noise
MEMORY_MINIBATCHES = 4
MAX_ROWS = 2**26  # of a rollout; an observation of 4 numbers then takes 1 GiB


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class RolloutConfig(RunConfig):
    """A rollout holds `rollout_steps` steps of each of `num_envs` environments."""

    total_env_steps: EnvSteps = setting(100_000, "length of training, all environments together")
    num_envs: Environments = setting(DefaultCount(8), "environments stepped together")
    rollout_steps: RolloutSteps = setting(
        DefaultCount(128), "steps of each environment per iteration; more where they are below 8"
    )
    epochs: Annotated[int, Meta(ge=1, le=10**4), "passes"] = setting(10, "passes over a rollout")
    num_minibatches: Minibatches = setting(
        DefaultCount(16),
        "equal parts of a rollout, with one gradient each; fewer where 16 do not fit, or have less "
        "than 64 rows",
    )
    memory_refresh: bool = setting(
        False, "bring the memory before each sequence up to date with the weights after each pass"
    )

    # Other configs have properties or fields in their place.
    kept_rollouts = 1
    sequence_kind = "rollout"  # of `agent.sequences`, for an agent with a memory
    first_update_env_steps = 0  # pyright: ignore[reportAssignmentType]  # from the first rollout on
    learning_rate_decay_updates = None  # pyright: ignore[reportAssignmentType]  # by env steps

    def __post_init__(self) -> None:
        RunConfig.__post_init__(self)
        defaults: dict[str, Any] = {field.name: field.default for field in dataclasses.fields(self)}
        if isinstance(self.rollout_steps, Default):
            steps = max(defaults["rollout_steps"], -(-DEFAULT_ROWS // self.num_envs))
            object.__setattr__(self, "rollout_steps", DefaultCount(steps))
        rows = self.env_steps_per_iteration
        product = f"num_envs {self.num_envs} x rollout_steps {self.rollout_steps}"
        if rows > MAX_ROWS:
            raise ValueError(
                f"a rollout has {rows:,} rows ({product}), expected at most {MAX_ROWS:,}. Lower "
                "one of them."
            )
        if isinstance(self.num_minibatches, Default):
            most = min(defaults["num_minibatches"], max(1, rows // MIN_MINIBATCH_ROWS))
            if self.memory is not None:  # whole sequences
                most = min(most, MEMORY_MINIBATCHES)
                rows = max(1, rows // self.sequence_length)
            count = next(n for n in range(most, 0, -1) if rows % n == 0)
            object.__setattr__(self, "num_minibatches", DefaultCount(count))
        rows = self.env_steps_per_iteration
        if self.memory is not None:
            from kytolly.config.memory import refuse_kept_rollouts, require_whole_sequences

            refuse_kept_rollouts(self.kept_rollouts)
            require_whole_sequences(
                self.rollout_steps, self.sequence_length, self.num_envs, self.num_minibatches
            )
        if rows % self.num_minibatches:
            from kytolly.config.words import nearest_divisors

            raise ValueError(
                f"num_minibatches ({self.num_minibatches}) does not divide the rollout of {rows} "
                f"rows ({product}): they must be equally large. "
                f"{nearest_divisors(rows, self.num_minibatches)} would do."
            )
        if self.num_minibatches % self.gradient_accumulation:
            raise ValueError(
                f"gradient_accumulation ({self.gradient_accumulation}) does not divide "
                f"num_minibatches ({self.num_minibatches}): the last update of a pass would lack "
                "minibatches. Change one of them."
            )

    @property
    def env_steps_per_iteration(self) -> int:
        """Rows of a rollout."""
        return self.num_envs * self.rollout_steps

    @property
    def sequence_length(self) -> int:
        """Env steps of a sequence that an agent with a memory learns from."""
        return self.memory_length or self.rollout_steps

    @property
    def updates_per_epoch(self) -> int:
        """Optimizer steps in one pass over a rollout."""
        return self.num_minibatches // self.gradient_accumulation

    @property
    def rows_per_update(self) -> int:
        """Rows behind one optimizer step."""
        return self.env_steps_per_iteration // self.updates_per_epoch

    def in_smaller_batches(self, factor: int) -> Any:
        """The same updates, each from `factor` times as many batches; it divides a batch."""
        batches = self.gradient_accumulation * factor
        count = self.num_minibatches * factor
        return dataclasses.replace(self, num_minibatches=count, gradient_accumulation=batches)

    @property
    def updates_per_iteration(self) -> int:
        """Optimizer steps in all passes over a rollout, unless the policy ends them."""
        return self.epochs * self.updates_per_epoch

    @property
    def updates_per_env_step(self) -> Fraction:
        """Updates over env steps."""
        return Fraction(self.updates_per_iteration, self.env_steps_per_iteration)
