"""`--preset` of `kytolly train`: which settings it gives, and what wins over it."""

from __future__ import annotations

from typing import Any

from kytolly.agent.algorithms import make_config, part
from kytolly.command.environment_options import import_from_here
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
    check_name(name)
    if name == AUTO:
        name = fitting_preset(tuned, given, algorithm, env)
    return {**tuned, **over_preset(name, preset(name, algorithm), given)}


def check_name(name: str) -> None:
    """BadInput for what is neither one of `PRESETS` nor auto."""
    if name not in (*PRESETS, AUTO):
        raise BadInput(
            f"--preset is {value_text(name)}, expected {', '.join(PRESETS)} or {AUTO}."
            f"{nearest(name, (*PRESETS, AUTO)) or ' Choose one.'}"
        )


def over_preset(name: str, values: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """A preset's settings, over which given ones win; a line says which."""
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
    from kytolly.environment.gym.wrapped import wrapped_source
    from kytolly.environment.mask import without_mask
    from kytolly.loop.env_runner import make_env_runner
    from kytolly.machine.devices import device_name
    from kytolly.machine.memory import recommend, training_bytes

    configs = {
        name: make_config({**tuned, **preset(name, algorithm), **given, "algorithm": algorithm})
        for name in PRESETS
    }
    smallest = configs[PRESETS[0]]
    import_from_here(env, *(smallest.wrappers or ()))
    source = wrapped_source(env, smallest.env_kwargs, smallest.wrappers)
    side = make_env_runner(smallest, source)
    side.close()  # what is looked at is its spec
    seen = without_mask(side.spec.obs)
    policy = part(algorithm, "policy")
    params = policy.distribution_for(smallest, side.spec).num_params
    needs = {
        name: sum(training_bytes(c, seen, params, None, side.spec.frame_stack).values())
        for name, c in configs.items()
    }
    name, reason = recommend(needs, device_name(smallest.device))
    print_problem(f"preset {name}: {reason}.")
    return name
