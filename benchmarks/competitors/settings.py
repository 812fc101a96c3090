"""The work of every contender: a class of settings for each algorithm."""

from __future__ import annotations

import argparse
import dataclasses
from typing import NamedTuple

ACTIVATIONS = ("tanh", "relu")


def check_counts(settings: AnySettings, *counts: str) -> None:
    """Raise ValueError where one of the named counts, or the network, is empty."""
    for name in counts:
        if (found := getattr(settings, name)) < 1:
            raise ValueError(f"--{name.replace('_', '-')} is {found}, expected at least 1.")
    if not settings.hidden or min(settings.hidden) < 1:
        raise ValueError(
            f"--hidden is {','.join(map(str, settings.hidden)) or 'empty'}, expected at least one "
            "layer of at least 1 unit, such as 64,64."
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    """The work of DQN; the defaults are the first row of its speed table."""

    env_steps: int = 100_000  # steady-state env steps to time
    num_envs: int = 1  # environments stepped together
    batch_size: int = 128  # rows per update
    train_interval: int = 10  # env steps per update
    buffer: int = 10_000  # rows in the replay buffer
    hidden: tuple[int, ...] = (120, 84)  # units per hidden layer
    learning_rate: float = 2.5e-4  # Adam's
    target_sync_updates: int = 50  # updates between two hard copies to the target network
    warmup_env_steps: int = 1_000  # collected before the first update; exploration decays here
    gamma: float = 0.99  # discount per env step
    epsilon_final: float = 0.05  # exploration after the warm-up
    max_grad_norm: float = 10.0  # where the competitor clips gradients
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse settings for which a competitor would do less work than its numbers say."""
        check_counts(
            self,
            "env_steps",
            "num_envs",
            "batch_size",
            "train_interval",
            "buffer",
            "target_sync_updates",
            "warmup_env_steps",
        )
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

    env_steps: int = 100_000  # steady-state env steps to time
    num_envs: int = 4  # environments stepped together
    num_steps: int = 128  # env steps of each environment per rollout
    epochs: int = 4  # passes over a rollout
    minibatches: int = 4  # updates per pass
    hidden: tuple[int, ...] = (64, 64)  # units per hidden layer
    learning_rate: float = 2.5e-4  # Adam's; constant
    gamma: float = 0.99  # discount per env step
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse settings for which a competitor would do less work than its numbers say."""
        check_counts(self, "env_steps", "num_envs", "num_steps", "epochs", "minibatches")
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

    activation: str = "tanh"  # activation of the hidden layers, of policy and value alike
    gae_lambda: float = 0.95
    clip: float = 0.2  # how far the probability ratio may leave 1
    entropy_coef: float = 0.01
    value_coef: float = 0.5
    max_grad_norm: float = 0.5

    def __post_init__(self) -> None:
        """As in the parent."""
        super().__post_init__()
        if self.activation not in ACTIVATIONS:
            raise ValueError(
                f"--activation is {self.activation}, expected one of {', '.join(ACTIVATIONS)}."
            )
        if self.env_steps_per_iteration < 2 * self.minibatches:
            raise ValueError(
                f"--minibatches ({self.minibatches}) leaves one row in each: advantages are "
                "normalized within a minibatch, and those of a single row become 0."
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class PQNSettings(RolloutSettings):
    """The work of PQN: the settings of its authors for MinAtar."""

    num_envs: int = 128
    num_steps: int = 32
    epochs: int = 2
    minibatches: int = 32
    hidden: tuple[int, ...] = (128,)  # units of the dense layers after the convolution
    learning_rate: float = 5e-4
    td_lambda: float = 0.65
    epsilon_final: float = 0.05
    max_grad_norm: float = 10.0


AnySettings = Settings | PPOSettings | PQNSettings


class StepSettings(NamedTuple):
    """The work of a game where env steps alone are timed."""

    game: str = "Breakout"
    num_envs: int = 1024  # environments stepped together
    steps: int = 1_000  # of each environment
    seed: int = 0


def step_parser(program: str, doc: str | None, argv: list[str] | None) -> StepSettings:
    """Read the command line of a program that times env steps."""
    parser = argparse.ArgumentParser(
        prog=f"python -m kytolly.benchmarks.{program}", description=(doc or "").partition("\n")[0]
    )
    for name, default in StepSettings()._asdict().items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=type(default), default=default)
    return StepSettings(**vars(parser.parse_args(argv)))
