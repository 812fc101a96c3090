"""`--preset` of `kytolly train`: which settings it gives, and what wins over it."""

from __future__ import annotations

from kytolly.agent.algorithms import make_config, part
from kytolly.command.environment_options import import_from_here
from kytolly.command.exits import BadInput, print_problem
from kytolly.command.options import Settings
from kytolly.command.start import prepare_machine
from kytolly.config.presets import PRESETS, preset
from kytolly.config.words import nearest, value_text

AUTO = "auto"


def with_preset(name: str, tuned: Settings, given: Settings, algorithm: str, env: str) -> Settings:
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


def over_preset(preset_name: str, values: Settings, given: Settings) -> Settings:
    """A preset's settings, over which given ones win; a line says which."""
    winners = [
        f"{name} {given[name]} (not {value})"
        for name, value in values.items()
        if name in given and given[name] != value
    ]
    if winners:
        print_problem(f"your settings win over the preset {preset_name}: {', '.join(winners)}.")
    return {**values, **given}


def fitting_preset(tuned: Settings, given: Settings, algorithm: str, env: str) -> str:
    """The preset that fits the free memory; a line says which, and why."""
    prepare_machine()
    from kytolly.environment.mask import without_mask
    from kytolly.loop.env_runner import configured_source, make_env_runner
    from kytolly.machine.facts import device_name
    from kytolly.machine.memory import training_bytes
    from kytolly.machine.presets import recommend

    configs = {
        name: make_config({**tuned, **preset(name, algorithm), **given, "algorithm": algorithm})
        for name in PRESETS
    }
    smallest = configs[PRESETS[0]]
    import_from_here(env, *(smallest.wrappers or ()))
    runner = make_env_runner(smallest, configured_source(smallest, env))
    runner.close()  # what is looked at is its spec
    spec = runner.spec
    obs_spec = without_mask(spec.obs)
    num_params = part(algorithm, "policy").distribution_for(smallest, spec).num_params
    needs = {
        name: sum(training_bytes(cfg, obs_spec, num_params, None, spec.frame_stack).values())
        for name, cfg in configs.items()
    }
    name, reason = recommend(needs, device_name(smallest.device))
    print_problem(f"preset {name}: {reason}.")
    return name
