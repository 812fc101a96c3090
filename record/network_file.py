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
import tensorflow as tf

from kytolly.record.checkpoint import DAMAGE, check_files, is_finite, one_line

OWN_MODULE = re.compile(r"kytolly\.model\.\w+", re.ASCII)
BYTES = 2  # of a weight, at least
# The network of an agent among what `complete_checkpoint` wrote; TensorFlow alters dots in names.
NETWORK = re.compile(r"keras_variables/state\W.*\bnetwork/(\d+)/\.ATTRIBUTES/VARIABLE_VALUE")


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
        words = " ".join(str(error).split())
        unknown = re.match(r"Could not locate (?:class|function) '([^']*)'", words)
        if unknown is None:
            raise ValueError(
                f"{path} cannot be loaded ({words:.300}). A model class of your own must be "
                "registered with keras.saving.register_keras_serializable and imported first; a "
                "damaged file must be trained again."
            ) from error
        name = re.search(r"'registered_name': '(?:([^'>]*)>)?", words)
        package = name[1] if name and name[1] else "Custom"
        argument = "" if package == "Custom" else f'package="{package}"'
        raise ValueError(
            f"{path} is of the class {unknown[1]}, which this program does not know. Import the "
            f"module that defines it before, with "
            f"@keras.saving.register_keras_serializable({argument}) above the class."
        ) from error


def take_checkpoint_weights(network: keras.Model, path: str) -> None:
    """Give a network its weights of a checkpoint, as `record.checkpoint` writes it.

    Args:
        network: Built, of the architecture that was trained.
        path: The checkpoint, without the endings of its files.

    Raises:
        ValueError: The checkpoint is damaged, or holds no such network.
    """
    try:
        check_files(path)
        reader = tf.train.load_checkpoint(path)
        shapes = reader.get_variable_to_shape_map()
        found = {int(n[1]): n[0] for n in map(NETWORK.fullmatch, shapes) if n}
        weights = [reader.get_tensor(found[index]) for index in sorted(found)]
    except DAMAGE as error:
        raise ValueError(
            f"the checkpoint {path} is damaged ({one_line(error, 160)}), expected the files that "
            "training wrote. Take those of another checkpoint."
        ) from error
    own, saved = ([tuple(w.shape) for w in each] for each in (network.variables, weights))
    if own != saved:
        raise ValueError(
            f"the checkpoint {path} holds a network of weights {saved}, and the network that the "
            f"run's files describe has {own}. A model of your own that was never evaluated is "
            "described by no file: resume the run with it, up to its first evaluation."
        )
    for variable, weight in zip(network.variables, weights, strict=True):
        variable.assign(weight)


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
