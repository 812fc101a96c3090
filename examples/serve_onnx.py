"""Act with an ONNX file: `python examples/serve_onnx.py FILE.onnx`.

FILE is what `kytolly export RUN --format onnx` wrote. Needs `pip install onnxruntime` and neither
TensorFlow nor kytolly.
"""

import json
import sys

import numpy as np
import onnxruntime

DTYPES = {"tensor(float)": np.float32, "tensor(uint8)": np.uint8, "tensor(bool)": np.bool_}
act = onnxruntime.InferenceSession(sys.argv[1], providers=["CPUExecutionProvider"])
inputs = {
    one.name: np.ones([2, *one.shape[1:]], DTYPES[one.type])  # the batch axis may have any length
    for one in act.get_inputs()
}
names = [one.name for one in act.get_outputs()]
outputs = act.run(names, inputs)  # two observations of ones; an action_mask of ones allows all
print(json.dumps({name: part.tolist() for name, part in zip(names, outputs, strict=True)}))
