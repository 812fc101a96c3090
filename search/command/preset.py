"""`--preset` for a model of texts, and what `kytolly doctor` says of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from kytolly.command.exits import print_problem
from kytolly.command.preset import AUTO, check_name, over_preset
from kytolly.command.start import prepare_machine
from kytolly.config.presets import PRESETS
from kytolly.machine.doctor import Check
from kytolly.search.config.presets import text_preset

if TYPE_CHECKING:
    from types import ModuleType

Settings: TypeAlias = dict[str, Any]  # by name, as a file or flags give them
# Of a text model, and of each token of its batch; docs/training_faults.md has the measurement.
TEXT_BYTES = 700 * 2**20
TEXT_TOKEN_BYTES = 400_000


def with_text_preset(name: str, given: Settings, kind: str) -> Settings:
    """Settings of which those that were given win over the preset's.

    Args:
        name: One of `PRESETS`, or auto for the one that fits the free memory.
        given: From a file and from flags.
        kind: Of the text model.
    """
    check_name(name)
    if name == AUTO:
        name = fitting_text_preset(given)
    return over_preset(name, text_preset(name, kind), given)


def fitting_text_preset(given: Settings) -> str:
    """The preset of text models that fits the free memory; a line says which, and why."""
    prepare_machine()
    from kytolly.machine.facts import device_name
    from kytolly.machine.presets import recommend

    name, reason = recommend(text_needs(given), device_name(given.get("device", "auto")))
    print_problem(f"preset {name}: {reason}.")
    return name


def text_needs(given: Settings) -> dict[str, int]:
    """Bytes that each preset takes to train a text model, with the settings that are given.

    They are those of a re-ranker with two Transformer blocks, which takes most.
    """
    settings = {name: {**text_preset(name), **given} for name in PRESETS}
    return {
        name: TEXT_BYTES + one["batch_size"] * one["max_length"] * TEXT_TOKEN_BYTES
        for name, one in settings.items()
    }


def check_text_preset(tf: ModuleType) -> Check:
    """The preset for text models, by what a re-ranker takes."""
    from kytolly.machine.presets import recommend

    device = "/GPU:0" if tf.config.list_physical_devices("GPU") else None
    name, reason = recommend(text_needs({}), device)
    finding = f"{name} for a re-ranker and other text models: {reason}"
    return Check("text preset", "ok", finding, f"kytolly train ranker --preset {name}, or auto")
