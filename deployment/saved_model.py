"""SavedModel in the layout of TensorFlow Serving: a folder with a numbered folder for each version.

`1/` holds the model, `request.json` beside it the body of a request to the REST interface.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from kytolly.deployment.act_function import ActFunction, Run
from kytolly.record.saved_checkpoint import path_without_pattern

SIGNATURE = "serving_default"
VERSION = "1"
EXAMPLES = 2  # observations in the request


def write(act: ActFunction, path: Path, inputs: dict[str, np.ndarray], quantize: None) -> None:
    """Write the folder; the request holds the first rows of the inputs."""
    write_model(act, path / VERSION)
    text = json.dumps(request({name: part[:EXAMPLES] for name, part in inputs.items()}))
    (path / "request.json").write_text(text + "\n", encoding="utf-8")


def write_model(act: ActFunction, path: Path) -> None:
    """Write the model alone."""
    tf.saved_model.save(act, str(path), signatures={SIGNATURE: act.concrete})


def request(inputs: dict[str, np.ndarray]) -> dict[str, Any]:
    """The body of a POST to `/v1/models/NAME:predict`, with a row for each observation.

    Source: https://www.tensorflow.org/tfx/serving/api_rest, "Predict API", row format.
    """
    count = len(next(iter(inputs.values())))
    instances = [{name: part[i].tolist() for name, part in inputs.items()} for i in range(count)]
    return {"signature_name": SIGNATURE, "instances": instances}


def load(path: Path) -> Run:
    """The function in the folder: from named arrays to named arrays."""
    with path_without_pattern(path) as folder:
        function = tf.saved_model.load(str(folder / VERSION)).signatures[SIGNATURE]

    def run(inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        tensors = {name: tf.constant(part) for name, part in inputs.items()}
        return {name: part.numpy() for name, part in function(**tensors).items()}

    return run
