"""What members of one population may have different, and what their program depends on."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from kytolly.config.run import RunConfig
from kytolly.config.schedules import schedule_table
from kytolly.config.words import value_text

# Numbers of a config that members of one population may have different.
VARIED = (
    "learning_rate",
    "max_grad_norm",
    "huber_delta",
    "munchausen_scale",
    "munchausen_lowest",
    "entropy_temperature",
    "td_lambda",
    "gae_lambda",
    "gae_lambda_value",
    "clip_range",
    "value_coef",
    "entropy_coef",
)
OF_RATE = ("learning_rate", "learning_rate_final")


def program_key(cfg: RunConfig) -> tuple[object, ...]:
    """What is the same in configs of one population: all but the seed and what may vary."""
    free, values = free_settings(cfg), dataclasses.asdict(cfg)
    fixed = [(name, str(value)) for name, value in values.items() if name not in free]
    absent = [(name, values[name] is None) for name in free if name in values]
    return (cfg.algorithm, *sorted(fixed), *sorted(absent), *schedule_forms(cfg))


def free_settings(cfg: RunConfig) -> set[str]:
    """The settings that may differ: numbers, and the schedules that they follow."""
    free = {"seed", "schedules", *VARIED, *OF_RATE}
    return free - set(OF_RATE) if cfg.warmup_ratio else free


def schedule_forms(cfg: RunConfig) -> list[tuple[str, object]]:
    """The number of points of each schedule; of epsilon's, which may not vary, its text."""
    return sorted(
        (name, text if name == "epsilon" else len(schedule_table(cfg, name, text)[0]))
        for name, text in configured(cfg).items()
    )


def configured(cfg: RunConfig) -> dict[str, str]:
    """The texts of `cfg.schedules`."""
    return cfg.schedules if isinstance(cfg.schedules, dict) else {}


def varied_numbers(configs: Sequence[RunConfig]) -> dict[str, list[float]]:
    """[P] values of the numbers that are not the same in all configs.

    Raises:
        ValueError: Something else differs, which one program cannot have both ways.
    """
    first, varied = configs[0], {}
    free = free_settings(first)
    for field in dataclasses.fields(first):
        values = [getattr(cfg, field.name) for cfg in configs]
        if field.name == "seed" or all(value == values[0] for value in values):
            continue
        if field.name in OF_RATE and field.name not in free:
            raise ValueError(
                f"{field.name} differs in one population, and it rises first (warmup_ratio is "
                f"{first.warmup_ratio}), expected the same in all members, as the program holds "
                "that schedule. Train them apart, or set warmup_ratio to 0."
            )
        if field.name not in free or None in values:
            raise ValueError(
                f"{field.name} is {value_text(values[0])} and {value_text(values[-1])} in one "
                "population, expected the same in all members, as the program depends on it. "
                f"Only {', '.join(VARIED)} and the seed may differ: train the others apart."
            )
        if field.name in VARIED:
            varied[field.name] = [float(value) for value in values]
    forms = [schedule_forms(cfg) for cfg in configs]
    if any(form != forms[0] for form in forms):
        raise ValueError(
            "schedules differ in their names or numbers of points, or for epsilon, in one "
            "population, expected the same, as the program depends on it. Train them apart."
        )
    return varied
