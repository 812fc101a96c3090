import ctypes
import gc
import os
import re
import signal
import sqlite3  # noqa: F401 - before TensorFlow, whose own SQLite lacks FTS5
import sys
import tempfile
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
# Many tests compile the same program: a cache for this process alone, gone when it ends.
cache = tempfile.TemporaryDirectory(prefix="kytolly-tests-")
os.environ.setdefault(
    "TF_XLA_FLAGS",
    f"--tf_xla_persistent_cache_directory={cache.name} --tf_xla_persistent_cache_device_types=CPU",
)

import pytest

from kytolly.config.dqn import DQNConfig

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as in a job that a shell runs behind `&`
    signal.signal(signal.SIGINT, signal.default_int_handler)  # tests press Ctrl-C
xla = os.environ.get("KYTOLLY_XLA", "on")
kept: dict[str, int] = {}  # by file: megabytes that this process did not get back
failed_for_memory: list[int] = []


def pytest_addoption(parser):
    parser.addoption(
        "--most-megabytes",
        type=int,
        help="fail where a process of the tests has needed more memory (Linux, without a GPU)",
    )
    parser.addoption(
        "--seed", type=int, default=0, help="of the weights and draws that tests leave open"
    )


@pytest.hookimpl(tryfirst=True)
def pytest_fixture_setup(request):
    """Let nothing depend on the tests before it, neither a fixture nor, after the last, its test.

    Networks whose test gives no seed were others in each process. `--seed` makes them others.
    """
    import keras

    keras.utils.set_random_seed(request.config.getoption("--seed"))


@pytest.fixture(autouse=True)
def keep_xla_setting(monkeypatch):
    """What a command in this process decides is not for the tests after it."""
    monkeypatch.setenv("KYTOLLY_XLA", xla)


@pytest.fixture(scope="session", autouse=True)
def permanent_modules():
    """Load what all tests need; no later collection of garbage looks at it again (0.2 s each)."""
    import keras  # noqa: F401 - not above: `--help` needs none
    import tensorflow  # noqa: F401

    gc.freeze()


@pytest.fixture(scope="module", autouse=True)
def release_memory(request, permanent_modules):
    """Give back what a file compiled: a program stays as long as anything refers to it."""
    import tensorflow as tf

    before = megabytes()
    yield
    for value in vars(request.module).values():
        if hasattr(value, "cache_clear"):
            value.cache_clear()
    gc.collect()
    if sys.platform == "linux":
        ctypes.CDLL(None).malloc_trim(0)  # over 100 MB that the allocator keeps for itself
    kept[request.node.nodeid] = megabytes() - before
    most = request.config.getoption("--most-megabytes")
    if most and not tf.config.list_physical_devices("GPU"):
        check_peak(most)


def megabytes() -> int:
    """What this process has in memory now; 0 where the system does not say."""
    pages = Path("/proc/self/statm")
    if not pages.exists():
        return 0
    return int(pages.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") // 10**6


def peak_megabytes() -> int:
    """Megabytes that this process had in memory at most; 0 where the system does not say."""
    status = Path("/proc/self/status")
    match = re.search(r"VmHWM:\s+(\d+) kB", status.read_text()) if status.exists() else None
    return int(match[1]) * 1024 // 10**6 if match else 0


def pytest_terminal_summary(terminalreporter):
    """Print the memory that the tests needed."""
    terminalreporter.write_line(f"Peak of memory: {peak_megabytes():,} MB")


def check_peak(most: int) -> None:
    """Fail, once, in a process that has needed more than `most` megabytes."""
    peak = peak_megabytes()
    if peak > most and not failed_for_memory:
        failed_for_memory.append(peak)
        largest = sorted(kept, key=kept.__getitem__, reverse=True)[:5]
        pytest.fail(
            f"a process of the tests has needed {peak} MB, expected at most {most}; most was kept "
            f"by {', '.join(f'{name} ({kept[name]} MB)' for name in largest)}. Compile less there "
            "(xla=False), or give its folder a group of its own in scripts/run_tests.py.",
            pytrace=False,
        )


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
    import tensorflow as tf

    def choose(function, compiled):
        return tf.function(function, jit_compile=True, autograph=False) if compiled else function

    return choose
