"""The work of every contender: a class of settings for each algorithm."""

from __future__ import annotations

import dataclasses
from typing import Literal

from kytolly.config.fields import setting

Game = Literal["Asterix", "Breakout", "Freeway", "Seaquest", "SpaceInvaders"]


def check_counts(settings: AnySettings) -> None:
    """Raise ValueError where a count or the network is empty: less would be done than is said."""
    for field in dataclasses.fields(settings):
        value = getattr(settings, field.name)
        if isinstance(value, int) and value < 1 and field.name != "seed":
            raise ValueError(f"--{field.name.replace('_', '-')} is {value}, expected at least 1.")
    if not settings.hidden or min(settings.hidden) < 1:
        raise ValueError(
            f"--hidden is {','.join(map(str, settings.hidden)) or 'empty'}, expected at least one "
            "layer of at least 1 unit, such as 64,64."
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class DQNSettings:
    """The work of DQN; the defaults are the first row of its speed table."""

    env_steps: int = setting(100_000, "env steps to time")
    num_envs: int = setting(1, "environments stepped together")
    batch_size: int = setting(128, "rows per update")
    train_interval: int = setting(10, "env steps per update")
    buffer: int = setting(10_000, "rows in the replay buffer")
    hidden: tuple[int, ...] = setting((120, 84), "units per hidden layer")
    learning_rate: float = setting(2.5e-4, "learning rate of Adam")
    target_sync_updates: int = setting(50, "updates between two hard copies to the target network")
    warmup_env_steps: int = setting(
        1_000, "env steps before the first update, while exploration decays"
    )
    gamma: float = setting(0.99, "discount per env step")
    epsilon_final: float = setting(0.05, "exploration after the warm-up")
    max_grad_norm: float = setting(
        10.0, "gradient norm above which gradients are clipped, where the competitor clips"
    )
    seed: int = setting(0, "seed of every random draw")

    def __post_init__(self) -> None:
        """Refuse settings for which a competitor would do less work than its numbers say."""
        check_counts(self)
        if self.train_interval % self.num_envs:
            raise ValueError(
                f"--train-interval ({self.train_interval}) counts env steps and is not a multiple "
                f"of --num-envs ({self.num_envs}): an update cannot fall inside a vector step."
            )
        if self.warmup_env_steps < self.batch_size:
            raise ValueError(
                f"--warmup-env-steps ({self.warmup_env_steps}) is below --batch-size "
                f"({self.batch_size}): the first update would draw from less than one batch."
            )
        if self.buffer < self.warmup_env_steps:
            raise ValueError(
                f"--buffer ({self.buffer}) holds less than --warmup-env-steps "
                f"({self.warmup_env_steps}): raise the one or lower the other."
            )

    @property
    def env_steps_per_iteration(self) -> int:
        """Env steps from one update to the next, over all environments."""
        return self.train_interval

    @property
    def target_sync_env_steps(self) -> int:
        """Env steps between two target copies, for libraries that count them in env steps."""
        return self.target_sync_updates * self.train_interval


@dataclasses.dataclass(frozen=True, kw_only=True)
class RolloutSettings:
    """The work of every learner from rollouts."""

    env_steps: int = setting(100_000, "env steps to time")
    num_envs: int = setting(4, "environments stepped together")
    num_steps: int = setting(128, "env steps of each environment per rollout")
    epochs: int = setting(4, "passes over a rollout")
    minibatches: int = setting(4, "updates per pass")
    hidden: tuple[int, ...] = setting((64, 64), "units per hidden layer")
    learning_rate: float = setting(2.5e-4, "learning rate of Adam, constant")
    gamma: float = setting(0.99, "discount per env step")
    seed: int = setting(0, "seed of every random draw")

    def __post_init__(self) -> None:
        """Refuse settings for which a competitor would do less work than its numbers say."""
        check_counts(self)
        if self.env_steps_per_iteration % self.minibatches:
            raise ValueError(
                f"A rollout of {self.num_envs} environments x {self.num_steps} steps is not a "
                f"multiple of --minibatches ({self.minibatches}): rows would be left over. Change "
                "either."
            )

    @property
    def env_steps_per_iteration(self) -> int:
        """Env steps of one rollout, over all environments."""
        return self.num_envs * self.num_steps

    @property
    def minibatch_rows(self) -> int:
        """Rows of one update."""
        return self.env_steps_per_iteration // self.minibatches

    @property
    def whole_env_steps(self) -> int:
        """`env_steps` rounded up to whole rollouts, because PPO takes no part of one."""
        return self.env_steps + -self.env_steps % self.env_steps_per_iteration


@dataclasses.dataclass(frozen=True, kw_only=True)
class PPOSettings(RolloutSettings):
    """The work of PPO; the defaults are the first row of its speed table."""

    activation: Literal["tanh", "relu"] = setting(
        "tanh", "activation of the hidden layers, of policy and value alike"
    )
    gae_lambda: float = setting(0.95, "decay of the advantage estimate")
    clip: float = setting(0.2, "how far the probability ratio may leave 1")
    entropy_coef: float = setting(0.01, "weight of the entropy bonus")
    value_coef: float = setting(0.5, "weight of the value loss")
    max_grad_norm: float = setting(0.5, "gradient norm above which gradients are clipped")

    def __post_init__(self) -> None:
        """As in the parent, and refuse minibatches whose advantages would all be 0."""
        super().__post_init__()
        if self.env_steps_per_iteration < 2 * self.minibatches:
            raise ValueError(
                f"--minibatches ({self.minibatches}) leaves one row in each: advantages are "
                "normalized within a minibatch, and those of a single row become 0."
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class RecurrentSettings(PPOSettings):
    """The work of PPO with a memory: the network of PureJaxRL's `ppo_rnn.py`."""

    hidden: tuple[int, ...] = setting(
        (128, 128), "units per hidden layer: one before the memory, then one of policy and value"
    )
    activation: Literal["tanh", "relu"] = setting("relu", "activation of the hidden layers")
    memory: Literal["gru", "lstm", "lru"] = setting("gru", "what remembers between the two layers")
    memory_units: int = setting(128, "numbers that the memory shows the other layers")

    def __post_init__(self) -> None:
        """As in the parent, and refuse minibatches of parts of sequences."""
        super().__post_init__()
        if len(self.hidden) != 2:
            raise ValueError(
                f"--hidden has {len(self.hidden)} layers, expected two: one before the memory and "
                "one after it."
            )
        if self.num_envs % self.minibatches:
            raise ValueError(
                f"--num-envs ({self.num_envs}) is no multiple of --minibatches "
                f"({self.minibatches}), expected whole sequences, one for each environment, in a "
                "minibatch. Change either."
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class PQNSettings(RolloutSettings):
    """The work of PQN: the settings of its authors for MinAtar."""

    num_envs: int = setting(128, "environments stepped together")
    num_steps: int = setting(32, "env steps of each environment per rollout")
    epochs: int = setting(2, "passes over a rollout")
    minibatches: int = setting(32, "updates per pass")
    hidden: tuple[int, ...] = setting((128,), "units of the dense layers after the convolution")
    learning_rate: float = setting(5e-4, "learning rate of Adam, constant")
    td_lambda: float = setting(0.65, "weight of longer returns in targets")
    epsilon_final: float = setting(0.05, "exploration after the first tenth of the env steps")
    max_grad_norm: float = setting(10.0, "gradient norm above which gradients are clipped")


AnySettings = DQNSettings | RolloutSettings


@dataclasses.dataclass(frozen=True, kw_only=True)
class Agents:
    """How many agents do that work, each with its own seed, in one program."""

    agents: int = setting(1, "agents that train together, each for all the env steps")

    def __post_init__(self) -> None:
        """Refuse a measurement of nothing."""
        if self.agents < 1:
            raise ValueError(f"--agents is {self.agents}, expected at least 1.")


ONE_AGENT = Agents()


ATARI_GAME = "ALE/Pong-v5"
ATARI = {  # settings in which the comparison on it differs from the defaults
    "env_steps": 2_000,
    "batch_size": 32,
    "train_interval": 4,
    "hidden": (512,),
    "learning_rate": 1e-4,
    "target_sync_updates": 250,
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class StepSettings:
    """The work of a game where env steps alone are timed."""

    game: Game = setting("Breakout", "game of MinAtar")
    num_envs: int = setting(1024, "environments stepped together")
    steps: int = setting(1_000, "steps of each environment")
    seed: int = setting(0, "seed of every random draw")


@dataclasses.dataclass(frozen=True, kw_only=True)
class ActingSettings:
    """A saved agent that acts on one observation at a time."""

    algorithm: Literal["dqn", "ppo", "ppo-recurrent"] = dataclasses.field(
        metadata={"help": "algorithm of the agent"}
    )
    path: str = dataclasses.field(metadata={"help": "file or folder of the agent"})
    make: bool = setting(False, "save an agent there instead of timing one")
    observations: int = setting(20_000, "observations to act on, one by one")
