"""Reads the networks of a run, after a look at what their files say about themselves."""

from __future__ import annotations

import contextlib
import importlib
import json
import math
import re
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar, cast

import h5py
import keras
import numpy as np
import tensorflow as tf
from numpy.typing import ArrayLike

from kytolly.record.checkpoint import is_finite
from kytolly.record.dead_weights import living_weights
from kytolly.record.saved_checkpoint import (
    DAMAGE,
    check_files,
    path_without_pattern,
    short_reason,
)

MODEL_MODULE = re.compile(r"kytolly\.model\.\w+", re.ASCII)
WEIGHTS = "model.weights.h5"  # in a `.keras` file
# Layers may make a little more than they save, such as the states of random draws.
SHARE = 2
SPARE = 2**20
# The network of an agent among what `complete_checkpoint` wrote; TensorFlow alters dots in names.
NETWORK = re.compile(r"keras_variables/state\W.*\bnetwork/(\d+)/\.ATTRIBUTES/VARIABLE_VALUE")
MAX_OUTPUT_NUMBERS = 2**26  # of a layer, for one observation

Network = TypeVar("Network", bound=keras.Model)


def load_network(path: Path) -> keras.Model:
    """The network in a `.keras` file."""
    if not path.is_file():
        raise ValueError(
            f"{path} does not exist, expected the best weights of a run: it was stopped before "
            "its first evaluation. Continue it with --resume."
        )
    try:
        stored = stored_numbers(path)
        import_model_classes(layers_of(path))
        with limited_weights(stored):
            network = cast(keras.Model, keras.models.load_model(path, compile=False))
        if not network.built:  # it would make its weights later, as many as it likes
            raise ValueError("it does not say for which inputs its layers are")
        check_outputs(network)
        return network
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


def check_outputs(network: keras.Model) -> None:
    """ValueError where a layer, such as RepeatVector, makes far more numbers than its weights."""
    for layer in network._flatten_layers():  # the network itself among them
        for operation in (layer, *getattr(layer, "operations", ())):
            for node in operation._inbound_nodes:
                for tensor in node.output_tensors:
                    numbers = math.prod(size or 1 for size in tensor.shape)
                    if numbers > MAX_OUTPUT_NUMBERS:
                        raise ValueError(
                            f"its layer {operation.name} makes {numbers:,} numbers of one input"
                        )


def load_network_of(kind: type[Network], path: Path) -> Network:
    """The network in a `.keras` file; ValueError where it is of another class, or not finite."""
    network = load_network(path)
    if isinstance(network, kind) and is_finite(network):
        return network
    contents = (
        "weights that are not finite" if isinstance(network, kind) else type(network).__name__
    )
    raise ValueError(
        f"{path} holds {contents}, expected a {kind.__name__} that training wrote. Copy the file "
        "back from where it came from, or train again."
    )


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
        with path_without_pattern(Path(path).parent) as folder:
            reader = tf.train.load_checkpoint(str(folder / Path(path).name))
            shapes = reader.get_variable_to_shape_map()
            names = {int(n[1]): n[0] for n in map(NETWORK.fullmatch, shapes) if n}
            weights = [reader.get_tensor(names[index]) for index in sorted(names)]
    except DAMAGE as error:
        raise ValueError(
            f"the checkpoint {path} is damaged ({short_reason(error, 160)}), expected the files "
            "that training wrote. Take those of another checkpoint."
        ) from error
    weights = living_weights(network, weights)
    expected, saved = ([tuple(w.shape) for w in each] for each in (network.variables, weights))
    if expected != saved:
        raise ValueError(
            f"the checkpoint {path} holds a network of weights {saved}, and the network that the "
            f"run's files describe has {expected}. A model of your own that was never evaluated is "
            "described by no file: resume the run with it, up to its first evaluation."
        )
    for variable, weight in zip(network.variables, weights, strict=True):
        variable.assign(weight)


def weights_in(network: keras.Model, path: Path) -> list[np.ndarray]:
    """The weights that a file holds for a network, which stays as it is.

    Raises:
        ValueError: They are no weights of this network, or not finite.
    """
    weights_before = network.get_weights()
    try:
        stored_numbers(path)  # before they take memory
        network.load_weights(path)
        if is_finite(network):
            return network.get_weights()
        reason: Exception = ValueError("a weight is not finite")
    except Exception as error:  # zipfile, h5py and Keras each have their own
        reason = error
    finally:
        network.set_weights(weights_before)
    raise ValueError(
        f"{path} holds no weights of this run's network ({short_reason(reason, 200)}), expected "
        "the file that training wrote. Copy it back from where it came from, or start a new run."
    )


