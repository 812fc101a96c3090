"""Every memory does what an agent and a loop expect of one, and no more is asked of it."""

import inspect

import pytest
import tensorflow as tf

from kytolly.agent.memory import Memory
from kytolly.agent.prioritized_replay import PrioritizedReplay
from kytolly.agent.replay_buffer import ReplayBuffer
from kytolly.agent.rollout_buffer import RolloutBuffer

SPEC = tf.TensorSpec([3])
MEMORIES = [
    ReplayBuffer(8, SPEC, batch_size=4, updates=2, noise=5),
    PrioritizedReplay(8, SPEC, batch_size=4, updates=2, noise=5),
    RolloutBuffer(rows_per_update=4, updates_per_epoch=2, epochs=3),
]


@pytest.mark.parametrize("memory", MEMORIES, ids=lambda memory: type(memory).__name__)
def test_a_memory_has_all_that_the_protocol_names(memory):
    methods = [name for name, _ in inspect.getmembers(Memory, inspect.isfunction) if name[0] != "_"]
    assert {"open", "batch", "close", "end_episodes"} <= set(methods)
    for name in methods:
        names = [list(inspect.signature(getattr(kind, name)).parameters)
                 for kind in (Memory, type(memory))]  # fmt: skip
        assert names[0] == names[1], name
    for name in (*Memory.__annotations__, "num_random_words"):
        assert hasattr(memory, name), name


def test_closing_a_batch_of_a_uniform_memory_adds_no_operation():
    with tf.Graph().as_default() as graph:
        for memory in (MEMORIES[0], MEMORIES[2]):
            assert memory.close((), tf.zeros([4])) is None
        assert [op.type for op in graph.get_operations()] == ["Const"] * 2  # the zeros


def test_random_words_of_an_iteration_are_those_of_its_updates():
    # 2 updates, each with a place for 4 rows, and 5 numbers
    assert MEMORIES[0].num_random_words == MEMORIES[1].num_random_words == 2 * (4 + 5)
