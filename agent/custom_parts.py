"""Agents with parts of the user's: an optimizer, a policy, or numbers that follow a schedule."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable

import keras

from kytolly.agent.algorithms import part, part_for
from kytolly.agent.kytolly import KytollyAgent
from kytolly.agent.schedules import Schedule, ScheduledNumbers
from kytolly.config.run import RunConfig
from kytolly.environment.spec import EnvSpec
from kytolly.policy.base import Policy
from kytolly.policy.optimizers import follows_schedule, make_optimizer

# What an optimizer of the user's has in place of the config's.
OF_ADAM = ("warmup_ratio", "weight_decay", "adam_epsilon")
OF_RATE = ("learning_rate", "learning_rate_final", *OF_ADAM)
Optimizer = keras.optimizers.Optimizer
MakeOptimizer = Callable[..., Optimizer]  # of the learning rate


@dataclasses.dataclass(frozen=True)
class CustomParts:
    """What a user gives in place of an algorithm's parts; None for the algorithm's.

    Attributes:
        optimizer: Keras optimizer, or a function of the learning rate that makes one.
        policy: Subclass of the algorithm's policy.
        first_rate: Learning rate of the config with which the run began: a restart after a loss
            that was not finite has a smaller one. None: that of the config.
    """

    optimizer: Optimizer | MakeOptimizer | None = None
    policy: type[Policy] | None = None
    first_rate: float | None = None

    @property
    def given(self) -> bool:
        """Whether there is any."""
        return self.optimizer is not None or self.policy is not None


def make_custom_agent(
    cfg: RunConfig,
    env_spec: EnvSpec,
    network: keras.Model,
    custom: CustomParts,
    scale_loss: bool,
) -> KytollyAgent:
    """An agent of the user's parts, and of the algorithm's for the others.

    Args:
        cfg: Config.
        env_spec: What the environment is.
        network: Built network; one that was compiled with an optimizer learns by that.
        custom: The user's parts.
        scale_loss: The network computes in float16.
    """
    policy = custom_policy(custom.policy, cfg)
    distribution = policy.distribution_for(cfg, env_spec)
    schedules = configured_schedules(cfg)
    plain = cfg
    if "learning_rate" in schedules:
        plain = dataclasses.replace(cfg, learning_rate_final=None)
    numbers, parts = dict(ScheduledNumbers.of(plain).schedules), {}
    given = chosen_optimizer(custom.optimizer, network)
    if given is None:
        optimizer = make_optimizer(plain, network, scale_loss)
    else:
        from kytolly.policy.custom_optimizer import learning_rate_of, make_custom_optimizer

        factor = cfg.learning_rate / (custom.first_rate or cfg.learning_rate)
        rate = learning_rate_of(plain)
        optimizer = make_custom_optimizer(given, rate, factor, scale_loss)
        has_rate = isinstance(given, Optimizer) or follows_schedule(optimizer, but=rate)
        if has_rate:
            schedules.pop("learning_rate", None)
            numbers.pop("learning_rate", None)
        parts["optimizer"] = type(getattr(optimizer, "inner_optimizer", optimizer)).__name__
        if factor == 1.0:
            warn_of_ignored(cfg, parts["optimizer"], has_rate)
    if custom.policy is not None:
        parts["policy"] = policy.__name__
    epsilon, explore = schedules.pop("epsilon", None), part_for(cfg, "exploration")
    learning_rule = policy(network, distribution, optimizer, cfg)
    return KytollyAgent(
        learning_rule,
        part_for(cfg, "memory").for_config(cfg, env_spec, learning_rule.network_noise),
        explore(cfg, distribution, epsilon) if epsilon else explore(cfg, distribution),
        cfg,
        env_spec,
        ScheduledNumbers({**numbers, **schedules}),
        parts,
    )


def configured_schedules(cfg: RunConfig) -> dict[str, Schedule]:
    """What `cfg.schedules` says, by the name of the number."""
    if not cfg.schedules:
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