def stored_numbers(path: Path) -> int:
    """The count of numbers in the weights of a `.keras` or `.weights.h5` file.

    Raises:
        ValueError: Something in the file is compressed, or only declared. Keras compresses nothing;
            zipfile and h5py have errors of their own for what is no such file.
    """
    size = path.stat().st_size
    if path.suffix != ".keras":
        with h5py.File(path) as weights:
            return min(size, sum(map(dataset_numbers, datasets_in(weights))))
    with zipfile.ZipFile(path) as archive:
        unpacked = sum(part.file_size for part in archive.infolist())
        if unpacked > size:
            raise ValueError(f"it unpacks to {unpacked:,} bytes and has {size:,}")
        with archive.open(WEIGHTS) as file, h5py.File(file) as weights:
            return min(size, sum(map(dataset_numbers, datasets_in(weights))))


def datasets_in(weights: h5py.File) -> list[h5py.Dataset]:
    """Every array of an HDF5 file, once, however many names it has."""
    items: list[Any] = []
    weights.visititems(lambda _, item: items.append(item))
    return [item for item in items if isinstance(item, h5py.Dataset)]


def dataset_numbers(dataset: h5py.Dataset) -> int:
    """The count of an array's numbers, all of which are in its file."""
    held = dataset.id.get_storage_size()
    if dataset.nbytes > held:
        raise ValueError(f"{dataset.name} unpacks to {dataset.nbytes:,} bytes and has {held:,}")
    return int(dataset.size or 0)


@contextlib.contextmanager
def limited_weights(stored: int) -> Iterator[None]:
    """Let weights be made while there are about as many as a file holds, and no more.

    It asks each variable for its shape before it takes memory, so it holds for every layer, of
    whoever: nothing has to be known about them.

    Args:
        stored: Numbers that the file holds.

    Raises:
        ValueError: Within the block or at its end, when a layer would make too many.
    """
    total = 0

    def require_few() -> None:
        if total > SHARE * stored + SPARE:
            raise ValueError(f"its layers need {total:,} numbers or more, and it has {stored:,}")

    def make(
        make_next: Callable[..., tf.Variable],
        *,
        initial_value: ArrayLike | Callable[[], ArrayLike],
        **options: object,
    ) -> tf.Variable:
        nonlocal total
        total += initial_size(initial_value)
        require_few()
        return make_next(initial_value=initial_value, **options)

    try:
        with tf.variable_creator_scope(make):
            yield
    finally:
        require_few()  # Keras makes a warning of an error in `build`, and then fails elsewhere


def initial_size(value: ArrayLike | Callable[[], ArrayLike]) -> int:
    """The count of a variable's numbers, from its first value or a function that would make it."""
    if not callable(value):
        return int(np.size(value))
    graph = tf.function(value, autograph=False).get_concrete_function()  # traced, never run
    return math.prod(tf.nest.flatten(graph.structured_outputs)[0].shape)


def import_model_classes(layers: Iterable[Mapping[str, object]]) -> None:
    """Import the modules of this library's networks that a file's layers name, and no others.

    Keras reads a class from a file only where its module is imported.
    """
    for name in {str(layer.get("module")) for layer in layers}:
        if MODEL_MODULE.fullmatch(name):
            with contextlib.suppress(ModuleNotFoundError):  # Keras then says what is missing
                importlib.import_module(name)


def layers_of(path: Path) -> list[dict[str, Any]]:
    """The layers that a `.keras` file describes.

    Raises:
        ValueError: One keeps its state from one batch to the next. Keras would make it as large as
            the file says, and no agent has such a network.
    """
    with zipfile.ZipFile(path) as archive:
        layers = list(layers_in(json.loads(archive.read("config.json"))))
    if any(layer["config"].get("stateful") for layer in layers):
        raise ValueError("a layer is stateful, expected one that sees each batch by itself")
    return layers


def layers_in(value: object) -> Iterator[dict[str, Any]]:
    """Every layer, or other object, that a Keras configuration describes."""
    if isinstance(value, dict) and isinstance(value.get("config"), dict):
        yield value
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    for part in parts:
        yield from layers_in(part)
