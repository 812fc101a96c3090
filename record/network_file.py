"""Reads the networks of a run, after a look at what their files say about themselves."""

from __future__ import annotations

import contextlib
import importlib
import itertools
import json
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import keras
import numpy as np

from kytolly.record.checkpoint import is_finite, one_line

OWN_MODULE = re.compile(r"kytolly\.model\.\w+", re.ASCII)
BYTES = 2  # of a weight, at least


def load_network(path: Path) -> keras.Model:
    """The network in a `.keras` file."""
    if not path.is_file():
        raise ValueError(
            f"{path} does not exist, expected the best weights of a run: it was stopped before "
            "its first evaluation. Continue it with --resume."
        )
    try:
        require_no_bomb(path)
        import_own_classes(path)
        return cast(keras.Model, keras.models.load_model(path, compile=False))
    except Exception as error:
        reason = " ".join(str(error).split())[:300]
        raise ValueError(
            f"{path} cannot be loaded ({reason}). A model class of your own must be registered "
            "with keras.saving.register_keras_serializable and imported first; a damaged file "
            "must be trained again."
        ) from error


def weights_in(network: Any, path: Path) -> list[np.ndarray]:
    """The weights that a file holds for a network, which stays as it is.

    Raises:
        ValueError: They are no weights of this network, or not finite.
    """
    own = network.get_weights()
    try:
        network.load_weights(path)
        if is_finite(network):
            return network.get_weights()
        reason: Any = "a weight is not finite"
    except Exception as error:  # zipfile, h5py and Keras each have their own
        reason = error
    finally:
        network.set_weights(own)
    raise ValueError(
        f"{path} holds no weights of this run's network ({one_line(reason, 200)}), expected the "
        "file that training wrote. Copy it back from where it came from, or start a new run."
    )


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


def import_own_classes(path: Path) -> None:
    """Import the modules of this library's networks that a `.keras` file names, and no others.

    Keras reads a class from a file only where its module is imported.
    """
    with zipfile.ZipFile(path) as archive:
        config = json.loads(archive.read("config.json"))
    for name in {str(layer.get("module")) for layer in layers_in(config)}:
        if OWN_MODULE.fullmatch(name):
            with contextlib.suppress(ModuleNotFoundError):  # Keras then says what is missing
                importlib.import_module(name)


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
