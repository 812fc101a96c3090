"""Agents with parts of the user's: an optimizer, a policy, or settings that follow a schedule."""

from __future__ import annotations

import dataclasses
import warnings
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from kytolly.agent.algorithms import part, part_for
from kytolly.agent.epsilon_greedy import EpsilonGreedy
from kytolly.agent.kytolly import KytollyAgent
from kytolly.config.schedules import schedule_table
from kytolly.environment.spec import EnvSpec
from kytolly.policy.batch import Rollout
from kytolly.policy.own_optimizer import follows_schedule, learning_rate_of, make_own_optimizer
from kytolly.policy.weights import make_optimizer

# What an optimizer of the user's has in place of the config's.
OF_ADAM = ("warmup_ratio", "weight_decay", "adam_epsilon")
OF_RATE = ("learning_rate", "learning_rate_final", *OF_ADAM)


class Schedule:
    """A value that is linear between the points of a table; tensor code.

    Args:
        shares: [K] shares of the run that remain, from 1 down to 0.
        values: [K] values there.
        total: Env steps of the run.
    """

    def __init__(self, shares: np.ndarray, values: np.ndarray, total: int):
        done, self.total = 1.0 - shares, total
        self.first, self.least, self.most = values[0], values.min(), values.max()
        self.starts, self.widths = done[:-1].astype(np.float32), np.diff(done).astype(np.float32)
        self.slopes = (np.diff(values) / np.diff(done)).astype(np.float32)

    def __call__(self, env_steps: Any) -> tf.Tensor:
        """[] the value after so many env steps."""
        done = tf.cast(env_steps, tf.float32) / self.total
        within = tf.clip_by_value(done - self.starts, 0.0, self.widths)
        value = self.first + tf.reduce_sum(self.slopes * within)
        return tf.clip_by_value(value, self.least, self.most)


class ScheduledEpsilon(EpsilonGreedy):
    """Epsilon-greedy exploration whose epsilon follows a schedule once learning has begun."""

    def __init__(self, cfg: Any, distribution: Any, schedule: Schedule):
        super().__init__(cfg, distribution)
        self.schedule = schedule

    def state(self, env_steps: tf.Tensor) -> tf.Tensor:
        """[1] epsilon after so many env steps."""
        begun = env_steps >= self.cfg.first_update_env_steps
        return tf.where(begun, self.schedule(env_steps), 1.0)[tf.newaxis]


class ScheduledSettings:
    """A config some of whose settings are variables, for a policy to read while it learns.

    Every iteration sets them anew, so no checkpoint holds them; TensorFlow would track a dict.
    """

    def __init__(self, cfg: Any, schedules: dict[str, Schedule]):
        self._cfg, self.schedules = cfg, schedules
        self.variables = {
            name: tf.Variable(schedule(0), trainable=False)
            for name, schedule in schedules.items()
            if name != "learning_rate"
        }

    def __getattr__(self, name: str) -> Any:
        return self.variables[name] if name in self.variables else getattr(self._cfg, name)


class OwnPartsAgent(KytollyAgent):
    """An agent whose learning rate and settings follow schedules, or the user's optimizer.

    Args:
        schedules: By setting; the learning rate's among them, if the agent sets it.
        own_rate: The optimizer's learning rate is its own.
        parts: Names of the user's classes, by part.
    """

    def __init__(
        self, *agent: Any, schedules: dict[str, Schedule], own_rate: bool, parts: dict[str, str]
    ):
        super().__init__(*agent)
        self.settings, self.own_rate = ScheduledSettings(self.cfg, schedules), own_rate
        self.part_names = tuple(parts.items())
        optimizer = self.policy.optimizer
        # What the optimizer of a resumed run has again; None where it follows its own schedule.
        self.fixed_rate = None if follows_schedule(optimizer) else float(optimizer.learning_rate)
        self.policy.cfg = self.settings
        self.latest_names = (*self.latest_names, *self.settings.variables)

    def follow_learning_rate(self) -> None:
        """Set the learning rate and the settings for the env steps so far."""
        schedules = self.settings.schedules
        for name, variable in self.settings.variables.items():
            variable.assign(schedules[name](self.env_steps))
        if "learning_rate" in schedules:
            rate = schedules["learning_rate"](self.env_steps)
            self.policy.optimizer.learning_rate = rate
        elif not self.own_rate:
            super().follow_learning_rate()

    def observe(self, rollout: Rollout) -> tuple[Any, tf.Tensor]:
        """As for every agent; the scheduled settings are metrics too."""
        opened, latest = super().observe(rollout)
        values = [variable.read_value() for variable in self.settings.variables.values()]
        return opened, tf.concat([latest, tf.stack(values)], 0) if values else latest


