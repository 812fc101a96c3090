"""A program that JAX's client runs computes what TensorFlow computes."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from kytolly.benchmarks import core, gpu_dump

SCRIPT = Path(__file__).parents[2] / "scripts" / "run_on_device.py"
ITERATIONS = 200  # of 10 env steps: half of them before the first update


def run_script(*words):
    environ = {**os.environ, "JAX_PLATFORMS": "cpu", "CUDA_VISIBLE_DEVICES": "-1"}
    command = [sys.executable, str(SCRIPT), *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, env=environ)


@pytest.mark.skipif(importlib.util.find_spec("jax") is None, reason="needs jax")
def test_jax_runs_a_program_to_tensorflows_numbers(tmp_path):
    gpu_dump.dump("dqn", tmp_path)
    file = tmp_path / "results.npz"
    words = ("dqn", "--iterations", ITERATIONS, "--results", file)
    ended = run_script(tmp_path, *words)
    assert ended.returncode == 0, ended.stderr
    saved = np.load(file)

    work = gpu_dump.ROWS["dqn"].work()
    loop, agent = core.make_loop(work.cfg, work.env, "device")
    metrics = tf.nest.flatten(core.fetch(loop.run(ITERATIONS * loop.env_steps_per_iteration)))
    assert int(agent.policy.updates) > 50
    for number, value in enumerate(metrics):
        np.testing.assert_allclose(saved[f"arr_{number}"], value, rtol=1e-4)
    numbers = [saved[name].item() for name in saved if saved[name].size == 1]
    assert int(agent.env_steps) in numbers and int(agent.policy.updates) in numbers

    timed = run_script(tmp_path, "--iterations", "2", "--repeats", "1")
    assert timed.returncode == 0, timed.stderr
    assert "| dqn | 2 |" in timed.stdout


@pytest.mark.skipif(importlib.util.find_spec("jax") is None, reason="needs jax")
def test_a_folder_without_programs_is_refused(tmp_path):
    ended = run_script(tmp_path)
    assert ended.returncode == 2
    assert ended.stderr.splitlines()[-1].startswith(f"{tmp_path} has no program")
