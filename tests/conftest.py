import ctypes
import gc
import os
import sys
import tempfile

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
# Many tests compile the same program: a cache for this process alone, gone when it ends.
cache = tempfile.TemporaryDirectory(prefix="kytolly-tests-")
os.environ.setdefault(
    "TF_XLA_FLAGS",
    f"--tf_xla_persistent_cache_directory={cache.name} --tf_xla_persistent_cache_device_types=CPU",
)

import pytest
import tensorflow as tf

from kytolly.config.dqn import DQNConfig


@pytest.fixture(scope="module", autouse=True)
def release_memory(request):
    """Give back what a file compiled: a program stays as long as anything refers to it."""
    yield
    for value in vars(request.module).values():
        if hasattr(value, "cache_clear"):
            value.cache_clear()
    gc.collect()
    if sys.platform == "linux":
        ctypes.CDLL(None).malloc_trim(0)  # over 100 MB that the allocator keeps for itself


@pytest.fixture(scope="session")
def small_config():
    """Settings of a run that takes a moment."""
    return DQNConfig(
        total_env_steps=400,
        batch_size=8,
        hidden_units=(16,),
        replay_capacity=500,
        warmup_env_steps=50,
        train_interval_env_steps=10,
        updates_per_interval=2,
        evaluation_episodes=3,
        final_evaluation_episodes=4,
        log_interval_env_steps=100,
        evaluation_interval_env_steps=200,
        checkpoint_interval_env_steps=200,
    )


@pytest.fixture
def maybe_compile():
    """A function as it is, or compiled with XLA."""

    def choose(function, compiled):
        return tf.function(function, jit_compile=True, autograph=False) if compiled else function

    return choose
