"""Supervised training on several devices of a CPU: in a process that has two."""

import json

from tests.helpers.new_process import in_new_process

COMPARE = """
import functools, json, os, sys
import numpy as np, tensorflow as tf
from kytolly.machine.devices import names_of_several
devices = names_of_several("cpu:0,cpu:1")
from kytolly import Trainer
from kytolly.loop.learn import LoopMetrics
from kytolly.loop.replicas import ReplicatedSupervisedLoop
from kytolly.loop.supervised import Learner, SupervisedLoop
from tests.search.text.tiny_task import ContainsWord, small_config

vectors, metrics = [], []
for kind, place, parts in (
    # What one device learns from batches one after the other, two learn at once.
    (SupervisedLoop, devices[0], 2),
    (ReplicatedSupervisedLoop, devices, 1),
):
    with tf.device(devices[0]):
        learner = Learner(ContainsWord(dropout=0.0), small_config().in_smaller_batches(parts))
    loop, sums = kind(learner, place), []
    while learner.updates < 20:
        sums.append(loop.run(20 - learner.updates))
    vectors.append(learner.policy.weights.vector.numpy())
    metrics.append(functools.reduce(LoopMetrics.plus, sums).on_host().fit)

refused = []
for cfg in (small_config(batch_size=7, device="cpu:0,cpu:1"),):
    try:
        Trainer(sys.argv[1], progress=False).train_supervised(cfg, ContainsWord())
    except ValueError as error:
        refused.append(str(error))
cfg = small_config(device="cpu:0,cpu:1", total_updates=12)
result = Trainer(sys.argv[1], progress=False).train_supervised(cfg, ContainsWord())
print(json.dumps({
    "moved": float(np.abs(vectors[0]).max()),
    "weights": float(np.abs(vectors[0] - vectors[1]).max()),
    "metrics": float(np.abs(metrics[0] - metrics[1]).max()),
    "refused": refused,
    "updates": result.summary["updates"],
    "files": sorted(os.listdir(result.run_dir / "checkpoints")),
}))
"""


def test_two_devices_learn_what_one_does(tmp_path):
    done = in_new_process(COMPARE, tmp_path / "run")
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["weights"] < 1e-5 and found["metrics"] < 1e-3 and found["moved"] > 0.1
    assert "batch_size is 7, and 2 devices train" in found["refused"][0]
    assert found["updates"] == 12 and "ckpt-12.json" in found["files"]
