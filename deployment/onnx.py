"""ONNX: one file, run by `onnxruntime` and by many others."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import cast

import numpy as np
import tensorflow as tf

from kytolly.deployment.act_function import ActFunction, Run

OPSET = 17


def write(act: ActFunction, path: Path, inputs: dict[str, np.ndarray], quantize: None) -> None:
    """Write the file."""
    import tf2onnx

    logging.getLogger("tf2onnx").setLevel(logging.ERROR)
    names = list(act.inputs)  # inputs by place: tf2onnx knows no keywords
    function = tf.function(
        lambda *parts: act.concrete(**dict(zip(names, parts, strict=True))), autograph=False
    )
    # `from_keras` does not work with Keras 3.
    with in_one_line("cannot be converted"):
        tf2onnx.convert.from_function(
            function, input_signature=list(act.inputs.values()), opset=OPSET, output_path=str(path)
        )


def load(path: Path) -> Run:
    """The function in the file: from named arrays to named arrays."""
    import onnxruntime

    with in_one_line("is not what onnxruntime can run"):
        session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    outputs = [output.name for output in session.get_outputs()]

    def run(inputs: dict[str, np.ndarray]) -> Mapping[str, np.ndarray]:
        with in_one_line("is not what onnxruntime can run"):
            arrays = cast(list[np.ndarray], session.run(outputs, inputs))
        return dict(zip(outputs, arrays, strict=True))

    return run


@contextlib.contextmanager
def in_one_line(problem: str) -> Iterator[None]:
    """ValueError for what tf2onnx and onnxruntime raise, whose classes are theirs alone."""
    try:
        yield
    except OSError:  # of the file, not of the network
        raise
    except Exception as error:
        reason = " ".join(str(error).split())
        raise ValueError(
            f"this network as ONNX {problem} ({reason:.200}), expected operations that ONNX has. "
            "Export it as saved_model or litert, or take other layers."
        ) from error
