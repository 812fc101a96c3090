"""Settings of the DQN family."""

from __future__ import annotations

import dataclasses
import itertools
import math
from fractions import Fraction
from typing import TYPE_CHECKING, Annotated, Any, Literal

from msgspec import Meta

from kytolly.config.fields import (
    Default,
    DefaultCount,
    DefaultShare,
    EnvSteps,
    NotNegative,
    Positive,
    Rows,
    Share,
    Widths,
    setting,
)
from kytolly.config.run import RunConfig

if TYPE_CHECKING:
    from kytolly.environment.spec import EnvSpec

_Updates = Annotated[int, Meta(ge=1, le=10**6), "updates"]
NETWORKS = Literal[
    "auto", "mlp", "table", "cnn", "small_cnn", "grid_cnn", "impala",
    "dueling", "dueling_auto", "dueling_cnn", "dueling_small_cnn", "dueling_grid_cnn",
    "dueling_impala",
]  # fmt: skip
HIDDEN_UNITS = (120, 84)
AVERAGE_SHARE = 0.1  # of the updates so far: more lags behind a run that learns late
AVERAGE_UPDATES = 4  # between two steps of the target network, where it is an average
AVERAGE_MIX, NORM_MIX = 0.02, 0.04  # of the target network; norms hold a faster one in range
COPY_UPDATES = 200  # between two copies of the network: sooner ones make values diverge
MLP_STEPS, NORM_STEPS = 5, 3  # of a row, which carry a reward as far as five updates
TABLE_STEPS = 1  # exact, whoever acted
LATER_MIDDLE, LATER_FINAL = 0.1, 0.02  # epsilons with norms or noise, if neither is given
IMAGES = {"n_step": 1, "updates_per_interval": 8}  # more unlearn what images and grids had taught
SEQUENCES = {"updates_per_interval": 8}  # with a memory more unlearn, too
MEMORY_STEPS = 16  # of a sequence
MAX_ROWS = 2**28  # drawn in an iteration, each of their steps counted; one column takes 1 GiB


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class DQNConfig(RunConfig):
    """Settings of the DQN family. A field that counts something names its unit."""

    algorithm: Literal["dqn", "ddqn"] = setting("dqn", "dqn, or ddqn for double Q-learning")
    network: NETWORKS = setting(
        "auto",
        "architecture; auto: cnn for images, grid_cnn for grids of bools or small integers, table "
        "for a Discrete observation where the algorithm can, else mlp; dueling: state value plus "
        "advantages",
    )
    hidden_units: Widths = setting(HIDDEN_UNITS, "widths of the hidden layers")
    layer_norm: bool | None = setting(
        None,
        "normalize what each hidden layer passes on; none: with dqn and ddqn in networks of layers "
        "alone",
    )
    impala_width: Annotated[int, Meta(ge=1, le=64)] = setting(
        2, "channels of the network impala, times 16, 32 and 32"
    )
    impala_pool_size: Annotated[int, Meta(ge=0, le=64)] = setting(
        6, "cells of a side whose maxima the network impala passes on; 0: every pixel"
    )
    spectral_norm: bool = setting(
        False, "divide impala's residual kernels by their largest singular value"
    )
    learning_rate: Positive = setting(1e-3, "Adam's step size at the start")
    learning_rate_final: NotNegative | None = setting(
        0.0, "Adam's step size at the end of the run, reached linearly; none: constant"
    )
    adam_epsilon: Positive = setting(1e-7, "constant in Adam's denominator (epsilon-hat)")
    reward_scale: Annotated[float, Meta(gt=0, le=1e6)] | None = setting(
        None,
        "factor of the rewards learned from: errors are in its units; none: 1 over the size of the "
        "returns seen so far, which the network keeps",
    )
    gamma: Share = setting(0.99, "discount per env step, not per n-step row")
    n_step: Annotated[int, Meta(ge=1, le=1_000), "env steps"] = setting(
        DefaultCount(MLP_STEPS),
        "rewards summed before bootstrapping; 3 with norms, 1 with a table, images or grids",
    )
    cut_at_exploration: bool | None = setting(
        None, "sum no reward after a later random action; none: no with norms, else yes"
    )
    double: bool = setting(False, "let the online network pick the next action of a target")
    noisy: bool = setting(False, "explore by noise in the network's weights beside epsilon")
    noise_scale: Positive = setting(0.1, "noise of a weight at first, times the root of the inputs")
    prioritized: bool = setting(False, "draw rows by how wrong their estimates were")
    priority_exponent: Share = setting(
        0.5, "power of an error in its row's probability of being drawn; 0: uniform"
    )
    importance_exponent: Share = setting(
        0.4, "power of the weights that correct for the probabilities, at first; it rises to 1"
    )
    batch_size: Rows = setting(128, "rows whose gradient is computed at once")
    replay_capacity: Annotated[int, Meta(ge=1, le=2**31 - 1), "rows"] = setting(
        50_000, "transitions that the replay memory holds"
    )
    warmup_env_steps: EnvSteps = setting(1_000, "random actions before the first update")
    train_interval_env_steps: EnvSteps = setting(
        32, "env steps before each learning phase, rounded to whole steps of all environments"
    )
    updates_per_interval: _Updates = setting(
        DefaultCount(24),
        "updates after each train interval; 8 for images, grids and with a memory",
    )
    acting_interval_env_steps: EnvSteps | None = setting(
        None,
        "env steps that the host loop acts with the same weights, in whole train intervals; none: "
        "one train interval, or several where one is shorter than 32 env steps",
    )
    target_sync_updates: _Updates = setting(
        DefaultCount(AVERAGE_UPDATES),
        "updates between two changes of the target network; 200 if they are copies",
    )
    target_mix: Annotated[float, Meta(gt=0, le=1)] | None = setting(
        None,
        "online weights' share in each change of the target; 1: a copy; below 1: a Polyak average; "
        "none: 0.02, with layer_norm 0.04, or 1 where target_sync_updates is 10 or more",
    )
    average_share: Share | None = setting(
        None,
        "share of the updates so far over which the target's weights are averaged into those that "
        "are evaluated and saved; 0: the target's, or the online ones with copies; none: 0.1, or 0 "
        "with copies",
    )
    huber_delta: Annotated[Positive, "reward"] | None = setting(
        None, "TD error above which loss is linear; none: 1, more in rows with a large reward"
    )
    max_grad_norm: Positive | None = setting(
        10.0, "largest norm of the gradient of all weights together; none: any"
    )
    epsilon_start: Share = setting(1.0, "share of random actions after warm-up")
    epsilon_final: Share = setting(
        DefaultShare(0.04),
        "share of random actions at the end; 0.02 where epsilon_middle becomes 0.1",
    )
    exploration_env_steps: EnvSteps = setting(5_000, "length of epsilon's linear decay")
    epsilon_middle: Share | None = setting(
        None,
        "share of random actions after exploration_env_steps, which falls on to epsilon_final "
        "until the run ends; none: epsilon_final, or with layer_norm or noisy 0.1, if neither is "
        "given",
    )
    exploration_repeat: Annotated[int, Meta(ge=1, le=10_000), "steps"] | None = setting(
        None,
        "steps of an environment for which a random action lasts, at most a train interval; none: "
        "1 to 32, drawn for each interval while epsilon falls, then 1, as always with a table; 8 "
        "to 32, and epsilon 0.2 or more, until 10 rewards differed from the first",
    )
    memory_burn_in: Annotated[int, Meta(ge=0, le=10**4), "env steps"] | None = setting(
        None,
        "steps before those that are learned from, which only bring the memory up to date; none: "
        "half of memory_length",
    )
    munchausen = False  # a setting of most others of the family
    outputs_per_action = 1  # numbers that the network gives for each action
    units_of_weights = ("reward_scale",)  # settings without which learned weights mean nothing

    def __post_init__(self) -> None:
        RunConfig.__post_init__(self)
        if self.algorithm == "ddqn":  # the older name of the setting
            object.__setattr__(self, "double", True)
        if self.network == "table":
            from kytolly.config.table import check_table

            check_table(self)
        if isinstance(self.n_step, Default):
            steps = TABLE_STEPS if self.network == "table" else MLP_STEPS
            object.__setattr__(self, "n_step", DefaultCount(steps))
        if isinstance(self.target_sync_updates, Default):
            updates = COPY_UPDATES if self.target_mix == 1.0 else AVERAGE_UPDATES
            object.__setattr__(self, "target_sync_updates", DefaultCount(updates))
        if self.layer_norm and not self.can_have_norms:
            raise ValueError(
                f"layer_norm is set for {self.algorithm}, with network {self.network}, noisy "
                f"{self.noisy} and memory {self.memory}, expected dqn, ddqn or munchausen with "
                "network auto or mlp, no noise and no memory. Leave it out."
            )
        window = f"n_step {self.n_step}"
        if self.memory is not None:
            from kytolly.config.memory import require_learnable, require_whole_batches

            require_learnable(self)
            window += f", memory_length {self.sequence_length}, memory_burn_in {self.burn_in}"
            require_whole_batches(self.batch_size, self.gradient_accumulation, self.sequence_length)
        rows = self.env_steps_per_iteration
        needed = rows * (1 + self.window_steps)
        if self.warmup_env_steps < self.rows_per_update:
            times = f" x gradient_accumulation ({self.gradient_accumulation})"
            raise ValueError(
                f"warmup_env_steps ({self.warmup_env_steps}) is below batch_size "
                f"({self.batch_size}){times if self.gradient_accumulation > 1 else ''}: the first "
                "update would draw from less than one batch. Raise warmup_env_steps or lower "
                "batch_size."
            )
        if self.replay_capacity < self.warmup_env_steps:
            raise ValueError(
                f"replay_capacity ({self.replay_capacity}) is below warmup_env_steps "
                f"({self.warmup_env_steps}): warm-up would never end. Raise replay_capacity or "
                "lower warmup_env_steps."
            )
        if -(-self.total_env_steps // rows) * rows < self.first_update_env_steps:
            raise ValueError(
                f"total_env_steps ({self.total_env_steps:,}) ends before the first update, which "
                f"needs {self.first_update_env_steps:,} env steps (warmup_env_steps "
                f"{self.warmup_env_steps:,}, {window}): nothing would be learned. Raise "
                "total_env_steps or lower one of these."
            )
        falls = ("epsilon_start", "epsilon_middle", "epsilon_final")
        epsilon = {k: getattr(self, k) for k in falls if getattr(self, k) is not None}
        for (name, first), (later, second) in itertools.pairwise(epsilon.items()):
            if second > first:
                raise ValueError(
                    f"{later} ({second}) is above {name} ({first}): exploration only falls. Swap "
                    "them."
                )
        if needed > self.replay_capacity:
            raise ValueError(
                f"replay_capacity ({self.replay_capacity}) is too small for {rows} rows per train "
                f"interval and {window}: at least {needed} are needed. Raise replay_capacity or "
                "lower num_envs, train_interval_env_steps or one of these."
            )
        if self.updates_per_iteration * self.rows_per_update * self.window_steps > MAX_ROWS:
            raise ValueError(
                f"an iteration draws {self.updates_per_iteration} batches of "
                f"{self.rows_per_update} rows of {window}, expected at most {MAX_ROWS:,} in all. "
                "Lower updates_per_interval, batch_size or one of these."
            )

    def fitted_to(self, spec: EnvSpec, own_network: bool = False) -> RunConfig:
        """As in the parent, with the network of ours that fits, and what it learns best with.

        `auto` becomes `table` for numbered states, layers have norms, and images learn slower.
        """
        images = IMAGES if spec.has_images and not own_network else {}
        slower = SEQUENCES if self.memory else images
        fitted: Any = {k: v for k, v in slower.items() if isinstance(getattr(self, k), Default)}
        if own_network:
            return RunConfig.fitted_to(dataclasses.replace(self, **fitted), spec, own_network)
        if self.network == "table" and not spec.has_states:
            raise ValueError(
                f"network is 'table', and an observation of {spec.name} is not one of a few "
                "numbered states, expected a Discrete observation space. Set network='auto'."
            )
        cannot = self.noisy or self.layer_norm or self.normalize_observations
        plain = self.network == "auto" and self.memory is None and self.hidden_units == HIDDEN_UNITS
        table = spec.has_states and plain and self.outputs_per_action == 1 and not cannot
        fitted |= {"network": "table"} if table else {}
        fit = self.can_have_norms and not (table or spec.has_images or self.munchausen)
        norms = fitted["layer_norm"] = fit if self.layer_norm is None else self.layer_norm
        if norms and not spec.has_states:  # there random actions would be learned from
            if self.cut_at_exploration is None:
                fitted["cut_at_exploration"] = False
            if isinstance(self.n_step, Default):
                fitted["n_step"] = NORM_STEPS
        falls_on = isinstance(self.epsilon_final, Default) and self.epsilon_middle is None
        if falls_on and (norms or self.noisy):
            fitted["epsilon_middle"] = min(LATER_MIDDLE, self.epsilon_start)
            fitted["epsilon_final"] = LATER_FINAL
        return RunConfig.fitted_to(dataclasses.replace(self, **fitted), spec)

    @property
    def can_have_norms(self) -> bool:
        """True where the network is one stream of layers, or begins with convolutions."""
        stream = self.network in ("auto", "mlp") and self.outputs_per_action == 1
        return stream and not self.noisy and self.memory is None

    @property
    def mix(self) -> float:
        """The online weights' share in each change of the target network."""
        averaged = NORM_MIX if self.layer_norm else AVERAGE_MIX
        usual = 1.0 if self.target_sync_updates >= 10 else averaged
        return usual if self.target_mix is None else self.target_mix

    @property
    def averaged_share(self) -> float:
        """As for every config, of the target network's changes."""
        if self.average_share is not None:
            return self.average_share
        return AVERAGE_SHARE if self.mix < 1.0 else 0.0

    @property
    def cuts_n_step(self) -> bool:
        """True where the n rewards of a row end before a random action."""
        return self.cut_at_exploration is not False and self.n_step > 1

    @property
    def sequence_length(self) -> int:
        """Env steps of a sequence that an agent with a memory learns from."""
        return self.memory_length or MEMORY_STEPS

    @property
    def sequence_kind(self) -> str:
        """Where sequences come from, of `agent.sequences`."""
        return "prioritized" if self.prioritized else "replay"

    @property
    def burn_in(self) -> int:
        """Env steps before a sequence, through which the memory is brought up to date."""
        return self.sequence_length // 2 if self.memory_burn_in is None else self.memory_burn_in

    @property
    def window_steps(self) -> int:
        """Consecutive rows that one row of a batch, or a sequence of them, is made of."""
        if self.memory is None:
            return self.n_step
        return self.burn_in + self.sequence_length + self.n_step - 1

    @property
    def rows_per_update(self) -> int:
        """Rows behind one optimizer step."""
        return self.batch_size * self.gradient_accumulation

    def in_smaller_batches(self, factor: int) -> DQNConfig:
        """The same updates, each from `factor` times as many batches; it divides a batch."""
        batches = self.gradient_accumulation * factor
        rows = self.batch_size // factor
        return dataclasses.replace(self, batch_size=rows, gradient_accumulation=batches)

    @property
    def rollout_steps(self) -> int:
        """Steps of each environment in an iteration: the train interval, rounded."""
        return max(1, round(self.train_interval_env_steps / self.num_envs))

    @property
    def env_steps_per_iteration(self) -> int:
        """Env steps of all environments between two times of learning."""
        return self.num_envs * self.rollout_steps

    @property
    def first_update_env_steps(self) -> int:
        """Env steps before the first update: those of warm-up, and of a whole window of rows."""
        return max(self.warmup_env_steps, (self.window_steps - 1) * self.num_envs + 1)

    @property
    def updates_per_env_step(self) -> Fraction:
        """Updates over env steps, as configured for any number of environments."""
        return Fraction(self.updates_per_interval, self.train_interval_env_steps)

    @property
    def updates_per_iteration(self) -> int:
        """Most updates of an iteration; others make one less where the ratio is not whole."""
        return math.ceil(self.updates_per_env_step * self.env_steps_per_iteration)

    @property
    def learning_rate_decay_updates(self) -> int:
        """Updates over which the learning rate falls: those of the whole run."""
        learns = self.total_env_steps - self.first_update_env_steps
        return max(1, int(learns * self.updates_per_env_step))
