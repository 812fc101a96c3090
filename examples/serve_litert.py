"""Act with a LiteRT file, as on a small device: `python examples/serve_litert.py FILE.tflite`.

FILE is what `kytolly export RUN --format litert` wrote. Needs `pip install ai-edge-litert` and
neither TensorFlow nor kytolly.
"""

import json
import sys

import numpy as np
from ai_edge_litert.interpreter import Interpreter

act = Interpreter(model_path=sys.argv[1]).get_signature_runner("serving_default")
inputs = {}
for name, details in act.get_input_details().items():
    shape = details["shape_signature"][1:]  # without the batch axis, which may have any length
    inputs[name] = np.ones([2, *shape], details["dtype"])
outputs = act(**inputs)  # two observations of ones; an action_mask of ones allows every action
print(json.dumps({name: part.tolist() for name, part in outputs.items()}))
