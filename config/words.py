"""Words of messages about settings: one short line, whatever was given."""

from __future__ import annotations

import difflib
import math
import os
import reprlib
import types
import typing
from collections.abc import Iterable
from typing import Annotated, Literal

PREFIX = "kytolly: "  # begins a line for the user
Hint = object  # the annotation of a setting, as `typing.get_type_hints` gives it

# Stable-Baselines3's and CleanRL's names, where ours are not near enough to be found by spelling.
OTHER_NAMES = {
    "buffer_size": "replay_capacity",
    "learning_starts": "warmup_env_steps",
    "train_frequency": "train_interval_env_steps",
    "train_freq": "train_interval_env_steps",
    "gradient_steps": "updates_per_interval",
    "target_update_interval": "target_sync_updates",
    "target_network_frequency": "target_sync_updates",
    "tau": "target_mix",
    "exploration_fraction": "exploration_env_steps",
    "exploration_initial_eps": "epsilon_start",
    "exploration_final_eps": "epsilon_final",
    "start_e": "epsilon_start",
    "end_e": "epsilon_final",
    "total_timesteps": "total_env_steps",
    "n_steps": "rollout_steps",
    "num_steps": "rollout_steps",
    "n_epochs": "epochs",
    "update_epochs": "epochs",
    "clip_coef": "clip_range",
    "clip_range_vf": "clip_range_value",
    "ent_coef": "entropy_coef",
    "vf_coef": "value_coef",
    "norm_adv": "normalize_advantage",
    "net_arch": "hidden_units",
    "policy_kwargs": "hidden_units",
    "n_envs": "num_envs",
    "use_sde": "state_dependent_std",
    "n_eval_episodes": "evaluation_episodes",
    "eval_freq": "evaluation_interval_env_steps",
    "tensorboard_log": "log_dir",
}


def value_text(value: object) -> str:
    """A value in a message."""
    short = reprlib.Repr()
    short.maxstring = short.maxother = 300
    try:
        return " ".join(short.repr(value).split())
    except ValueError:  # Python refuses to print a number of more than 4,300 digits
        return "a number of thousands of digits"


def path_text(path: str | os.PathLike[str]) -> str:
    """A path in a message, without quotes."""
    return value_text(str(path))[1:-1]


def nearest(name: object, known: Iterable[str]) -> str:
    """A question for the known name that is nearest to an unknown one, if one is near.

    Near is what another library calls it, what its words begin with, or what is spelled alike.
    """
    if not isinstance(name, str):
        return ""
    plain = {plain_name(each): each for each in known}
    asked = plain_name(name)
    initials = {"".join(word[:1] for word in key.split("_")): key for key in reversed(plain)}
    match = plain.get(OTHER_NAMES.get(asked, "")) or plain.get(initials.get(asked, ""))
    near = [match] if match else difflib.get_close_matches(name, plain.values(), 1)
    return f" Did you mean {near[0]!r}?" if near else ""


def nearest_divisors(rows: int, wanted: int) -> str:
    """The divisors of `rows` just below and just above `wanted`, for a message."""
    pairs = [(n, rows // n) for n in range(1, math.isqrt(rows) + 1) if rows % n == 0]
    divisors = sorted({n for pair in pairs for n in pair})
    below = [n for n in divisors if n < wanted][-1:]
    return " or ".join(str(n) for n in below + [n for n in divisors if n > wanted][:1])


def plain_name(name: str) -> str:
    """A flag or a setting as a field is called."""
    return name.lstrip("-").replace("-", "_").lower()


def unit_and_choices(hint: Hint) -> tuple[str, tuple[str, ...]]:
    """The unit and the choices in the annotation of a setting; empty where it has none."""
    hint = _without_none(hint)
    if typing.get_origin(hint) is Literal:
        return "", typing.get_args(hint)
    return next((note for note in typing.get_args(hint) if isinstance(note, str)), ""), ()


def expectation(hint: Hint) -> str:
    """The values that an annotation allows, such as `a whole number, at least 1`."""
    unit, choices = unit_and_choices(hint)
    hint = _without_none(hint)
    if choices:
        return f"one of {', '.join(choices)}"
    if typing.get_origin(hint) is not Annotated:
        return "true or false" if hint is bool else getattr(hint, "__name__", str(hint))
    kind, meta, *_ = typing.get_args(hint)
    if meta.description:
        return meta.description
    noun = "a whole number" if kind is int else "a number"
    limits = (("above", meta.gt), ("at least", meta.ge), ("at most", meta.le))
    words = " and ".join(f"{word} {limit:,}" for word, limit in limits if limit is not None)
    return f"{noun}, {words} {unit}".rstrip()


def refusal(name: str, given: object, hint: Hint) -> str:
    """The message of a value that an annotation does not allow."""
    advice = nearest(given, unit_and_choices(hint)[1]) or " Change it."
    return f"{name} is {value_text(given)}, expected {expectation(hint)}.{advice}"


def wrong_algorithm(algorithm: object, known: Iterable[str]) -> ValueError:
    """The error of settings whose `algorithm` is no name; None where there is none."""
    if algorithm is None:
        return ValueError(
            f"the settings name no algorithm, expected one of {', '.join(known)}: add it, as "
            "in {'algorithm': 'dqn'}."
        )
    return ValueError(
        f"algorithm is {value_text(algorithm)}, expected one of {', '.join(known)}. Change it."
    )


def wrong_config(values: object, default: str | None) -> TypeError:
    """The error of what is no configuration, or one of algorithms that a method does not train."""
    given = type(values).__name__ if hasattr(values, "algorithm") else value_text(values)
    if default is None:
        return TypeError(
            f"the settings are {given}, expected a mapping or a configuration such as DQNConfig or "
            "PPOConfig. Give one, as in PPOConfig(total_env_steps=50_000)."
        )
    return TypeError(
        f"train_{default} got {given}, expected a mapping or a configuration such as "
        f"{default.upper()}Config. Give one, or call train(), which takes those of every algorithm."
    )


def _without_none(hint: Hint) -> Hint:
    return typing.get_args(hint)[0] if types.NoneType in typing.get_args(hint) else hint
