"""What a program for a GPU computes otherwise gives the same; here a CPU runs both."""

import numpy as np
import pytest
import tensorflow as tf

from kytolly.agent.make_agent import make_agent
from kytolly.environment.fusion_barrier import fusion_barrier, loop_fusion_barrier, on_gpu
from kytolly.environment.tensor.cartpole import CartPole
from kytolly.environment.tensor.minatar.breakout import Breakout
from kytolly.loop.columns import Columns
from kytolly.loop.device import DeviceLoop
from kytolly.loop.packed_columns import PackedColumns
from kytolly.loop.program import Program
from tests.helpers.cases import learning
from tests.helpers.on_policy_probes import DictObservation
from tests.loop.configs import small_config

CASES = {
    "ppo": ("ppo", CartPole, {}),
    "dqn": ("dqn", CartPole, {"n_step": 3, "target_sync_updates": 2, "target_mix": 0.5}),
    "copies": ("dqn", CartPole, {"target_sync_updates": 3, "target_mix": 1.0}),
    "rainbow": ("rainbow", CartPole, {}),
    "dict": ("ppo", DictObservation, {}),
    "kept": ("ppo", CartPole, {"kept_rollouts": 3}),
    "shared": ("ppo", CartPole, {"shared_torso": True, "hidden_units": (8, 8)}),
    "microbatches": ("ppo", CartPole, {"gradient_accumulation": 2}),
    "streams": ("dqn", CartPole, {"network": "dueling"}),
    "pqn": ("pqn", Breakout, {}),
}


def collected(algorithm, make_env, settings, device):
    """The weights after a few iterations, and what the loop says of the last ones."""
    env = make_env()
    loop = DeviceLoop(make_agent(small_config(algorithm, **settings), env.spec), env, device)
    loop.run(160)
    metrics = loop.run(160)
    policy = loop.agent.policy
    target = getattr(policy, "target_vector", policy.weights.vector)
    vectors = (policy.weights.vector, target, policy.published)
    return [*(vector.numpy() for vector in vectors), *map(np.asarray, metrics)]


@pytest.mark.parametrize(
    "case", [learning(name) if name not in ("ppo", "dqn", "rainbow") else name for name in CASES]
)
def test_a_program_for_a_gpu_learns_the_same(case):
    for cpu, gpu in zip(
        collected(*CASES[case], None), collected(*CASES[case], "/GPU:0"), strict=True
    ):
        np.testing.assert_allclose(gpu, cpu, rtol=2e-4, atol=2e-5)


def test_only_a_program_for_a_gpu_is_traced_as_one():
    seen = []

    @tf.function(autograph=False)
    def program(x):
        with tf.device("/GPU:0"):
            x = tf.while_loop(lambda x: x < 3, lambda x: seen.append(on_gpu()) or x + 1, (x,))[0]
        seen.append(on_gpu())
        return x

    assert program(tf.constant(0)) == 3
    assert seen == [True, False]


@pytest.mark.parametrize(("device", "expected"), [("/GPU:0", True), ("/CPU:0", False)])
def test_the_program_of_a_loop_is_traced_for_its_device(device, expected):
    seen = []
    signature = [tf.TensorSpec([], tf.int32)]
    program = Program(lambda x: seen.append(on_gpu()) or x + 1, signature, True, device)
    assert program(tf.constant(1)) == 2
    assert seen == [expected]


@pytest.mark.parametrize("barrier", [fusion_barrier, loop_fusion_barrier])
def test_a_barrier_is_no_operation_of_a_gpu(barrier):
    with tf.Graph().as_default() as graph, tf.device("/GPU:0"):
        barrier(tf.zeros([2]), tf.constant(True))
    assert not {"If", "StatelessIf", "While", "StatelessWhile"} & {
        op.type for op in graph.get_operations()
    }


def test_packed_columns_keep_every_bit():
    specs = [
        tf.TensorSpec([2, 3]),
        tf.TensorSpec([2], tf.int32),
        tf.TensorSpec([2, 2, 2], tf.uint8),
        tf.TensorSpec([2], tf.bool),
        tf.TensorSpec([2, 2], tf.bool),
    ]
    rows = [
        [
            tf.constant([[np.nan, np.inf, -0.0], [1e-40, 3.4e38, -1.5]], tf.float32) * (time + 1),
            tf.constant([-(2**31), 2**31 - 1 - time]),
            tf.cast(tf.reshape(tf.range(248, 256), [2, 2, 2]), tf.uint8),
            tf.constant([time == 0, True]),
            tf.constant([[True, False], [False, time == 1]]),
        ]
        for time in range(2)
    ]
    found = []
    for kind in (Columns, PackedColumns):
        columns = kind(specs, 2)
        arrays = columns.arrays()
        for time, row in enumerate(rows):
            arrays = columns.write(arrays, time, row)
        found.append(columns.stack(arrays))
    assert len(PackedColumns(specs, 2).arrays()) == 2  # words, and the images
    for plain, packed, spec in zip(*found, specs, strict=True):
        assert packed.dtype == spec.dtype and packed.shape == plain.shape
        np.testing.assert_array_equal(packed, plain)
