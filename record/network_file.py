"""What a `.keras` file says about itself, before anything is made of it."""

from __future__ import annotations

import itertools
import json
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

BYTES = 2  # of a weight, at least


def require_no_bomb(path: Path) -> None:
    """Refuse a `.keras` file from which much more would be made than it holds.

    Keras stores weights without compression, so they take no more bytes than the file has.

    Raises:
        ValueError: The file is compressed, or its layers have more weights than it can hold;
            zipfile and json have errors of their own for what is no such file.
    """
    size = path.stat().st_size
    with zipfile.ZipFile(path) as archive:
        unpacked = sum(part.file_size for part in archive.infolist())
        if unpacked > size:
            raise ValueError(f"it unpacks to {unpacked:,} bytes and has {size:,}")
        config = json.loads(archive.read("config.json"))
    needed = BYTES * sum(map(fewest_weights, layers_in(config)))
    if needed > size:
        raise ValueError(f"its layers need {needed:,} bytes and it has {size:,}")


def layers_in(value: Any) -> Iterator[dict[str, Any]]:
    """Every layer, or other object, that a Keras configuration describes."""
    if isinstance(value, dict) and isinstance(value.get("config"), dict):
        yield value
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    for part in parts:
        yield from layers_in(part)


def fewest_weights(layer: dict[str, Any]) -> int:
    """How many weights a layer has, at least: those between the widths that it names."""
    own, build = layer["config"], layer.get("build_config") or {}
    seen = build.get("input_shape") or [0]
    shapes = seen.values() if isinstance(seen, dict) else [seen]
    inner = own.get("hidden_units") or [own.get("units") or own.get("filters") or 0]
    last = own.get("num_actions") or own.get("num_params") or 1
    before = max(shape[-1] if isinstance(shape, list) else 0 for shape in shapes)
    return sum(max(a, 1) * b for a, b in itertools.pairwise([before or 0, *inner, last]))
