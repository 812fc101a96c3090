"""An agent's parts with some of the user's: an optimizer, a policy, or schedules of numbers."""

from __future__ import annotations

import dataclasses
import warnings
from typing import Any

import keras

from kytolly.agent.algorithms import part
from kytolly.agent.parts import AgentParts, CustomParts, MakeOptimizer, Optimizer
from kytolly.agent.schedules import Fall, Schedule, ScheduledNumbers
from kytolly.config.run import RunConfig
from kytolly.policy.adam import follows_schedule, inner_optimizer
from kytolly.policy.base import Policy
from kytolly.policy.optimizers import make_optimizer

# What an optimizer of the user's has in place of the config's.
OF_ADAM = ("warmup_ratio", "weight_decay", "adam_epsilon")
OF_RATE = ("learning_rate", "learning_rate_final", *OF_ADAM)


def make_custom_parts(
    cfg: RunConfig, network: keras.Model, custom: CustomParts, scale_loss: bool
) -> AgentParts:
    """The user's parts, and the algorithm's for the others.

    Args:
        cfg: Config.
        network: Built network; one that was compiled with an optimizer learns by that.
        custom: The user's parts.
        scale_loss: The network computes in float16.
    """
    policy = custom_policy(custom.policy, cfg)
    plain = without_fall(cfg)
    numbers, names = scheduled_numbers(cfg), {}
    chosen = chosen_optimizer(custom.optimizer, network)
    if chosen is None:
        optimizer = make_optimizer(plain, network, scale_loss)
    else:
        from kytolly.policy.custom_optimizer import learning_rate_of, make_custom_optimizer

        factor = cfg.learning_rate / (custom.first_rate or cfg.learning_rate)
        rate = learning_rate_of(plain)
        optimizer = make_custom_optimizer(chosen, rate, factor, scale_loss)
        has_rate = isinstance(chosen, Optimizer) or follows_schedule(optimizer, but=rate)
        if has_rate:
            numbers.pop("learning_rate", None)
        names["optimizer"] = type(inner_optimizer(optimizer)).__name__
        if factor == 1.0:
            warn_of_ignored(cfg, names["optimizer"], has_rate)
    if custom.policy is not None:
        names["policy"] = policy.__name__
    epsilon: Any = numbers.pop("epsilon", None)  # a table, or none
    return AgentParts(policy, optimizer, ScheduledNumbers(numbers), epsilon, names)


def without_fall(cfg: RunConfig) -> RunConfig:
    """The config with no fall of the learning rate beside a schedule of it."""
    has_schedule = "learning_rate" in (cfg.schedules or {})
    return dataclasses.replace(cfg, learning_rate_final=None) if has_schedule else cfg


def scheduled_numbers(cfg: RunConfig) -> dict[str, Fall | Schedule]:
    """All schedules of a config, by the name of the number; epsilon is one."""
    return {**ScheduledNumbers.of(without_fall(cfg)).schedules, **configured_schedules(cfg)}


def configured_schedules(cfg: RunConfig) -> dict[str, Schedule]:
    """The schedules of `cfg.schedules`, by the name of the number."""
    if not isinstance(cfg.schedules, dict):  # None; a text has become a dict
        return {}
    from kytolly.config.schedules import schedule_table

    return {
        name: Schedule(*schedule_table(cfg, name, text), cfg.total_env_steps)
        for name, text in cfg.schedules.items()
    }


def custom_policy(policy: type[Policy] | None, cfg: RunConfig) -> type[Policy]:
    """The user's policy, or the algorithm's; TypeError where it is no class that fits."""
    needed = part(cfg.algorithm, "policy")
    if policy is None:
        return needed
    if not (isinstance(policy, type) and issubclass(policy, needed)):
        raise TypeError(
            f"policy is {policy!r:.80}, expected a subclass of {needed.__name__}, the policy of "
            f"{cfg.algorithm}. Give the class itself, or choose another algorithm."
        )
    return policy


def chosen_optimizer(
    given: Optimizer | MakeOptimizer | None, network: keras.Model
) -> Optimizer | MakeOptimizer | None:
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


def warn_of_ignored(cfg: RunConfig, name: str, has_rate: bool) -> None:
    """Say which settings do not count beside an optimizer of the user's."""
    defaults = {field.name: field.default for field in dataclasses.fields(cfg)}
    changed = [n for n in (OF_RATE if has_rate else OF_ADAM) if getattr(cfg, n) != defaults[n]]
    if has_rate and "learning_rate" in (cfg.schedules or {}):
        changed.append("schedules: learning_rate")
    if changed:
        whose = "its own learning rate counts" if has_rate else "they are Adam's"
        warnings.warn(
            f"the optimizer {name} is your own, so these settings have no effect: "
            f"{', '.join(changed)} ({whose}). Leave them out, or give a function of the learning "
            "rate that makes the optimizer.",
            stacklevel=2,
        )