def make_own_agent(
    cfg: Any, env_spec: EnvSpec, network: keras.Model, own: tuple[Any, ...], scale_loss: bool
) -> OwnPartsAgent:
    """An agent of the user's parts, and of the algorithm's for the others.

    Args:
        cfg: Config.
        env_spec: What the environment is.
        network: Built network; one that was compiled with an optimizer learns by that.
        own: Optimizer, policy, and the learning rate of the config with which the run began: a
            restart after a loss that was not finite has a smaller one. () for none of them.
        scale_loss: The network computes in float16.
    """
    given, given_policy, first_rate = own or (None, None, None)
    policy = own_policy(given_policy, cfg) if given_policy else part(cfg.algorithm, "policy")
    distribution = policy.distribution_for(cfg, env_spec)
    given, parts = chosen_optimizer(given, network), {}
    tables = {name: schedule_table(cfg, name, text) for name, text in (cfg.schedules or {}).items()}
    schedules = {name: Schedule(*table, cfg.total_env_steps) for name, table in tables.items()}
    plain = dataclasses.replace(cfg, learning_rate_final=None) if "learning_rate" in tables else cfg
    own_rate = isinstance(given, keras.optimizers.Optimizer)
    if given is None:
        optimizer = make_optimizer(plain, network, scale_loss)
    else:
        factor = cfg.learning_rate / (first_rate or cfg.learning_rate)
        rate = learning_rate_of(plain)
        optimizer = make_own_optimizer(given, rate, factor, scale_loss)
        own_rate = own_rate or follows_schedule(optimizer, but=rate)
        if own_rate:
            schedules.pop("learning_rate", None)
        parts["optimizer"] = type(getattr(optimizer, "inner_optimizer", optimizer)).__name__
        if factor == 1.0:
            warn_of_ignored(cfg, parts["optimizer"], own_rate)
    if given_policy is not None:
        parts["policy"] = policy.__name__
    epsilon, make = schedules.pop("epsilon", None), part_for(cfg, "exploration")
    learning_rule = policy(network, distribution, optimizer, cfg)
    return OwnPartsAgent(
        learning_rule,
        part_for(cfg, "memory").for_config(cfg, env_spec, learning_rule.network_noise),
        ScheduledEpsilon(cfg, distribution, epsilon) if epsilon else make(cfg, distribution),
        cfg,
        env_spec,
        schedules=schedules,
        own_rate=own_rate,
        parts=parts,
    )


def own_policy(policy: Any, cfg: Any) -> Any:
    """The user's policy; TypeError where it is no class that fits the algorithm."""
    needed = part(cfg.algorithm, "policy")
    if not (isinstance(policy, type) and issubclass(policy, needed)):
        raise TypeError(
            f"policy is {policy!r:.80}, expected a subclass of {needed.__name__}, the policy of "
            f"{cfg.algorithm}. Give the class itself, or choose another algorithm."
        )
    return policy


def chosen_optimizer(given: Any, network: keras.Model) -> Any:
    """The optimizer that is given, or else that with which the network was compiled."""
    compiled = getattr(network, "optimizer", None)
    if compiled is None or not getattr(network, "compiled", False):
        return given
    name = type(compiled).__name__
    which = (
        f"{name} trains it" if given is None else f"optimizer=... is given, and {name} is unused"
    )
    warnings.warn(f"the model {network.name!r} was compiled with {name}: {which}.", stacklevel=2)
    return compiled if given is None else given


def warn_of_ignored(cfg: Any, name: str, own_rate: bool) -> None:
    """Say which settings do not count beside an optimizer of the user's."""
    defaults = {field.name: field.default for field in dataclasses.fields(cfg)}
    changed = [n for n in (OF_RATE if own_rate else OF_ADAM) if getattr(cfg, n) != defaults[n]]
    if own_rate and "learning_rate" in (cfg.schedules or {}):
        changed.append("schedules: learning_rate")
    if changed:
        whose = "its own learning rate counts" if own_rate else "they are Adam's"
        warnings.warn(
            f"the optimizer {name} is your own, so these settings have no effect: "
            f"{', '.join(changed)} ({whose}). Leave them out, or give a function of the learning "
            "rate that makes the optimizer.",
            stacklevel=2,
        )
