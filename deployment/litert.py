"""LiteRT (TensorFlow Lite): one file, run by the small package `ai-edge-litert`."""

from __future__ import annotations

import contextlib
import io
import re
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from kytolly.deployment.act_function import ActFunction, Run
from kytolly.deployment.saved_model import SIGNATURE, write_model

REPRESENTATIVE = 500  # observations from which int8 takes the range of each tensor


def write(
    act: ActFunction, path: Path, inputs: dict[str, np.ndarray], quantize: str | None
) -> None:
    """Write the file: weights in float32, or quantized.

    Args:
        act: What to convert.
        path: The file.
        inputs: Arrays by name, which int8 measures.
        quantize: None; "float16" for the weights; "int8" for weights and what is computed. What
            goes in and comes out stays as it is.
    """
    with tempfile.TemporaryDirectory() as folder:  # a signature with names needs a SavedModel
        write_model(act, Path(folder) / "model")
        converter = tf.lite.TFLiteConverter.from_saved_model(
            f"{folder}/model", signature_keys=[SIGNATURE]
        )
        if quantize is not None:
            converter.optimizations = [tf.lite.Optimize.DEFAULT]
        if quantize == "float16":
            converter.target_spec.supported_types = [tf.float16]
        elif quantize == "int8":
            converter.representative_dataset = lambda: single_rows(inputs)
        with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")  # its own use of an interpreter that is deprecated
            path.write_bytes(model_bytes(converter))


def model_bytes(converter: tf.lite.TFLiteConverter) -> bytes:
    """The file's bytes.

    Raises:
        ValueError: LiteRT lacks an operation of the network.
    """
    try:
        return converter.convert()
    except Exception as error:  # its class is TensorFlow's own, and not to be imported
        if type(error).__name__ != "ConverterError":
            raise
        names = sorted(set(re.findall(r"'(tf\.\w+)'", str(error))))
        raise ValueError(
            f"LiteRT has no {' and no '.join(names) or 'operation for a part'} of this network, "
            "expected operations that it has. Export it as onnx or saved_model, or take other "
            "layers."
        ) from None


def single_rows(inputs: dict[str, np.ndarray]) -> Iterator[dict[str, np.ndarray]]:
    """Some rows of the inputs, one after the other, spread over all of them."""
    count = len(next(iter(inputs.values())))
    for row in range(0, count, max(1, count // REPRESENTATIVE)):
        yield {name: part[row : row + 1] for name, part in inputs.items()}


def load(path: Path) -> Run:
    """The function in the file: from named arrays to named arrays."""
    from ai_edge_litert.interpreter import Interpreter

    runner: Any = Interpreter(model_path=str(path)).get_signature_runner(SIGNATURE)
    return lambda inputs: runner(**inputs)
