"""No program reads an int32 variable, which TensorFlow keeps on a GPU's host, where XLA ends."""

import contextlib

import numpy as np
import pytest
import tensorflow as tf

from kytolly.agent.frame_store import FrameStore
from kytolly.agent.make_agent import make_agent
from kytolly.agent.replay_buffer import ReplayBuffer
from kytolly.environment.int32_variable import Int32Variable
from kytolly.environment.state_variable import state_for_a_gpu, state_variable
from kytolly.environment.tensor.cartpole import CartPole
from kytolly.environment.tensor.minatar.breakout import Breakout
from kytolly.loop.device import DeviceLoop
from kytolly.loop.mapped_population import MappedPopulation
from kytolly.loop.replicas import columns_on_host
from tests.loop.configs import small_config
from tests.record.same_run import assert_same_tensors

CASES = {
    "ppo": ("ppo", CartPole, {}),
    "kept": ("ppo", CartPole, {"kept_rollouts": 3}),
    "dqn": ("dqn", Breakout, {"n_step": 3}),
    "rainbow": ("rainbow", CartPole, {}),
    "pqn": ("pqn", Breakout, {}),
}


def make_loop(case, gpu):
    algorithm, make_env, settings = CASES[case]
    env = make_env()
    with state_for_a_gpu() if gpu else contextlib.nullcontext():
        cfg = small_config(algorithm, xla=False, **settings)
        return DeviceLoop(make_agent(cfg, env.spec), env)


def write(loop, path):
    """A checkpoint of a loop and its agent; its file."""
    return tf.train.Checkpoint(agent=loop.agent, **loop.trackables).write(str(path))


@pytest.mark.parametrize("case", CASES)
def test_a_loop_keeps_no_int32_variable_and_learns_the_same(case, tmp_path):
    cpu, gpu = make_loop(case, False), make_loop(case, True)
    for loop in (cpu, gpu):
        loop.run(160)
    assert any(v.dtype == tf.int32 for v in cpu.program.trace().variables)
    assert not [v.name for v in gpu.program.trace().variables if v.dtype == tf.int32]
    assert_same_tensors(write(gpu, tmp_path / "gpu"), write(cpu, tmp_path / "cpu"))


def test_a_population_keeps_none(tmp_path):
    cpu, gpu = (MappedPopulation(make_loop("dqn", gpu), 2) for gpu in (False, True))
    for population in (cpu, gpu):
        population.run(160)
    assert not [v.name for v in gpu.program.trace().variables if v.dtype == tf.int32]
    for member in range(2):
        gpu.select(member)
        cpu.select(member)
        files = (write(p.loop, tmp_path / f"{member}{p is gpu}") for p in (gpu, cpu))
        assert_same_tensors(*files)


def test_frames_are_kept_alike():
    spec = tf.TensorSpec([3, 3, 2], tf.uint8)
    stores = [FrameStore(8, spec, 2)]
    with state_for_a_gpu():
        stores.append(FrameStore(8, spec, 2))
    frames = np.arange(4 * 9 * 2, dtype=np.uint8).reshape(4, 3, 3, 2)
    seen = []
    for store in stores:
        slots = tf.range(4)[:, tf.newaxis]
        store.add(slots, frames, frames + 100, tf.constant([False, True, False, False]))
        store.end_episodes([1])
        stacks = store.stacks(tf.range(4), tf.range(4))
        usable = store.usable(tf.range(4), tf.constant(0), 4)
        seen.append([x.numpy() for x in (*stacks, usable, store.newest, store.added)])
    for ours, theirs in zip(*seen, strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("saves_on_gpu", [True, False])
def test_a_checkpoint_of_a_gpu_goes_on_on_a_cpu_and_back(tmp_path, saves_on_gpu):
    saving, loading = make_loop("dqn", saves_on_gpu), make_loop("dqn", not saves_on_gpu)
    saving.run(160)
    file = write(saving, tmp_path / "before")
    restored = tf.train.Checkpoint(agent=loading.agent, **loading.trackables).read(file)
    restored.assert_consumed()
    assert_same_tensors(write(loading, tmp_path / "after"), file)
    assert tf.uint32 not in tf.train.load_checkpoint(file).get_variable_to_dtype_map().values()


def test_observations_that_several_devices_divide_are_no_int32_variables_either():
    with state_for_a_gpu():
        memory = ReplayBuffer(8, tf.TensorSpec([3], tf.int32))
    moved = columns_on_host(memory)
    assert [column.dtype for column in moved] == [tf.uint32, tf.uint32]
    assert memory.columns.obs.words is moved[0] and memory.columns.obs.numpy().shape == (8, 3)


def test_negative_numbers_and_sums_survive():
    with state_for_a_gpu():
        variable = state_variable([[-1, 5], [2**31 - 1, -(2**31)]], "numbers")
    assert isinstance(variable, Int32Variable)
    assert variable.dtype == tf.int32
    assert variable.shape == (2, 2)
    variable.assign_add([[1, -6], [0, 1]])
    assert variable.numpy().tolist() == [[0, -1], [2**31 - 1, 1 - 2**31]]
    variable.scatter_nd_update([[1]], [[-7, 8]])
    assert tf.gather(variable, [1, 0]).numpy().tolist() == [[-7, 8], [0, -1]]
    assert tf.convert_to_tensor(variable).dtype == tf.int32
    with state_for_a_gpu():
        assert isinstance(state_variable([1.0]), tf.Variable)
    assert isinstance(state_variable(3), tf.Variable)
