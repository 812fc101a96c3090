"""Configurations in YAML files and mappings."""

from __future__ import annotations

import dataclasses
import difflib
from pathlib import Path
from typing import Any

import yaml


def from_mapping(kind: type, values: dict[str, Any]) -> Any:
    """A configuration from field names and values; an unknown name is an error."""
    known = [field.name for field in dataclasses.fields(kind)]
    for name in values:
        if name not in known:
            near = difflib.get_close_matches(str(name), known, 1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise ValueError(
                f"{name!r} is not a setting of {kind.__name__}.{hint} "
                f"`kytolly train --help` lists them."
            )
    return kind(**values)


def read_yaml(path: str | Path) -> dict[str, Any]:
    """The mapping in a YAML file; ValueError where there is none to be read."""
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
        values = yaml.safe_load(text)
    except OSError as error:
        raise ValueError(
            f"{path} cannot be read ({error.strerror}): give --config a YAML file that exists."
        ) from None
    except (UnicodeDecodeError, yaml.YAMLError) as error:
        reason = " ".join(str(error).split())
        raise ValueError(
            f"{path} is not YAML text ({reason}): expected lines such as `learning_rate: 0.001`."
        ) from None
    if not isinstance(values, dict) or not values:
        raise ValueError(
            f"{path} holds {'nothing' if values is None else type(values).__name__}, expected "
            "settings, one a line, such as `learning_rate: 0.001`."
        )
    return values


def yaml_text(config: Any, extra: dict[str, Any]) -> str:
    """Every field of a configuration, and what else identifies the run, as YAML."""
    values = dataclasses.asdict(config)
    values = {k: list(v) if isinstance(v, tuple) else v for k, v in values.items()}
    return yaml.safe_dump({**extra, "settings": values}, sort_keys=False)
