"""What would exhaust the memory is refused; what is free is made up here."""

import numpy as np
import pytest
import tensorflow as tf

from kytolly.agent.replay_buffer import ReplayBuffer
from kytolly.config.dqn import DQNConfig
from kytolly.config.ppo import PPOConfig
from kytolly.machine.memory import ROW_BYTES, check_memory, require_memory

VECTOR, IMAGE = tf.TensorSpec([2], tf.float32), tf.TensorSpec([8, 8, 3], tf.uint8)


@pytest.fixture
def free(monkeypatch):
    """Sets how many bytes are free; None: nobody knows."""
    name = "kytolly.machine.facts.available_memory_bytes"
    return lambda free: monkeypatch.setattr(name, lambda: free)


def test_what_does_not_fit_into_memory_is_refused(free):
    free(2**30)
    check_memory(2**30, "a table", "lower it")
    with pytest.raises(ValueError, match=r"a table would take at least 2.5 GiB .* 1.0 GiB are fre"):
        check_memory(5 * 2**29, "a table", "lower it")
    check_memory(5 * 2**29, "a table", "lower it", "/GPU:0")  # a GPU's memory is not known
    free(0)
    check_memory(2**24, "a table", "lower it")  # so little is not looked up
    with pytest.raises(ValueError, match="a table would take"):
        check_memory(2**24 + 1, "a table", "lower it")
    free(None)
    check_memory(2**80, "a table", "lower it")


@pytest.mark.parametrize("spec", [VECTOR, IMAGE])
def test_a_row_takes_what_the_replay_buffer_holds_of_it(spec):
    buffer = ReplayBuffer(10, spec)
    held = [column.numpy().nbytes for column in (*buffer.columns[:5], buffer.last)]
    assert sum(held) == 10 * (2 * np.prod(spec.shape) * spec.dtype.size + ROW_BYTES)


@pytest.mark.parametrize("model", [None, "the user's"])
def test_a_replay_buffer_that_does_not_fit_says_how_many_rows_would(free, model):
    cfg = DQNConfig(hidden_units=(1,), replay_capacity=10**6, warmup_env_steps=1, batch_size=1)
    # Own network: 16 * (2 + 1); activations: 4 * (2 + 1 + 1) and 4 * 2. Two float32 observations
    # of 2 numbers, 16 bytes, for the row of an update, for an environment, and for 32 env steps.
    others = (48 + 16 + 8 if model is None else 0) + 16 + 16 + 32 * 16
    free(others + 29 * 1_000)  # a row: 16 bytes, and 13
    with pytest.raises(ValueError, match=r"is for replay_capacity. Lower that; 1,000 rows would"):
        require_memory(cfg, VECTOR, 1, model, None)
    free(others + 29 * 10**6)
    require_memory(cfg, VECTOR, 1, model, None)


@pytest.mark.parametrize(
    "settings, name",
    [
        ({"hidden_units": (8192, 8192)}, "hidden_units"),
        ({"num_envs": 2**17, "rollout_steps": 1, "num_minibatches": 2**10}, "num_envs"),
        ({"num_envs": 2**17, "rollout_steps": 1, "num_minibatches": 1}, "the rows of an update"),
    ],
)
def test_what_takes_most_is_named(free, settings, name):
    free(2**24)
    with pytest.raises(ValueError, match=rf"most of it, .* GiB, is for {name}\. Lower that"):
        require_memory(PPOConfig(**settings), {"a": VECTOR, "b": IMAGE}, 3, None, "/CPU:0")
