"""`--preset` of `kytolly train`: which settings it gives, and what wins over it."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from kytolly.agent.algorithms import make_config, part
from kytolly.command.exits import BadInput, print_problem
from kytolly.command.start import prepare_machine
from kytolly.config.presets import PRESETS, preset
from kytolly.config.words import nearest, value_text

AUTO = "auto"


def with_preset(
    name: str, tuned: dict[str, Any], given: dict[str, Any], algorithm: str, env: str
) -> dict[str, Any]:
    """Settings of which those that were given win over the preset's, and they over the tuned.

    Args:
        name: One of `PRESETS`, or auto for the one that fits the free memory.
        tuned: This project's settings for the task.
        given: From a file and from flags.
        algorithm: Its name.
        env: Id of the environment.
    """
    check_preset(name)
    if name == AUTO:
        name = fitting_preset(tuned, given, algorithm, env)
    return {**tuned, **preset_under(name, preset(name, algorithm), given)}


def with_text_preset(name: str, given: dict[str, Any], fields: Collection[str]) -> dict[str, Any]:
    """As `with_preset`, for a text model that has some of the preset's settings as `fields`."""
    check_preset(name)
    if name == AUTO:
        from kytolly.machine.devices import device_name
        from kytolly.machine.presets import recommend, text_needs

        prepare_machine()
        device = device_name(given.get("device", "auto"))
        name, reason = recommend(text_needs(given), device)
        print_problem(f"preset {name}: {reason}.")
    values = {one: value for one, value in preset(name, "text").items() if one in fields}
    return preset_under(name, values, given)


def check_preset(name: str) -> None:
    """Refuse what is no preset."""
    if name not in (*PRESETS, AUTO):
        raise BadInput(
            f"--preset is {value_text(name)}, expected {', '.join(PRESETS)} or {AUTO}."
            f"{nearest(name, (*PRESETS, AUTO)) or ' Choose one.'}"
        )


def preset_under(name: str, values: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """A preset's settings with those that were given over them; one line says which those are."""
    winners = [
        f"{one} {given[one]} (not {value})"
        for one, value in values.items()
        if one in given and given[one] != value
    ]
    if winners:
        print_problem(f"your settings win over the preset {name}: {', '.join(winners)}.")
    return {**values, **given}


def fitting_preset(tuned: dict[str, Any], given: dict[str, Any], algorithm: str, env: str) -> str:
    """The preset that fits the free memory; a line says which, and why."""
    prepare_machine()
    from kytolly.environment.mask import without_mask
    from kytolly.loop.choose import choose_side
    from kytolly.machine.devices import device_name
    from kytolly.machine.memory import training_bytes
    from kytolly.machine.presets import recommend

    configs = {
        name: make_config({**tuned, **preset(name, algorithm), **given, "algorithm": algorithm})
        for name in PRESETS
    }
    smallest = configs[PRESETS[0]]
    side = choose_side(smallest, env)
    side.close()  # what is looked at is its spec
    seen, policy = without_mask(side.spec.obs), part(algorithm, "policy")
    params = policy.distribution_for(smallest, side.spec).num_params
    needs = {name: sum(training_bytes(c, seen, params).values()) for name, c in configs.items()}
    name, reason = recommend(needs, device_name(smallest.device))
    print_problem(f"preset {name}: {reason}.")
    return name
