"""A training run reads little code: what somebody must know who follows one from end to end."""

import json
import subprocess
import sys

import pytest

# Lines of all files that a run loads, lines of the rooms below, and the number of files with code.
# What few runs need, those load.
LIMITS = {"dqn": (8_564, 6_517, 70), "ppo": (8_059, 6_012, 68)}
ROOMS = ("trainer", "training_run", "loop", "agent", "policy", "model", "environment", "config")

TRAIN = """
import json, pathlib, sys, types

common = {"num_envs": 2, "hidden_units": [4], "xla": False, "evaluation_episodes": 2,
          "final_evaluation_episodes": 2, "total_env_steps": 32}
own = {"dqn": {"batch_size": 8, "warmup_env_steps": 16, "train_interval_env_steps": 8},
       "ppo": {"rollout_steps": 8}}
lines = {}
for algorithm in own:
    for name in [name for name in sys.modules if name.split(".")[0] == "kytolly"]:
        del sys.modules[name]  # each algorithm loads its own
    # A run needs no network but its own; this module loads all, for files that hold them.
    sys.modules["kytolly.keras_classes"] = types.SimpleNamespace(register_with_keras=lambda: None)
    from kytolly import Trainer
    cfg = {"algorithm": algorithm, **common, **own[algorithm]}
    run = Trainer(sys.argv[1] + algorithm, progress=False).train(cfg, "CartPole-v1")
    assert run.summary["updates"] > 0
    files = {name: module.__file__ for name, module in sys.modules.items()
             if name.split(".")[0] == "kytolly" and getattr(module, "__file__", None)}
    lines[algorithm] = {name: len(pathlib.Path(file).resolve().read_text().splitlines())
                        for name, file in files.items()}
print(json.dumps(lines))
"""


@pytest.fixture(scope="module")
def lines_of_runs(tmp_path_factory):
    """Algorithm -> module -> lines, of all of ours that a tiny run has loaded."""
    command = [sys.executable, "-c", TRAIN, f"{tmp_path_factory.mktemp('runs')}/"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("algorithm", ["dqn", "ppo"])
def test_a_run_loads_few_lines(algorithm, lines_of_runs):
    lines = lines_of_runs[algorithm]
    core = {name: n for name, n in lines.items() if [*name.split("."), ""][1] in ROOMS}
    files = sum(n > 1 for n in lines.values())
    measured, limits = (sum(lines.values()), sum(core.values()), files), LIMITS[algorithm]
    longest = sorted(lines.items(), key=lambda item: -item[1])
    within = all(n <= limit for n, limit in zip(measured, limits, strict=True))
    assert within, f"{measured} of {limits}: {longest}"
