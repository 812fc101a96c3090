"""Answer a request as TensorFlow Serving does: `python examples/serve_saved_model.py FOLDER`.

FOLDER is what `kytolly export RUN --format saved_model` wrote. Needs TensorFlow, not kytolly. The
server takes the same folder (`--model_base_path=FOLDER`) and the same body, as
`curl -d @FOLDER/request.json http://localhost:8501/v1/models/NAME:predict`.
"""

import json
import sys
from pathlib import Path

import tensorflow as tf

folder = Path(sys.argv[1])
model = tf.saved_model.load(str(folder / "1"))
request = json.loads((folder / "request.json").read_text(encoding="utf-8"))
act = model.signatures[request["signature_name"]]
specs = act.structured_input_signature[1]
rows = {name: [instance[name] for instance in request["instances"]] for name in specs}
outputs = act(**{name: tf.constant(rows[name], spec.dtype) for name, spec in specs.items()})
answer = {name: part.numpy().tolist() for name, part in outputs.items()}
count = len(request["instances"])
predictions = [{name: part[row] for name, part in answer.items()} for row in range(count)]
print(json.dumps({"predictions": predictions}))
