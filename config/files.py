"""Files of settings and of runs, which may be a stranger's: read with care, by a schema."""

from __future__ import annotations

import collections
import json
import os
from pathlib import Path
from typing import Any, TypedDict

import msgspec
import yaml

from kytolly.config.words import nearest, path_text, value_text

MAX_BYTES = 2**16
MAX_DEPTH = 16
MAX_JSON_BYTES = 2**26  # a vocabulary, or the terms of all queries


class BesideSettings(TypedDict, total=False):
    """The contents of a run's config.yaml, or of a group.yaml, beside the settings."""

    environment: str
    loop: str | None
    parts: dict[str, str | None] | None
    versions: dict[str, str]
    spec: dict[str, Any] | None
    init: str | None
    together: list[list[int]] | None  # of a group: the seeds of each population
    not_given: list[str]  # settings that the runs may choose, whatever number is written
    pbt: dict[str, int] | None  # of population-based training: members and interval
    sweep: dict[str, Any] | None  # of a sweep: its values, seeds and processes


BESIDE_SETTINGS = tuple(BesideSettings.__annotations__)


class SettingsLoader(yaml.SafeLoader):
    """Plain YAML: no alias and no tag, which may stand for much more than the file; no key twice.

    Deep nesting is refused before Python's stack is used up.
    """

    depth = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        """The next value of the file."""
        event = self.peek_event()
        if isinstance(event, yaml.AliasEvent) or event.anchor or event.tag:
            raise yaml.MarkedYAMLError(problem="anchors, aliases and tags are not supported")
        if self.depth == MAX_DEPTH:
            raise yaml.MarkedYAMLError(problem=f"nested more than {MAX_DEPTH} deep")
        self.depth += 1
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """A mapping; a key that is given twice is an error."""
        names = collections.Counter(
            key.value for key, _ in node.value if isinstance(key.value, str)
        )
        for name, times in names.items():
            if times > 1:
                raise yaml.MarkedYAMLError(problem=f"{value_text(name)} is given {times} times")
        return super().construct_mapping(node, deep)


def read_yaml(path: str | Path) -> dict[str, Any]:
    """The mapping in a YAML file; ValueError where there is none to be read."""
    name = path_text(path)
    try:
        with open(path, "rb") as file:
            content = file.read(MAX_BYTES + 1)
        if len(content) > MAX_BYTES:
            raise ValueError(f"more than {MAX_BYTES:,} bytes")
        values = yaml.load(content, SettingsLoader)
    except OSError as error:
        raise ValueError(
            f"{name} cannot be read ({error.strerror}), expected a YAML file. Give one that exists."
        ) from None
    except (ValueError, OverflowError, yaml.YAMLError) as error:  # of "\U80000000"
        raise ValueError(
            f"{name} is not YAML text with settings ({' '.join(str(error).split())}): expected "
            "lines such as `learning_rate: 0.001`."
        ) from None
    if not isinstance(values, dict) or not values:
        raise ValueError(
            f"{name} holds {'nothing' if values is None else type(values).__name__}, expected "
            "settings, one a line, such as `learning_rate: 0.001`."
        )
    return values


def given_or_packaged(path: str | Path) -> Path:
    """The file of that name, or where there is none, the one in the package's `configs/`."""
    path = Path(path)
    ours = Path(__file__).parents[1] / "configs" / path.name
    known = path.parent in (Path(), Path("configs"))
    return ours if known and not path.exists() and ours.is_file() else path


def read_settings(path: str | Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """The settings in a file, and what the config.yaml of a run holds beside them."""
    values = read_yaml(path)
    if "settings" not in values:
        return values, {}
    settings = values.pop("settings")
    if not isinstance(settings, dict):
        raise ValueError(
            f"settings in {path_text(path)} is {value_text(settings)}, expected settings below it, "
            "one a line."
        )
    for name in values:
        if name not in BESIDE_SETTINGS:
            raise ValueError(
                f"{value_text(name)} is beside settings in {path_text(path)}, expected only "
                f"{', '.join(BESIDE_SETTINGS)}.{nearest(name, BESIDE_SETTINGS)} Move it below "
                "settings."
            )
    try:
        beside = msgspec.convert(values, BesideSettings)
    except msgspec.ValidationError as error:
        raise ValueError(
            f"{path_text(path)} holds something else than training wrote ({error}). Restore it, or "
            "train again."
        ) from None
    learns_values = "n_step" in settings or settings.get("algorithm") == "pqn"
    if learns_values and "action_masks" not in settings:
        settings["action_masks"] = False  # those of values looked for none
    averages = "average_share" in settings
    if "n_step" in settings or settings.get("algorithm") == "ppo":
        settings.setdefault("average_share", 0.0)  # no earlier run had a longer average
    if settings.get("algorithm") == "ppo":
        settings.setdefault("gae_lambda_value", None)  # there was one lambda
    if "n_step" in settings:
        settings.setdefault("layer_norm", False)  # no earlier network had norms unless asked for
    if "n_step" in settings and "cut_at_exploration" not in settings:
        _add_what_was_usual(settings, beside)
    if settings.get("noisy") and not averages:  # noise was all that explored
        settings.pop("exploration_repeat", None)
        settings |= {"epsilon_start": 0.0, "epsilon_middle": None, "epsilon_final": 0.0}
        settings["cut_at_exploration"] = False
    for name in beside.pop("not_given", ()):
        settings.pop(name, None)
    return settings, dict(beside)


def _add_what_was_usual(settings: dict[str, Any], beside: BesideSettings) -> None:
    """Give the run of a kytolly that had fewer settings what it was trained with."""
    settings["cut_at_exploration"] = False
    if settings.get("algorithm") == "iqn":
        settings["layers_after_level"] = 1
    encodings = (beside.get("spec") or {}).get("encodings")
    if settings.get("network") == "auto" and isinstance(encodings, dict) and "" in encodings:
        settings["network"] = "mlp"  # there was no table


def read_json(path: str | os.PathLike[str], schema: object, advice: str) -> Any:
    """The contents of a run's JSON file.

    Args:
        path: The file.
        schema: A type that msgspec checks, such as a TypedDict; it may hold other names as well.
        advice: Where such a file comes from and what to do, as a sentence without its full stop.

    Raises:
        ValueError: There is no such file, or it holds something else.
    """
    try:
        if not os.path.isfile(path):  # a pipe would never end
            raise FileNotFoundError(
                "it is no file" if os.path.exists(path) else "it does not exist"
            )
        with open(path, "rb") as file:
            content = file.read(MAX_JSON_BYTES + 1)
        if len(content) > MAX_JSON_BYTES:
            raise ValueError(f"more than {MAX_JSON_BYTES:,} bytes")
        return msgspec.convert(json.loads(content), schema)
    except (OSError, ValueError, RecursionError) as error:
        reason = getattr(error, "strerror", None) or " ".join(str(error).split())
        raise ValueError(f"{path_text(path)} cannot be read ({reason:.200}); {advice}.") from None
